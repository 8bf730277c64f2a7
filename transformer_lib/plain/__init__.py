"""What the chapters build, plainly: a file a chapter, torch only, to read, to copy and to type again."""
