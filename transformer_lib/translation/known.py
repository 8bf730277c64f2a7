"""What a translator has read in training, and the signs by which one of its translations is to be doubted.

The page has the same rule in ``viz/known.js``; a test compares them.
"""

import json
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import groupby, islice, pairwise
from pathlib import Path
from typing import Any

import torch
from torch.nn.utils.rnn import pad_sequence

from transformer_lib.data.files import write_json
from transformer_lib.data.text import one_line
from transformer_lib.decoding.beam_search import beam_search

FILE = "known.json"
LEAST = {"source": 3, "target": 2}  # how often a word was seen, to be known
WRONG, UNSURE = 3, 12  # of 100 validation sentences: those of which the model is least sure
SURE = -0.1  # who gives its tokens nine in ten is never called unsure
MOST_PAIRS, SENTENCES = 1_000_000, 400
CERTAIN = ("no words", "unknown", "language", "least sure", "invented", "repeated")
LISTED, LONGEST = 5, 40  # words in a message, and their letters
_APOSTROPHE = re.compile(r"(what|that|where|who|how|there|here|let|he|she|it)(s)|(\w+n)(t)|(i)(m|ve)")


class DoubtWarning(UserWarning):
    """A translation is probably wrong, or should be looked at twice."""


class UnknownWordWarning(DoubtWarning):
    """A sentence holds words that the model does not know."""


@dataclass(frozen=True)
class Doubt:
    """Why a translation is to be doubted, in one text for people."""

    certain: bool
    """It is probably wrong; else one should look twice."""
    signs: tuple[str, ...]
    text: str
    meant: str = ""
    """The sentence without the slips that it seems to have."""


@dataclass(frozen=True)
class Known:
    """What a translator has read, and how sure it usually is: ``known.json`` in its folder."""

    source: Mapping[str, int]  # words, with their rank: the most frequent is 0
    target: frozenset[str]
    wrong: float | None = None  # mean log-probability of a token: below it, a translation is probably wrong
    unsure: float | None = None  # below it, one should look twice

    @cached_property
    def letters(self) -> list[str]:
        """The letters of its words, which a slip may have exchanged."""
        return sorted({letter for word in self.source for letter in word})

    @classmethod
    def load(cls, path: Path) -> "Known":
        """What a file says.

        Raises:
            ValueError: for a file that is not of this kind.
        """
        try:
            found = json.loads(path.read_text(encoding="utf-8"))
            source = {word: rank for rank, word in enumerate(found["source"].split())}
            return cls(source, frozenset(found["target"].split()), found["wrong"], found["unsure"])
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise ValueError(f"{path} does not say what a translator knows ({error!r})") from error

    def save(self, path: Path) -> None:
        """Write it for ``load``."""
        source, target = sorted(self.source, key=self.source.__getitem__), sorted(self.target)
        limits = {"wrong": self.wrong, "unsure": self.unsure}
        write_json(path, {"source": " ".join(source), "target": " ".join(target)} | limits)


def words(text: str) -> list[str]:
    """The words of a text: runs of letters, in lower case."""
    return _words(one_line(text).lower())


def _words(line: str) -> list[str]:
    """The words of a line as they stand there."""
    found = list[str]()
    for is_word, part in groupby(line, str.isalpha):
        if is_word:
            found.append("".join(part))
    return found


def doubt(known: Known, text: str, translation: str = "", certainty: float = 0.0) -> Doubt | None:
    """Why a translation is to be doubted, or None.

    Args:
        translation: the empty string, for what can be said of the sentence alone.
        certainty: the mean log-probability of its tokens.
    """
    typed = words(text)
    strange = [word for word in typed if word not in known.source]
    fixes, meant = corrections(text, known) if strange else ([], "")
    told: dict[str, str] = {}
    names = _listed(strange)
    if not typed:
        told["no words"] = "There is no word in this."
    elif 2 * len(strange) >= len(typed):
        told["unknown"] = f"The model does not know {names}."
        if 2 * sum(word in known.target for word in typed) > len(typed):
            told["language"] = "This looks like the language that it translates into."
        if len(fixes) < len(strange):
            fixes, meant = [], ""
    else:
        told |= _signs(known, text, typed, one_line(translation), certainty)
        if strange:
            told["rare"] = f"The model does not know {names}, so it guesses."
    if not told:
        return None
    certain = any(sign in CERTAIN for sign in told)
    start = "This is probably wrong." if certain else "Look twice."
    more = [f"Did you mean “{', '.join(fixes)}”?"] if fixes else []
    return Doubt(certain, tuple(told), " ".join([start, *told.values(), *more]), meant)


def _signs(known: Known, text: str, typed: list[str], translation: str, certainty: float) -> dict[str, str]:
    """The signs that a translation has, and what to say about each."""
    told = dict[str, str]()
    for sign, limit, share in (("least sure", known.wrong, WRONG), ("less sure", known.unsure, UNSURE)):
        if not told and limit is not None and certainty < limit:
            told[sign] = f"The model is less sure of it than of {100 - share} in 100 sentences of its kind."
    written = _words(translation)
    invented = [word for word in written if word.lower() not in known.target and word.lower() not in typed]
    if invented:
        told["invented"] = f"It has never read {_listed(invented)}."
    several = re.search("[.!?…] ", one_line(text))  # sentences, which may begin alike
    said = re.split("[.!?…] ", translation.lower()) if several else [translation.lower()]
    if (twice := next(filter(None, map(_twice, map(_words, said))), "")) and not _twice(typed):
        told["repeated"] = f"It says “{_cut(twice)}” twice."
    return told


def _listed(some: list[str]) -> str:
    """A few words for a message."""
    return ", ".join(map(_cut, [*dict.fromkeys(some)][:LISTED])) if some else ""


def _cut(text: str) -> str:
    return text if len(text) <= LONGEST else text[:LONGEST] + "…"


def _twice(some: list[str]) -> str:
    """The first two neighbouring words that stand there again."""
    seen = set[tuple[str, str]]()
    for pair in pairwise(some):
        if pair in seen:
            return " ".join(pair)
        seen.add(pair)
    return ""


# ---------------------------------------------------------------- did you mean


def corrections(text: str, known: Known) -> tuple[list[str], str]:
    """Known words for the unknown ones that are one slip away from them, and the text with these; or nothing.

    A word with a capital inside a sentence is taken for a name.
    """
    text = one_line(text)
    parts = [("".join(part), is_word) for is_word, part in groupby(text, str.isalpha)]
    fixes, first = list[str](), True
    shout = text == text.upper()
    for place, (part, is_word) in enumerate(parts):
        if not is_word:
            first = first or part.strip()[:1] in tuple(".!?…")
            continue
        name = not first and not shout and part != part.lower()
        first = False
        if part.lower() in known.source or name:
            continue
        if found := near(part.lower(), known):
            fixes.append(found)
            capital = found.upper() if shout else found[:1].upper() + found[1:]
            parts[place] = (found if part == part.lower() else capital, True)
    return fixes, "".join(part for part, _ in parts) if fixes else ""


def near(word: str, known: Known) -> str:
    """The known word that somebody meant who made one slip, or the empty string.

    Tried in turn: a missing apostrophe, two letters swapped, one too few, one too many, one exchanged. Short words
    have too many neighbours for the last three, and words of more than 40 letters too many for all but the first.
    """
    rank = known.source
    if cut := _APOSTROPHE.fullmatch(word):
        head, tail = filter(None, cut.groups())
        if head in rank and tail in rank:
            return f"{head}'{tail}"
    n = len(word)
    letters = known.letters if n > 3 else []
    tries: list[Iterable[str]] = [
        (word[:i] + word[i + 1] + word[i] + word[i + 2 :] for i in range(n - 1)),
        (word[:i] + letter + word[i:] for i in range(n + 1) for letter in letters),
        (word[:i] + word[i + 1 :] for i in range(n if letters else 0)),
        (word[:i] + letter + word[i + 1 :] for i in range(n) for letter in letters),
    ]
    for some in tries if 2 < n <= LONGEST else ():
        if found := [one for one in some if one in rank]:
            return min(found, key=rank.__getitem__)
    return ""


# ---------------------------------------------------------------- measured once


def certainty(translator: Any, texts: Sequence[str]) -> list[float]:
    """The mean log-probability of a token in the best translation of each text."""
    special, encode = translator.special, translator.source_tokenizer.encode
    rows = [torch.tensor([*encode(translator.prepare(text)), *special.eos[:1]]) for text in texts]
    sure: list[float] = []
    for start in range(0, len(rows), 50):
        batch = pad_sequence(rows[start : start + 50], True, special.fill)
        found = beam_search(translator.model, batch.to(translator.device), translator.decoding)
        sure += (found.log_probs[:, 0] / (found.tokens[:, 0] != special.fill).sum(-1)).tolist()
    return sure


def learn(translator: Any, pairs: Iterable[tuple[str, str]], validation: Sequence[str]) -> Known:
    """What a translator knows, from the pairs of its training, and from sentences that it was not trained on.

    Fewer than 100 of those give no limits.
    """
    seen = Counter[str](), Counter[str]()
    for pair in islice(pairs, MOST_PAIRS):
        for count, text in zip(seen, pair, strict=True):
            count.update(words(text))
    source = [word for word, n in sorted(seen[0].items(), key=lambda one: (-one[1], one[0])) if n >= LEAST["source"]]
    target = frozenset(word for word, n in seen[1].items() if n >= LEAST["target"])
    limits: list[float] = []
    if len(validation) >= 100:
        sure = sorted(certainty(translator, validation[:SENTENCES]))
        limits = [min(SURE, round(sure[len(sure) * share // 100], 3)) for share in (WRONG, UNSURE)]
    return Known({word: rank for rank, word in enumerate(source)}, target, *limits)
