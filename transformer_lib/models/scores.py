"""Luong's attention under its old name."""  # bridge

from transformer_lib.models.bahdanau import AdditiveScore as ConcatScore  # noqa: F401  # bridge
from transformer_lib.models.luong import *  # noqa: F403  # bridge
