"""Translators, and the attention that they are made of."""
