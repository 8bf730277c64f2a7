"""Corpora of any size: read as a stream, tokenised once, and mapped from disk by every process.

Chapter: Scaling out.
"""

import hashlib
import json
import random
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from pathlib import Path

import numpy as np
from tqdm import tqdm

from transformer_lib.data.batching import Example, encode_pairs
from transformer_lib.data.files import check_empty
from transformer_lib.data.tokenizer import Tokenizer

__all__ = ["TokenCorpus", "read_pairs", "sample_pairs", "tokenize_corpus"]

CHUNK = 10_000
LONGEST = 20_000  # letters of a line


class TokenCorpus(Sequence[Example]):
    """Encoded sentence pairs in a folder, mapped into memory; made by ``tokenize_corpus``.

    Raises:
        ValueError: if the folder holds no complete corpus.
    """

    def __init__(self, folder: Path | str) -> None:
        folder = Path(folder)
        if not (folder / "corpus.json").is_file():
            raise ValueError(f"{folder} holds no tokenised corpus: there is no corpus.json")
        notes = json.loads((folder / "corpus.json").read_bytes())
        self.fingerprint: str = notes["sha256"]
        self.joined: int = notes.get("joined", 0)
        self.tokens = np.memmap(folder / "tokens.bin", dtype=notes["dtype"], mode="r")
        self.lengths = np.memmap(folder / "lengths.bin", dtype=np.uint32, mode="r").reshape(-1, 2)
        self.ends = self.lengths.sum(axis=1, dtype=np.int64).cumsum()
        if len(self.ends) != notes["pairs"] or self.ends[-1] != len(self.tokens):
            raise ValueError(f"{folder} is damaged: tokenise the corpus again, in another folder")

    def __len__(self) -> int:
        return len(self.ends)

    def __getitem__(self, index: int) -> Example:  # type: ignore[override]
        source, target = self.lengths[index]
        start = self.ends[index] - source - target
        row = self.tokens[start : self.ends[index]].astype(np.int64)
        return row[:source], row[source:]


def join_pairs(examples: Sequence[Example], share: float, rng: random.Random) -> list[Example]:
    """Lines of two examples each, drawn at random; a share of 0.1 makes one line for every ten examples."""
    chosen = [rng.choices(examples, k=2) for _ in range(round(share * len(examples)))]
    return [([*a[:-1], *c], [*b[:-1], *d[1:]]) for (a, b), (c, d) in chosen]


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
    folder = Path(folder)
    if (folder / "corpus.json").is_file():
        return TokenCorpus(folder)
    check_empty(folder)
    size = max(source_tokenizer.vocab_size, target_tokenizer.vocab_size)
    dtype, digest, count = np.uint16 if size <= 2**16 else np.uint32, hashlib.sha256(), 0
    rng, added = random.Random(seed), 0
    part, stream = folder.with_name(f"{folder.name}.part"), iter(pairs)
    part.mkdir(parents=True, exist_ok=True)
    bar = tqdm(desc="tokenising", unit=" pairs", disable=not progress_bar)
    with (part / "tokens.bin").open("wb") as tokens, (part / "lengths.bin").open("wb") as lengths, bar:
        while chunk := list(islice(stream, CHUNK)):
            rows = encode_pairs(chunk, source_tokenizer, target_tokenizer)
            rows = [row for row in rows if max_length is None or max(map(len, row)) <= max_length]
            more = join_pairs(rows, joined, rng)
            more = [row for row in more if max_length is None or max(map(len, row)) <= max_length]
            rows, added = rows + more, added + len(more)
            ids = np.array([i for row in rows for side in row for i in side], dtype=dtype)
            sizes = np.array([len(side) for row in rows for side in row], dtype=np.uint32)
            for file, numbers in ((tokens, ids), (lengths, sizes)):
                digest.update(numbers.tobytes())
                file.write(numbers.tobytes())
            count += len(rows)
            bar.update(len(chunk))
    if not count:
        raise ValueError(f"there are no pairs of at most {max_length} tokens to train on")
    notes = {"pairs": count, "joined": added, "dtype": np.dtype(dtype).name, "sha256": digest.hexdigest()}
    (part / "corpus.json").write_text(json.dumps(notes))
    if folder.exists():
        folder.rmdir()
    part.replace(folder)
    return TokenCorpus(folder)


def read_pairs(name: str | Path, skipped: list[int] | None = None) -> Iterator[tuple[str, str]]:
    """A stream of the pairs in a tab-separated file, or in ``hf:NAME``, a data set of Hugging Face.

    Args:
        name: a path, or ``hf:NAME`` or ``hf:NAME:CONFIGURATION``.
        skipped: gets the numbers of lines that are no pair; None to refuse them.

    Raises:
        ValueError: for a line or row that is no pair.
    """
    if str(name).startswith("hf:"):
        yield from _published_pairs(str(name)[3:])
        return
    with open(name, "rb") as file:
        for number, line in enumerate(file, start=1):
            try:
                text = line.decode("utf-8-sig" if number == 1 else "utf-8")
                columns = [" ".join(column.split()) for column in text.split("\t")]
                if len(columns) == 2 and all(columns) and "\0" not in text and len(text) <= LONGEST:
                    yield columns[0], columns[1]
                    continue
                reason = f"expected two texts with one tab in between, got {text[:60]!r}"
                reason = f"{len(text):,} letters are too many" if len(text) > LONGEST else reason
            except UnicodeDecodeError as error:
                reason = f"it is not UTF-8 text ({error})"
            if skipped is not None and line.strip():
                skipped.append(number)
            elif line.strip():
                raise ValueError(f"{name}, line {number}: {reason}; repair it, or skip such lines with --skip-bad")


def _published_pairs(name: str) -> Iterator[tuple[str, str]]:
    """The pairs of a Hugging Face data set, which is downloaded once."""
    try:
        from datasets import load_dataset
    except ImportError as error:
        raise ValueError(f"hf:{name} needs the package datasets: pip install datasets") from error
    for row in load_dataset(*name.split(":"), split="train"):
        texts = [text for text in row.get("translation", row).values() if isinstance(text, str)]
        if len(texts) != 2:
            raise ValueError(f"hf:{name} has rows with {', '.join(row)}: expected two texts, or a translation")
        if all(map(str.strip, texts)):
            yield " ".join(texts[0].split()), " ".join(texts[1].split())


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
