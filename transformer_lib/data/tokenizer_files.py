"""What surrounds a tokenizer: what it refuses, and one JSON file with a checksum.

Chapter: Subword tokenization: byte-pair encoding (BPE).
"""

import hashlib
import json
import os
from collections.abc import Callable, Collection, Iterable
from pathlib import Path
from typing import Any

import numpy as np

from transformer_lib.data.files import write_atomically
from transformer_lib.data.text import check_texts

__all__: list[str] = []  # the inside of data.tokenizer

Pieces = tuple[str, ...]
Merges = tuple[tuple[str, str], ...]
FORMAT, VERSION = "transformer_lib.Tokenizer", 1


def check_vocabulary(level: str, pieces: Pieces, merges: Merges, letters: Collection[str]) -> None:
    """Refuse pieces and merges that don't belong together."""
    known, alphabet = set(pieces), set(letters)
    joined = {part for a, b in merges for part in (a, b, a + b)}
    fits = {
        "word": not merges and all(word.split() == [word] for word in pieces),
        "bpe": alphabet <= known >= joined and alphabet >= set("".join(known)),
    }
    if not fits.get(level) or len(known) < len(pieces):
        raise ValueError(f"pieces and merges do not make a vocabulary of level {level!r}")


def check_size(texts: list[str], size: int | None, least: int, optional: bool) -> int:
    """The size of a vocabulary, or the least; texts without words are refused, and a size that is too small."""
    if not any(map(str.strip, texts)):
        raise ValueError(f"{len(texts)} texts contain no words to learn from")
    if optional and size is None:
        return least
    if type(size) is not int or size < least:
        raise ValueError(f"vocab_size={size!r} must be at least {least}, a whole number")
    return size


def check_dropout(dropout: float, seed: int | None, level: str) -> None:
    """Refuse what is no probability, and dropout for whole words or without a seed."""
    if not 0 <= dropout < 1 or (dropout and level == "word") or seed is None:
        raise ValueError(f"{dropout=}, {seed=}: expected a probability, subwords and a seed")


def check_ids(ids: Iterable[int], vocab_size: int) -> Iterable[int]:
    """The same ids, one after the other; those outside of the vocabulary are refused."""
    if isinstance(ids, bytes | str):
        raise TypeError(f"ids is {ids!r:.60}: text that is already decoded?")
    for index in ids.tolist() if hasattr(ids, "tolist") else ids:
        if not isinstance(index, int | np.integer) or isinstance(index, bool) or not 0 <= index < vocab_size:
            raise ValueError(f"{index!r} is no id: they go from 0 to {vocab_size - 1}")
        yield int(index)


def checked(level: str, pieces: Pieces, merges: Merges) -> dict[str, Any]:
    """A vocabulary with a hash that changes when a piece or a merge changes, or its place."""
    content = {"level": level, "pieces": pieces, "merges": merges}
    return content | {"sha256": hashlib.sha256(json.dumps(content).encode()).hexdigest()}


def save_vocabulary(path: str | os.PathLike[str], level: str, pieces: Pieces, merges: Merges) -> None:
    """Write a vocabulary to one JSON file, completely or not at all."""
    content = {"format": FORMAT, "version": VERSION} | checked(level, pieces, merges)
    write_atomically(Path(path), json.dumps(content, ensure_ascii=False).encode("utf-8"))


def load_vocabulary(path: str | os.PathLike[str], make: Callable[..., Any]) -> Any:
    """Call ``make`` with a vocabulary that ``save_vocabulary`` wrote; a damaged file is refused."""
    try:
        content = json.loads(Path(path).read_bytes())
        if (content["format"], content["version"]) != (FORMAT, VERSION):
            raise ValueError(f"it has another format, {content['format']!r:.60}")
        level, pieces = content["level"], tuple(check_texts([*content["pieces"]]))
        merges = tuple((left, right) for left, right in content["merges"])
        loaded = make(level, pieces, merges)
        expected = checked(level, pieces, merges)["sha256"]
        if content.get("sha256", expected) != expected:
            raise ValueError("its pieces are not those that were saved")
        return loaded
    except (ValueError, TypeError, KeyError, RecursionError) as error:
        raise ValueError(f"{os.fspath(path)} cannot be read as a tokenizer: {error}") from error
