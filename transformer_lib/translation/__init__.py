"""Translators that work out of the box."""
