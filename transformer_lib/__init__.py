"""Attention and the Transformer, step by step: the library that the book builds, one module per chapter."""
