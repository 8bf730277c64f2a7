"""Attention and the Transformer, step by step: the library that the book builds.

These are the names that most people need, in the order of the book; everything else is imported
from its module. A name is imported when it is first asked for. With ``TRANSFORMER_LIB_STRICT=1`` in
the environment, every annotated shape and type is checked when it is called; of ``data``, those of ``batching`` and
``tokenizer``.
"""

import os
from importlib import import_module, metadata
from typing import Any

from .settings import settings  # noqa: F401  # now, or the module of that name would take its place later

_MODULES = {
    "metrics": "alignment_error_rate bleu exact_match perplexity",
    "data.captions": "make_captions",
    "data.tokenizer": "BOS EOS PAD UNK Tokenizer",
    "data.batching": "Batch Pair batches collate encode_pairs",
    "data.multi30k": "load_multi30k moses_detokenize moses_tokenize",
    "settings": "settings",
    "models.loss": "Loss translation_loss",
    "models.seq2seq": "Memory Seq2Seq State eval_mode reorder",
    "models.registry": "build_model model_names register_model",
    "models.recurrent": "GRU RecurrentConfig RecurrentSeq2Seq",
    "models.bahdanau": "AdditiveScore BahdanauSeq2Seq",
    "models.luong": "LocalAttention LuongConfig LuongSeq2Seq",
    "models.hard_attention": "HardConfig HardSeq2Seq",
    "models.latent_attention": "IfThenConfig IfThenModel",
    "models.attention": "attention attention_weights causal_mask masked_softmax padding_mask",
    "models.multi_head": "KVCache MultiHeadAttention record_attention",
    "models.layers": "FeedForward LayerNorm LearnedPositions SinusoidalPositions",
    "models.transformer": "Decoder DecoderLayer Encoder EncoderLayer Transformer TransformerConfig",
    "models.gpt": "GPT GPTConfig",
    "models.bert": "Bert BertClassifier BertConfig",
    "models.llama": "Llama LlamaConfig",
    "models.linear_attention": "LinearAttention linear_attention",
    "models.convert": "from_hf from_torch to_hf to_torch",
    "models.marian": "load_marian",
    "training.loss": "r_drop_loss",
    "training.config": "TrainingConfig",
    "training.trainer": "Trainer",
    "training.checkpoints": "average_checkpoints",
    "decoding.greedy": "generate greedy_decode",
    "decoding.beam_search": "Hypotheses SearchConfig beam_search",
    "decoding.sampling": "sample",
    "translation.translator": "Translator pretrained_names",
}
_HOME = {name: module for module, names in _MODULES.items() for name in names.split()}
__all__ = list(_HOME)

if os.environ.get("TRANSFORMER_LIB_STRICT") == "1":
    from jaxtyping import install_import_hook

    from . import strict  # noqa: F401

    _CHECKED = "metrics data.tokenizer data.batching models training decoding translation viz"
    _PLACES = [f"{__name__}.{name}" for name in _CHECKED.split()]
    install_import_hook(_PLACES, "transformer_lib.strict.check")


def __getattr__(name: str) -> Any:
    if name == "__version__":
        return metadata.version("attention-step-by-step")
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOME[name]}"), name)


def __dir__() -> list[str]:
    return sorted([*__all__, "__version__"])
