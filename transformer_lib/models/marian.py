"""Translators of Opus-MT: a model and two tokenizers from one downloaded folder."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from torch import Tensor

from transformer_lib.data.tokenizer import BOS, EOS, PAD, UNK
from transformer_lib.models.convert import from_hf
from transformer_lib.models.families import marian_ids, read_settings, require, stated
from transformer_lib.models.transformer import Transformer


class MarianTokenizer:
    """Tokenizer of one side of an Opus-MT model: SentencePiece, and ids 0 to 3 as in this library."""

    level = "sentencepiece"

    def __init__(self, path: Path | str, vocab: Mapping[str, int], ids: Sequence[int]) -> None:
        from sentencepiece import SentencePieceProcessor

        self._cutter = SentencePieceProcessor(model_file=str(path))
        pieces = {theirs: piece for piece, theirs in vocab.items()}
        self._pieces = [pieces.get(theirs, "<unk>") for theirs in ids]
        self._ids = {piece: ours for ours, piece in enumerate(self._pieces)}

    @property
    def vocab_size(self) -> int:
        """Number of ids."""
        return len(self._pieces)

    def tokens(self, text: str) -> list[str]:
        """Pieces of a text; a language code such as ``>>deu<<`` at its beginning is one."""
        code = re.match(r"(>>.+?<<)?", text)[0]  # type: ignore[index]
        pieces: list[str] = self._cutter.encode(text[len(code) :], out_type=str)
        return [code, *pieces] if code else pieces

    def encode(self, text: str) -> list[int]:
        """Ids of a text, without beginning and end."""
        return [self._ids.get(piece, UNK) for piece in self.tokens(text)]

    def encode_batch(self, texts: Iterable[str]) -> list[list[int]]:
        """Ids of several texts."""
        return [self.encode(text) for text in texts]

    def decode(self, ids: Iterable[int] | Tensor) -> str:
        """Text of ids, up to the first EOS."""
        ids = [int(i) for i in ids]
        ids = ids[: ids.index(EOS)] if EOS in ids else ids
        pieces = [self._pieces[i] for i in ids if i not in (PAD, BOS)]
        return self._cutter.decode_pieces(pieces).replace("\u2581", " ").strip()


def load_marian(folder: Path | str) -> tuple[Transformer, MarianTokenizer, MarianTokenizer]:
    """Model and tokenizers, of source and target, from the folder of an Opus-MT model.

    Raises:
        ImportError: if ``sentencepiece`` is not installed.
        OSError, ValueError: if a file is missing, or the model cannot be converted.
    """
    folder = Path(folder)
    model: Any = from_hf(folder)  # a Transformer, if what is required below holds
    settings = read_settings(folder)
    require(settings, {"model_type": "marian"})
    source, target = (
        MarianTokenizer(folder / f"{name}.spm", settings["vocabularies"][side], marian_ids(settings, side))
        for side, name in enumerate(("source", "target"))
    )
    return model, source, target


def search_options(folder: Path | str) -> dict[str, Any]:
    """The beams, limits and penalties that a folder states, as options of our search.

    Their lengths count the token that begins a translation, and the last may have to be EOS. Their scores are means.

    Raises:
        ValueError: for a way to search that is not ours.
    """
    theirs = stated(read_settings(Path(folder)))
    none = "forced_bos_token_id", "suppress_tokens", "begin_suppress_tokens"
    ours = {"do_sample": False, "no_repeat_ngram_size": 0, "num_beam_groups": 1, "min_new_tokens": 0}
    require(theirs, ours | {"bad_words_ids": [[theirs.get("pad_token_id")]]} | dict.fromkeys(none))
    theirs = {name: value for name, value in theirs.items() if value is not None}
    options = {"beam_size": theirs.get("num_beams", 1), "normalization": "mean"}
    options |= {name: theirs.get(name, 1.0) for name in ("length_penalty", "repetition_penalty")}
    options["min_length"] = max(0, theirs.get("min_length", 0) - 1)
    longest = theirs.get("max_new_tokens", theirs.get("max_length", 0) - 1)
    if longest > 0:
        options["max_length"] = longest - ("forced_eos_token_id" in theirs)
    return options
