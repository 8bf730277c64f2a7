"""The student's edition: small tests for those who write the chapters' functions themselves.

In a notebook, ``grade("multi_head_attention")`` tests what you have written so far. On the command line,
``python -m transformer_lib.student FOLDER --chapter masks`` does the same for a folder of notebooks. Your functions are
tested in their place in the library: whatever you have not written yet is taken from there.
"""

from transformer_lib.student.grading import grade, take

__all__ = ["grade", "take"]
