"""A random Marian model of Hugging Face, and ours made of it: the reference for logits, decoding and speed."""

from __future__ import annotations

import warnings
from typing import Any

from torch import nn

from transformer_lib.data.tokenizer import BOS, EOS, PAD
from transformer_lib.models.convert import from_hf
from transformer_lib.models.transformer import Transformer


def marian_model(
    vocab_size: int,
    d_model: int,
    n_heads: int,
    layers: tuple[int, int],
    d_ff: int,
    max_length: int,
    init_std: float,
    **changes: Any,
) -> nn.Module:
    """A Marian model in evaluation mode; its special tokens are ours unless changed."""
    import transformers

    settings = {
        "vocab_size": vocab_size,
        "d_model": d_model,
        "encoder_layers": layers[0],
        "decoder_layers": layers[1],
        "encoder_attention_heads": n_heads,
        "decoder_attention_heads": n_heads,
        "encoder_ffn_dim": d_ff,
        "decoder_ffn_dim": d_ff,
        "activation_function": "relu",
        "max_position_embeddings": max_length,
        "scale_embedding": True,
        "pad_token_id": PAD,
        "eos_token_id": EOS,
        "forced_eos_token_id": None,
        "decoder_start_token_id": BOS,
        "init_std": init_std,
        "dropout": 0.0,
    }
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return transformers.MarianMTModel(transformers.MarianConfig(**{**settings, **changes})).eval()


def marian_pair(*sizes: Any, **more: Any) -> tuple[Transformer, nn.Module]:
    """Our model and theirs, in evaluation mode, with the same random weights."""
    theirs = marian_model(*sizes, **more)
    return from_hf(theirs), theirs
