"""Corpora of any size: read as a stream, tokenised once, and mapped from disk by every process."""

import json
import random
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, islice
from pathlib import Path
from typing import Any

import numpy as np
from tqdm import tqdm

from transformer_lib.data.batching import Example, encode_from
from transformer_lib.data.files import check_empty, checksum
from transformer_lib.data.text import one_line
from transformer_lib.data.tokenizer import Tokenizer

__all__ = ["TokenCorpus", "read_pairs", "sample_pairs", "tokenize_corpus"]

CHUNK = 10_000
LONGEST = 20_000  # letters of a line


class TokenCorpus(Sequence[Example]):
    """Encoded sentence pairs in a folder, mapped into memory; made by ``tokenize_corpus``.

    Raises:
        ValueError: if the folder holds no complete corpus, or a file is not the one that was written.
    """

    def __init__(self, folder: Path | str) -> None:
        self.folder = folder = Path(folder)
        if not (folder / "corpus.json").is_file():
            raise ValueError(f"{folder} holds no tokenised corpus: there is no corpus.json")
        try:
            self._open(json.loads((folder / "corpus.json").read_bytes()))
        except (ValueError, TypeError, LookupError, AttributeError, RecursionError, FileNotFoundError) as error:
            raise ValueError(f"{folder} is damaged ({error}): tokenise the corpus again, in another folder") from error

    def _open(self, notes: dict[str, Any]) -> None:
        sums = notes["sha256"]  # of each file; in version 0.2 of both together, which cannot be computed again
        if not isinstance(sums, str) and (wrong := [one for one in sums if checksum(self.folder / one) != sums[one]]):
            raise ValueError(f"{wrong[0]} is not the one that was written")
        self.fingerprint: str = sums if isinstance(sums, str) else " ".join(sums.values())
        self.joined: int = notes.get("joined", 0)
        self.tokens = np.memmap(self.folder / "tokens.bin", dtype=notes["dtype"], mode="r")
        self.lengths = np.memmap(self.folder / "lengths.bin", dtype=np.uint32, mode="r").reshape(-1, 2)
        self.ends = self.lengths.sum(axis=1, dtype=np.int64).cumsum()
        if len(self.ends) != notes["pairs"] or self.ends[-1] != len(self.tokens):
            raise ValueError(f"{len(self.ends)} pairs, not {notes['pairs']}, or another number of tokens")

    def __reduce__(self) -> Any:  # a map would be copied into every worker
        return type(self), (self.folder,)

    def __len__(self) -> int:
        return len(self.ends)

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            return [self[i] for i in range(*index.indices(len(self)))]
        source, target = self.lengths[index]
        start = self.ends[index] - source - target
        row = self.tokens[start : self.ends[index]].astype(np.int64)
        return row[:source], row[source:]


def join_pairs(examples: Sequence[Example], share: float, rng: random.Random) -> list[Example]:
    """Lines of two examples each, drawn at random; a share of 0.1 makes one line for every ten examples."""
    chosen = [rng.choices(examples, k=2) for _ in range(round(share * len(examples)))]
    return [([*a[:-1], *c], [*b[:-1], *d[1:]]) for (a, b), (c, d) in chosen]


def encoded(
    pairs: Iterable[tuple[str, str]], tokenizers: Sequence[Tokenizer], longest: int | None, joined: float, seed: int
) -> Iterator[tuple[list[Example], list[Example]]]:
    """The examples of a stream of pairs, some thousands at a time, and the joined ones to add to them."""

    def fitting(rows: list[Example]) -> list[Example]:
        return [row for row in rows if longest is None or max(map(len, row)) <= longest]

    rng, stream, first = random.Random(seed), iter(pairs), 0
    while chunk := list(islice(stream, CHUNK)):
        rows, first = fitting(encode_from(first, chunk, *tokenizers)), first + len(chunk)
        yield rows, fitting(join_pairs(rows, joined, rng))


def tokenize_corpus(
    pairs: Iterable[tuple[str, str]],
    source_tokenizer: Tokenizer,
    target_tokenizer: Tokenizer,
    folder: Path | str,
    *,
    max_length: int | None = None,
    joined: float = 0.0,
    seed: int = 0,
    progress_bar: bool = False,
) -> TokenCorpus:
    """Encode a stream of pairs into a folder; if the folder is complete already, just open it.

    Args:
        max_length: leave out pairs with more tokens on their longer side.
        joined: lines of two pairs to add, as a share of the pairs; the seed decides which.

    Raises:
        ValueError: if no pair is left, or the folder holds anything else.
    """
    folder, tokenizers = Path(folder), (source_tokenizer, target_tokenizer)
    if (folder / "corpus.json").is_file():
        return TokenCorpus(folder)
    check_empty(folder)
    folder = folder.resolve()  # a link stays: what it leads to is filled
    folder.parent.mkdir(parents=True, exist_ok=True)
    dtype = np.uint16 if max(one.vocab_size for one in tokenizers) <= 2**16 else np.uint32
    count = added = 0
    place = tempfile.TemporaryDirectory(prefix=f"{folder.name}.", suffix=".part", dir=folder.parent)
    with place, tqdm(desc="tokenising", unit=" pairs", disable=not progress_bar) as bar:
        part = Path(place.name, "corpus")
        part.mkdir()
        with (part / "tokens.bin").open("wb") as tokens, (part / "lengths.bin").open("wb") as lengths:
            for rows, more in encoded(pairs, tokenizers, max_length, joined, seed):
                sides = [side for row in (*rows, *more) for side in row]
                np.fromiter(chain.from_iterable(sides), dtype).tofile(tokens)
                np.fromiter(map(len, sides), np.uint32).tofile(lengths)
                count, added = count + len(rows) + len(more), added + len(more)
                bar.update(len(rows))
        if not count:
            most = "" if max_length is None else f" of at most {max_length} tokens"
            raise ValueError(f"there are no pairs{most} to train on")
        sums = {name: checksum(part / name) for name in ("tokens.bin", "lengths.bin")}
        notes = {"pairs": count, "joined": added, "dtype": np.dtype(dtype).name, "sha256": sums}
        (part / "corpus.json").write_text(json.dumps(notes))
        if folder.exists():
            folder.rmdir()
        part.replace(folder)
    return TokenCorpus(folder)


def read_pairs(
    name: str | Path, skipped: list[int] | None = None, *, source: str | None = None, target: str | None = None
) -> Iterator[tuple[str, str]]:
    """A stream of the pairs in a tab-separated file, or in ``hf:NAME``, a data set of Hugging Face.

    Files as Tatoeba and Anki publish them are read, too: what they add to the two texts is left out.

    Args:
        name: a path, or ``hf:NAME`` or ``hf:NAME:CONFIGURATION``.
        skipped: gets the numbers of lines that are no pair; None to refuse them.
        source: the language to translate from, by which the texts of a data set are named.
        target: the other one.

    Raises:
        ValueError: for a line that is no pair. Rows of a data set that lack one of the two texts are left out.
    """
    if str(name).startswith("hf:"):
        yield from _published_pairs(str(name)[3:], source, target)
        return
    with open(name, "rb") as file:
        for number, line in enumerate(file, start=1):
            if not line.strip():
                continue
            try:
                pair = pair_of(line)
            except ValueError as error:
                if skipped is None:
                    advice = "repair it, or skip such lines (--skip-bad; skipped=[] in Python)"
                    raise ValueError(f"{name}, line {number}: {error}; {advice}") from error
                skipped.append(number)
            else:
                yield pair


def pair_of(line: bytes) -> tuple[str, str]:
    """The two texts of a line.

    Raises:
        ValueError: if it is no pair.
    """
    try:
        text = line.decode()
    except UnicodeDecodeError:
        raise ValueError("this is not UTF-8 text (is it another encoding, or a packed file?)") from None
    if len(text) > LONGEST:
        raise ValueError(f"{len(text):,} letters are too many")
    columns = two_texts([one_line(column) for column in text.split("\t")])
    if len(columns) != 2 or not all(columns) or "\0" in text:
        advice = f", {len(columns)} columns: keep two (cut -f1,2)" if len(columns) > 2 else ""
        raise ValueError(f"expected two texts with one tab in between, got {text[:60]!r}{advice}")
    return columns[0], columns[1]


def two_texts(columns: list[str]) -> list[str]:
    """The columns of a line, without the licence of an Anki file and the numbers of a Tatoeba file."""
    if len(columns) == 4 and columns[0].isdigit() and columns[2].isdigit():
        return columns[1::2]
    return [*columns[:2], *(one for one in columns[2:] if one and not one.startswith(("CC-BY", "CC0")))]


def _published_pairs(name: str, source: str | None, target: str | None) -> Iterator[tuple[str, str]]:
    """The pairs of a Hugging Face data set, which is downloaded once."""
    from datasets import load_dataset

    for row in load_dataset(*name.split(":"), split="train"):
        texts = row.get("translation", row)
        pair = [texts.get(language, 0) for language in (source, target)]  # 0: there is no such column
        if not all(isinstance(text, str | None) for text in pair):
            named = f"{source} and {target}: choose two as source and target"
            raise ValueError(f"hf:{name} has {', '.join(texts)}, not texts in {named}")
        first, second = (one_line(text or "") for text in pair)
        if first and second:
            yield first, second


def sample_pairs(pairs: Iterable[tuple[str, str]], size: int, seed: int = 0) -> list[tuple[str, str]]:
    """A random sample of a stream of pairs, for example to train a vocabulary on.

    Source: Vitter (1985), algorithm R.
    """
    rng, sample = random.Random(seed), []
    for i, pair in enumerate(pairs):
        if i < size:
            sample.append(pair)
        elif (j := rng.randrange(i + 1)) < size:
            sample[j] = pair
    return sample
