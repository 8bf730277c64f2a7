"""Multi30k: captions of photographs, translated by people, and the tokens its scores are measured in."""

import gzip
from functools import cache
from typing import Any

from transformer_lib.data.batching import Pair
from transformer_lib.data.files import DataFile, Folder, fetch, read_table
from transformer_lib.data.text import one_line

__all__ = ["MULTI30K", "load_multi30k", "moses_detokenize", "moses_tokenize"]

ADDRESS = "https://raw.githubusercontent.com/multi30k/dataset/a3d2e0d26b56f3846f66a952536ffed4e401d05a/data/task1/raw/"
LANGUAGES = ("en", "de", "fr")
PARTS = read_table("multi30k")[""]
MULTI30K = {name: DataFile("multi30k", name, ADDRESS + name, sha256) for name, sha256 in PARTS}


def load_multi30k(split: str, source: str = "de", target: str = "en", *, directory: Folder = None) -> list[Pair]:
    """Sentence pairs of Multi30k, without alignments, in the order of the files.

    Args:
        split: "train", "val", "test_2016_flickr", "test_2017_flickr" or "test_2017_mscoco".
        source: the language to translate from, "en", "de" or "fr".
        target: the one to translate into.
        directory: a folder that has ``multi30k/train.en.gz`` and so on; see ``fetch``.

    Raises:
        FileNotFoundError: the directory does not have the file.
        OSError: the download failed; the message says what to do.
        ValueError: an unknown split or language, twice the same language, or a file that is not the
            published one.

    Source: Elliott et al. (2016); for French and the tests of 2017, (2017).
    """
    names = [f"{split}.{language}.gz" for language in (source, target)]
    if source == target or not set(names) <= set(MULTI30K):
        splits = sorted({name.split(".")[0] for name in MULTI30K})
        raise ValueError(
            f"split={split!r}, source={source!r}, target={target!r}: the splits are "
            f"{', '.join(splits)}, the languages {', '.join(LANGUAGES)}, two different ones"
        )
    sides = (read_lines(MULTI30K[name], directory) for name in names)
    return [Pair(*pair) for pair in zip(*sides, strict=True)]


def read_lines(file: DataFile, directory: Folder) -> list[str]:
    """The lines of a published gzip file; only the newline ends a line."""
    text = gzip.decompress(fetch(file, directory).read_bytes()).decode("utf-8")
    return text.removesuffix("\n").split("\n")


@cache
def moses(language: str) -> tuple[Any, ...]:
    """The normaliser, tokenizer and detokenizer of a language, made once."""
    if language not in LANGUAGES:
        raise ValueError(f"language={language!r} is unknown, expected {', '.join(LANGUAGES)}")
    import sacremoses  # slow to import, and few callers need it

    kinds = ("MosesPunctNormalizer", "MosesTokenizer", "MosesDetokenizer")
    return tuple(getattr(sacremoses, kind)(lang=language) for kind in kinds)


def moses_tokenize(text: str, language: str, *, lowercase: bool = True) -> str:
    """Lower-case, normalise punctuation and split it off, as the literature does.

    The order matters: the Moses scripts keep a full stop on what looks like an abbreviation, and
    upper-case letters are a part of that look. No dashes are split and nothing is escaped.

    Example:
        >>> moses_tokenize("A man's dog, asleep.", "en")
        "a man 's dog , asleep ."
    """
    normaliser, tokenizer, _ = moses(language)
    options = {"return_str": True, "aggressive_dash_splits": False, "escape": False}
    text = one_line(text.lower() if lowercase else text)
    return str(tokenizer.tokenize(normaliser.normalize(text), **options))


def moses_detokenize(text: str, language: str) -> str:
    """Join Moses tokens to a sentence as people write it, but without restoring capitals.

    Example:
        >>> moses_detokenize("a man 's dog , asleep .", "en")
        "a man's dog, asleep."
    """
    return str(moses(language)[2].detokenize(one_line(text).split(), unescape=False))
