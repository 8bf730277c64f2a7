"""Text and its batches."""
