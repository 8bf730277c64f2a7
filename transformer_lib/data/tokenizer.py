"""A tokenizer that turns any text into ids and back: words, or subwords over bytes.

Chapter: Subword tokenization: byte-pair encoding (BPE).
"""

__all__ = ["PAD", "BOS", "EOS", "UNK", "Tokenizer"]

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property, lru_cache
from os import PathLike
from typing import Any

from jaxtyping import Int
from torch import Tensor

from transformer_lib.data.bpe import compiled, learn_merges, split_at_random
from transformer_lib.data.text import check_texts, one_line
from transformer_lib.data.tokenizer_files import (
    check_dropout,
    check_ids,
    check_size,
    check_vocabulary,
    load_vocabulary,
    save_vocabulary,
)

PAD, BOS, EOS, UNK = 0, 1, 2, 3


@lru_cache(maxsize=1)
def _byte_letters() -> dict[str, int]:
    """The 256 visible characters that represent the 256 bytes.

    Source: Radford et al. (2019), section 2.2.
    """
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    hidden = [byte for byte in range(256) if byte not in printable]
    letters = {chr(byte): byte for byte in printable}
    letters |= {chr(256 + i): byte for i, byte in enumerate(hidden)}
    return dict(sorted(letters.items()))


_N_SPECIAL = 4  # PAD, BOS, EOS and UNK come before the pieces
_UNK_TEXT = "⟨unk⟩"  # what an unknown word becomes when ids are turned into text


def _learn_words(texts: list[str], vocab_size: int | None) -> tuple[str, ...]:
    """The most frequent words; equally frequent ones in alphabetical order."""
    counts = Counter(word for text in texts for word in one_line(text).split())
    ranked = sorted(counts, key=lambda word: (-counts[word], word))
    return tuple(ranked[: None if vocab_size is None else vocab_size - _N_SPECIAL])


@dataclass(frozen=True, repr=False)
class Tokenizer:
    """Turns text into ids and ids into text; made by ``Tokenizer.train``.

    The ids 0 to 3 are padding, beginning, end and unknown; no text is ever turned
    into the first three. At level "bpe" the pieces are subwords over bytes: every
    text can be written, and comes back exactly. At level "word" they are the words
    between white space, and an unknown word becomes id 3.

    Example:
        >>> tokenizer = Tokenizer.train(["a dog sleeps", "a cat"], level="word")
        >>> tokenizer.encode("a dog barks"), tokenizer.decode([4, 6])
        ([4, 6, 3], 'a dog')

    Source: Sennrich et al. (2016), section 3.2; over bytes, Radford et al. (2019),
    section 2.2.
    """

    level: str
    pieces: tuple[str, ...]
    merges: tuple[tuple[str, str], ...] = ()  # in the order of learning

    def __post_init__(self) -> None:
        check_vocabulary(self.level, self.pieces, self.merges, _byte_letters())

    @classmethod
    def train(
        cls,
        texts: Iterable[str],
        vocab_size: int | None = None,
        level: str = "bpe",
    ) -> "Tokenizer":
        """Learn a vocabulary from the texts of the training split, and no other.

        Args:
            texts: the sentences; for a joint vocabulary those of both languages.
            vocab_size: the largest number of ids, including the four special ones.
                At level "word", None means all words.
        """
        if level not in ("bpe", "word"):
            raise ValueError(f"level {level!r} is neither bpe nor word")
        lines, bpe = check_texts(texts), level == "bpe"
        least = _N_SPECIAL + (256 if bpe else 1)
        size = check_size(lines, vocab_size, least, optional=level == "word")
        if bpe:
            n_pieces = size - _N_SPECIAL
            return cls(level, *learn_merges(lines, n_pieces, _byte_letters()))
        return cls(level, _learn_words(lines, vocab_size))

    @property
    def vocab_size(self) -> int:
        """The number of ids, special ones included."""
        return _N_SPECIAL + len(self.pieces)

    def __len__(self) -> int:
        return self.vocab_size

    def __repr__(self) -> str:
        return f"Tokenizer(level={self.level!r}, vocab_size={self.vocab_size})"

    @cached_property
    def _ids(self) -> dict[str, int]:
        return {piece: i for i, piece in enumerate(self.pieces, start=_N_SPECIAL)}

    @cached_property
    def _rank(self) -> dict[tuple[str, str], int]:
        return {pair: place for place, pair in enumerate(self.merges)}

    @cached_property
    def _model(self) -> Any:
        return compiled(self._ids, self.merges)

    def encode_batch(self, texts: Iterable[str], *, dropout: float = 0.0, seed: int = 0) -> list[list[int]]:
        """The ids of many texts, without special ones around them.

        Args:
            dropout: at level "bpe", the probability of skipping a merge
                (BPE-dropout).
            seed: for the dropout; one seed for all texts.
        """
        lines = check_texts(texts)
        check_dropout(dropout, seed, self.level)
        if self.level == "word":
            plain = [x if x.isascii() and x.isprintable() else one_line(x) for x in lines]
            return [[self._ids.get(word, UNK) for word in x.split()] for x in plain]
        lines = [" " + line if line else "" for line in lines]
        if not dropout:
            return [encoding.ids for encoding in self._model.encode_batch(lines)]
        split = split_at_random(lines, self._model, self._rank, dropout, seed)
        return [[self._ids[piece] for piece in pieces] for pieces in split]

    def encode(self, text: str, *, dropout: float = 0.0, seed: int = 0) -> list[int]:
        """The ids of a text, without special ones; see ``encode_batch``."""
        return self.encode_batch([text], dropout=dropout, seed=seed)[0]

    @cached_property
    def _bytes(self) -> list[bytes]:
        letters = _byte_letters() if self.level == "bpe" else {}
        words = [bytes(map(letters.__getitem__, piece)) if letters else piece.encode() for piece in self.pieces]
        return [b"", b"", b"", _UNK_TEXT.encode(), *words]

    def decode(self, ids: Iterable[int] | Int[Tensor, " T"]) -> str:
        """The text of the ids up to the first EOS, without PAD and BOS.

        Words are joined by single spaces; subwords give back the text exactly, and
        bytes that aren't valid UTF-8 become U+FFFD.
        """
        pieces: list[bytes] = []
        for index in check_ids(ids, self.vocab_size):
            if index == EOS:
                break
            if index not in (PAD, BOS):
                pieces.append(self._bytes[index])
        if self.level == "word":
            return b" ".join(pieces).decode()
        return b"".join(pieces).decode("utf-8", "replace").removeprefix(" ")

    def tokens(self, text: str) -> list[str]:
        """The pieces of a text: ▁ is a space, \\xf0 a byte that isn't a whole character."""
        return [self._bytes[i].decode("utf-8", "backslashreplace").replace(" ", "▁") for i in self.encode(text)]

    def save(self, path: str | PathLike[str]) -> None:
        """Write the tokenizer to one JSON file, completely or not at all."""
        save_vocabulary(path, self.level, self.pieces, self.merges)

    @classmethod
    def load(cls, path: str | PathLike[str]) -> "Tokenizer":
        """Read a tokenizer that ``save`` wrote; a damaged file is refused."""
        return load_vocabulary(path, cls)
