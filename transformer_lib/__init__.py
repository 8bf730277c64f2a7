"""Attention and the Transformer, step by step: the library that the book builds.

These are the names that most people need, in the order of the book. Everything else is imported from its module. A name is
imported when it is first asked for, so that what needs neither a tokenizer nor a picture loads neither.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # read by type checkers, and by __getattr__ to know where a name lives
    from .metrics import alignment_error_rate, bleu, exact_match, perplexity  # isort: split
    from .data.captions import Pair, make_captions  # isort: split
    from .data.tokenizer import BOS, EOS, PAD, UNK, Tokenizer  # isort: split
    from .data.batching import Batch, batches, collate, encode_pairs  # isort: split
    from .data.multi30k import load_multi30k, moses_detokenize, moses_tokenize  # isort: split
    from .models.seq2seq import Memory, Seq2Seq, State, register_model  # isort: split
    from .models.recurrent import GRU, RecurrentConfig, RecurrentSeq2Seq  # isort: split
    from .models.masked_softmax import attend, masked_softmax  # isort: split
    from .models.bahdanau import AdditiveScore, BahdanauSeq2Seq  # isort: split
    from .models.luong import LocalAttention, LuongConfig, LuongSeq2Seq  # isort: split
    from .models.hard_attention import HardConfig, HardSeq2Seq  # isort: split
    from .models.latent_attention import IfThenConfig, IfThenModel  # isort: split
    from .models.self_attention import SelfAttention  # isort: split
    from .models.attention import scaled_dot_product_attention  # isort: split
    from .models.masks import causal_mask, padding_mask  # isort: split
    from .models.multi_head import KeyValueCache, MultiHeadAttention, record_attention  # isort: split
    from .models.positions import LearnedPositions, SinusoidalPositions  # isort: split
    from .models.sublayers import FeedForward, LayerNorm  # isort: split
    from .models.transformer import Decoder, DecoderLayer, Encoder, EncoderLayer, Transformer, TransformerConfig  # isort: split
    from .models.gpt import GPT, GPTConfig  # isort: split
    from .models.bert import Bert, BertClassifier, BertConfig  # isort: split
    from .models.llama import Llama, LlamaConfig  # isort: split
    from .models.convert import from_hf, from_torch, to_hf, to_torch  # isort: split
    from .models.marian import load_marian  # isort: split
    from .training.loop import evaluate_loss, train_on  # isort: split
    from .training.loss import r_drop_loss, translation_loss  # isort: split
    from .training.trainer import Trainer, TrainingConfig  # isort: split
    from .training.checkpoints import average_checkpoints  # isort: split
    from .decoding.greedy import greedy_decode  # isort: split
    from .decoding.search import Hypothesis, SearchConfig, beam_search  # isort: split
    from .decoding.sampling import sample  # isort: split
    from .translation.translator import Translator, pretrained_names

__all__ = [  # noqa: RUF022  in the order of the book
    "alignment_error_rate",
    "bleu",
    "exact_match",
    "perplexity",
    "Pair",
    "make_captions",
    "BOS",
    "EOS",
    "PAD",
    "UNK",
    "Tokenizer",
    "Batch",
    "batches",
    "collate",
    "encode_pairs",
    "load_multi30k",
    "moses_detokenize",
    "moses_tokenize",
    "Memory",
    "Seq2Seq",
    "State",
    "register_model",
    "GRU",
    "RecurrentConfig",
    "RecurrentSeq2Seq",
    "attend",
    "masked_softmax",
    "AdditiveScore",
    "BahdanauSeq2Seq",
    "LocalAttention",
    "LuongConfig",
    "LuongSeq2Seq",
    "HardConfig",
    "HardSeq2Seq",
    "IfThenConfig",
    "IfThenModel",
    "SelfAttention",
    "scaled_dot_product_attention",
    "causal_mask",
    "padding_mask",
    "KeyValueCache",
    "MultiHeadAttention",
    "record_attention",
    "LearnedPositions",
    "SinusoidalPositions",
    "FeedForward",
    "LayerNorm",
    "Decoder",
    "DecoderLayer",
    "Encoder",
    "EncoderLayer",
    "Transformer",
    "TransformerConfig",
    "GPT",
    "GPTConfig",
    "Bert",
    "BertClassifier",
    "BertConfig",
    "Llama",
    "LlamaConfig",
    "from_hf",
    "from_torch",
    "to_hf",
    "to_torch",
    "load_marian",
    "evaluate_loss",
    "train_on",
    "r_drop_loss",
    "translation_loss",
    "TrainingConfig",
    "Trainer",
    "average_checkpoints",
    "greedy_decode",
    "Hypothesis",
    "SearchConfig",
    "beam_search",
    "sample",
    "Translator",
    "pretrained_names",
]


def _home(name: str) -> str | None:
    """The module that a public name comes from, as the imports above say."""
    import ast
    from pathlib import Path

    for node in ast.walk(ast.parse(Path(__file__).read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.level and name in [alias.name for alias in node.names]:
            return f"{__name__}.{node.module}"
    return None


def __getattr__(name: str) -> Any:
    from importlib import import_module, metadata

    value: Any
    if name == "__version__":
        try:
            value = metadata.version("attention-step-by-step")
        except metadata.PackageNotFoundError:  # a copy that is not installed
            value = "unknown"
    elif name in __all__ and (home := _home(name)):
        value = getattr(import_module(home), name)
    else:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__, "__version__"])
