"""Bahdanau's attention under its old name."""  # bridge

from transformer_lib.models.attention import attend as attend  # bridge
from transformer_lib.models.bahdanau import *  # noqa: F403  # bridge
from transformer_lib.models.bahdanau import BahdanauSeq2Seq as AlignedSeq2Seq  # noqa: F401  # bridge
