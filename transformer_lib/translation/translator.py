"""A trained model with its tokenizers: sentences in, sentences out, and the folder that both are kept in."""

import hashlib
import json
import math
import re
import warnings
from collections.abc import Iterator, Sequence
from copy import deepcopy
from dataclasses import asdict, dataclass, replace
from difflib import get_close_matches
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Literal, get_args

import torch
from jaxtyping import Float
from pydantic import Field, TypeAdapter, ValidationError
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from transformer_lib.data.files import check_empty, checksum, write_json
from transformer_lib.data.text import check_texts, one_line
from transformer_lib.data.tokenizer import UNK, Tokenizer
from transformer_lib.decoding.beam_search import SearchConfig, beam_search
from transformer_lib.decoding.greedy import generate
from transformer_lib.models.multi_head import MultiHeadAttention, record_attention
from transformer_lib.models.registry import build_model, model_name
from transformer_lib.models.seq2seq import SPECIAL, eval_mode, plain_names, special_ids, unwrapped, vocab_size
from transformer_lib.settings import settings
from transformer_lib.training.checkpoints import load_tensors, load_weights, save_tensors, to_eight_bits
from transformer_lib.translation.known import FILE, Doubt, DoubtWarning, Known, UnknownWordWarning, doubt

SHIPPED = Path(__file__).parents[1] / "pretrained"
Language = Annotated[str, Field(pattern=r"^[A-Za-z]{2,3}([-_][A-Za-z0-9]+)*$")]
Precision = Literal["float32", "float16", "int8"]  # of stored weights
_SENTENCE = re.compile(r"(?:^|(?<=[.!?…] ))[^\W\d_]")  # its first letter
_STOPS = ".!?…" + "".join(filter(str.isspace, map(chr, range(0x3001))))


# ---------------------------------------------------------------- text


@settings
class TextPreparation:
    """Changes to a text before a model reads it, undone after it has written."""

    kind: Literal["raw", "captions"] = "raw"
    """``raw``: composed letters on one line; ``captions``: also without capitals and full stops, which come back."""
    source: Language | None = None
    """Language to translate from, such as ``en``."""
    target: Language | None = None
    """Language to translate into."""
    capitals: Literal["lower", "keep"] = "lower"
    """``lower``: a line of several words in nothing but capitals is read as a sentence in lower case."""

    def prepare(self, text: str, tokenizer: Any = None) -> str:
        """The text as the model was trained to read it."""
        text = one_line(text)
        if self.capitals == "lower" and " " in text and text.isupper():
            text = _SENTENCE.sub(lambda first: first[0].upper(), text.lower())
        if self.kind == "raw" or tokenizer is None:
            return text
        words = text.rstrip(_STOPS).replace(",", " , ").split()
        lower = [word.lower() for word in words]
        ids = tokenizer.encode_batch([*words, *lower])
        strange = [(UNK in one, len(one)) for one in ids]  # unknown, or in more pieces
        pairs = zip(words, lower, strange, strange[len(words) :], strict=False)
        return " ".join([low if less < much else word for word, low, much, less in pairs])

    def restore(self, written: str, text: str, prepared: str, *, whole: bool = True) -> str:
        """The translation as people write it; ``whole`` is False if more words are to come."""
        text = one_line(text)
        if self.kind == "raw" or text == prepared:
            return written
        stop = text[len(text.rstrip(_STOPS)) :].strip() if whole else ""
        if text[:1].isupper():
            written = written[:1].upper() + written[1:]
        return written.replace(" ,", ",") + stop


def unknown_words(text: str, tokenizer: Any) -> tuple[str, ...]:
    """The words of a text that the model can only read as "unknown"."""
    words = list(dict.fromkeys(text.split()))
    return tuple(word for word, ids in zip(words, tokenizer.encode_batch(words), strict=True) if UNK in ids)


def shown(words: Sequence[str], most: int = 10) -> str:
    """A few words for a message: cut, and without characters that a terminal would obey."""
    cut = [word if len(word) <= 40 else word[:40] + "…" for word in words[:most]]
    if len(words) > most:
        cut.append("…")
    return ", ".join(word if word.isprintable() else repr(word) for word in cut)


# ---------------------------------------------------------------- the folder


@settings
class ModelEntry:
    """The registered name of a model, and its configuration."""

    name: str
    config: dict[str, Any]


@settings
class TranslatorConfig:
    """The content of ``config.json``, of runs, exported and shipped translators alike."""

    model: ModelEntry
    tokenizers: Annotated[dict[Literal["source", "target"], str], Field(min_length=2)]
    """File names of the two vocabularies."""
    text: TextPreparation = TextPreparation()
    decoding: SearchConfig = SearchConfig()
    """The search where a caller asks for nothing else."""
    sha256: dict[str, str] = Field(default_factory=dict)
    """Checksums of the vocabularies' files."""
    options: dict[str, Any] | None = None
    """The options that the training was started with."""
    training: dict[str, Any] | None = None
    """The configuration of the trainer."""
    data: dict[str, Any] | None = None
    """Name and fingerprint of the corpus."""
    notes: dict[str, Any] = Field(default_factory=dict)
    """Anything else worth knowing."""
    format: Literal["attention-step-by-step 2"] = "attention-step-by-step 2"

    def tokenizer(self, folder: Path, side: Literal["source", "target"]) -> Tokenizer:
        """One of the vocabularies, if it is the one that was saved with the model."""
        path = folder / Path(self.tokenizers[side]).name
        if not path.is_file():
            raise ValueError(f"{folder} has no vocabulary {path.name} of the {side} language")
        if self.sha256.get(path.name, checksum(path)) != checksum(path):
            raise ValueError(f"{path} is not the vocabulary that was saved with the model")
        return Tokenizer.load(path)

    def identity(self) -> str:
        """A checksum of what belongs to the weights: the model, its vocabularies, the languages and their text."""
        text = [self.text.kind, self.text.source, self.text.target]
        parts = [self.model.name, self.model.config, self.tokenizers, self.sha256, text]
        return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()

    def build(self, where: Path) -> Any:
        """The model, before its weights are loaded."""
        try:
            return build_model(self.model.name, self.model.config)
        except (ValueError, TypeError) as error:
            raise ValueError(f"{where}: {error}") from error


def pretrained_names() -> list[str]:
    """The translators that come with the library; their cards tell the terms of their data.

    >>> "captions-en-de" in pretrained_names()
    True
    """
    return sorted(path.parent.name for path in SHIPPED.glob("*/config.json"))


def find_pretrained(name_or_path: str | Path) -> Path:
    """The folder of a run or a saved translator, or else of one that comes with the library.

    Raises:
        ValueError: if there is neither; the message lists the names.
    """
    folder = Path(name_or_path)
    if (folder / "config.json").is_file():
        return folder
    if str(folder) in pretrained_names():
        return SHIPPED / folder
    names = pretrained_names()
    meant = get_close_matches(str(folder), names, 1, 0.7)
    asked = f"; did you mean {meant[0]}?" if meant else ""
    raise ValueError(f"{folder} holds no run, nor is it one of {', '.join(names)}{asked}")


def read_config(name_or_path: str | Path) -> TranslatorConfig:
    """The content of ``config.json``: the one place that reads it.

    Raises:
        ValueError: if there is none, or it is not the configuration of a translator.
    """
    path = find_pretrained(name_or_path) / "config.json"
    try:
        return TypeAdapter(TranslatorConfig).validate_json(path.read_bytes())
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(map(str, first["loc"])) or "the file"
        raise ValueError(f"{path} is not the configuration of a translator ({place}: {first['msg']})") from error


def weights_file(folder: Path, weights: str | None = None) -> Path:
    """The file of the named weights, or else of the first of ``weights``, ``averaged`` and ``best``.

    Raises:
        ValueError: if there is no such file, and for the checkpoint that only serves to go on.
    """
    if weights == "last":
        raise ValueError(f"{folder / 'last.safetensors'} is for going on: choose averaged, best or epoch-N as weights")
    names = [weights] if weights else ["weights", "averaged", "best"]
    for name in names:
        if (path := folder / f"{name}.safetensors").is_file():
            return path
    raise ValueError(f"{folder} has no weights: there is no file {' or '.join(names)}.safetensors")


# ---------------------------------------------------------------- the translator


@dataclass(frozen=True)
class Translation:
    """One way to say a sentence in the other language."""

    text: str
    log_probability: float = 0.0  # of all its tokens together, in nats
    score: float = 0.0  # the log-probability over the length penalty
    unknown: tuple[str, ...] = ()  # words of the source that the model can only read as "unknown"
    doubt: Doubt | None = None  # None, too, where nothing says what the translator knows


@dataclass(frozen=True)
class AttentionMap:
    """Weights of a model while it wrote, or was made to write, a sentence; closing tokens are included."""

    source: list[str]
    target: list[str]  # token t was predicted with row t
    cross: Float[Tensor, "L H T S"]
    encoder: Float[Tensor, "E H S S"] | None = None
    decoder: Float[Tensor, "L H T T"] | None = None


class Translator:
    """A trained model with its tokenizers: sentences in, sentences out. Threads may share one.

    >>> translator = Translator.from_pretrained("captions-en-de", device="cpu")
    >>> translator("The dog is sleeping.")
    'Der Hund schläft.'
    >>> translator.translate(["The dog is sleeping.", "A cat is sleeping."])
    ['Der Hund schläft.', 'Eine Katze schläft.']

    Args:
        text: how text is prepared, and the languages.
        decoding: the search where a caller asks for nothing else.
        known: what it has read in training, to say which translations are to be doubted.
    """

    def __init__(
        self,
        model: torch.nn.Module,
        source_tokenizer: Any,
        target_tokenizer: Any,
        *,
        text: TextPreparation | None = None,
        decoding: SearchConfig | None = None,
        known: Known | None = None,
    ) -> None:
        if not hasattr(model, "step"):
            raise TypeError(f"model is {type(model).__name__}, which has no method step")
        for side, tokenizer in (("source", source_tokenizer), ("target", target_tokenizer)):
            n, size = tokenizer.vocab_size, vocab_size(model, side)
            if size not in (None, n):
                raise ValueError(f"the {side} tokenizer has {n} ids, the model {size}")
            if isinstance(tokenizer, Tokenizer) and special_ids(model) != SPECIAL:  # it would take words for padding
                raise ValueError(f"the {side} tokenizer has {SPECIAL}, the model {special_ids(model)}")
        self.model, self.special, self.text = unwrapped(model), special_ids(model), text or TextPreparation()
        self.decoding, self.known = decoding or SearchConfig(), known
        if problem := self._too_short(self.decoding, math.inf):
            raise ValueError(f"decoding has {problem}")
        self.source_tokenizer, self.target_tokenizer = source_tokenizer, target_tokenizer

    @classmethod
    def from_pretrained(
        cls, name_or_path: str | Path, *, device: str = "auto", weights: str | None = None
    ) -> "Translator":
        """A translator that comes with the library, was saved, or is a run's; in single precision.

        Args:
            name_or_path: one of ``pretrained_names()``, or a folder, which comes first.
            weights: ``averaged``, ``best``, ``epoch-N``; see ``weights_file``.

        Raises:
            ValueError: if the folder holds no translator, or one that cannot be read.
        """
        folder = find_pretrained(name_or_path)
        config, path = read_config(folder), weights_file(folder, weights)
        tensors, notes = load_tensors(path)
        if notes.get("translator") not in (None, config.identity()):  # version 0.2 did not note it
            raise ValueError(f"{folder}/config.json is not the one that {path.name} was saved with")
        tokenizers = [config.tokenizer(folder, side) for side in ("source", "target")]
        model = config.build(folder / "config.json")
        load_weights(model, tensors, path)
        model.to(pick_device(device)).eval()
        path = folder / FILE
        known = Known.load(path) if path.is_file() else None
        return cls(model, *tokenizers, text=config.text, decoding=config.decoding, known=known)

    @classmethod
    def from_marian(cls, folder: Path | str, *, device: str = "auto") -> "Translator":
        """A translator from the downloaded folder of an Opus-MT model; its tokenizers need ``sentencepiece``.

        Beams and limits are those that the folder states.
        """
        from transformer_lib.models.marian import load_marian, search_options

        model, *tokenizers = load_marian(folder)
        decoding = SearchConfig(**search_options(folder))
        text = TextPreparation(capitals="keep")
        return cls(model.to(pick_device(device)), *tokenizers, text=text, decoding=decoding)

    def config(self, **more: Any) -> TranslatorConfig:
        """All that it takes to build the translator again, whatever the defaults are by then."""
        entry = ModelEntry(model_name(self.model), asdict(self.model.config))  # type: ignore[call-overload]
        files = {"source": "source.json", "target": "target.json"}
        return TranslatorConfig(entry, files, self.text, self.decoding, **more)  # type: ignore[arg-type]

    def save_vocabularies(self, folder: Path) -> dict[str, str]:
        """Write both vocabularies; their checksums."""
        if not isinstance(self.source_tokenizer, Tokenizer):
            raise ValueError("an Opus-MT model stays in its own folder: load it with from_marian")
        folder.mkdir(parents=True, exist_ok=True)
        self.source_tokenizer.save(folder / "source.json")
        self.target_tokenizer.save(folder / "target.json")
        return {name: checksum(folder / name) for name in ("source.json", "target.json")}

    def save_pretrained(self, folder: Path | str, *, precision: Precision = "float32", **more: Any) -> Path:
        """Write model, vocabularies and configuration to a folder for ``from_pretrained``.

        Args:
            precision: of the stored weights. ``float16`` halves the file, and ``int8`` halves it again:
                whole numbers from -127 to 127 for matrices, with a scale for each row.
            more: other fields of ``TranslatorConfig``, such as ``notes``.

        Raises:
            TypeError: for ``half=True``, which is called ``precision="float16"`` now.
            ValueError: if the folder is not empty, or this translator cannot be saved; nothing is written then.
        """
        if "half" in more:
            raise TypeError("half is called precision now: precision='float16', or 'int8'")
        if precision not in get_args(Precision):
            raise ValueError(f"{precision=} is none of {', '.join(get_args(Precision))}")
        folder, config = Path(folder), self.config(**more)
        TypeAdapter(TranslatorConfig).dump_json(config)  # refuses notes that JSON cannot hold
        check_empty(folder)
        half = precision == "float16"
        weights = plain_names((deepcopy(self.model).half() if half else self.model).state_dict())
        stored = to_eight_bits(weights) if precision == "int8" else weights
        for name, tensor in (weights | stored).items():
            if not (tensor.isfinite().all() and stored[name].isfinite().all()):
                raise ValueError(f"{name} is not finite{' in half precision' * (stored[name].dtype == torch.float16)}")
        config = replace(config, sha256=self.save_vocabularies(folder))
        save_tensors(folder / "weights.safetensors", stored, {"translator": config.identity()})
        if self.known:
            self.known.save(folder / FILE)
        write_config(folder, config)
        return folder

    def __call__(self, text: str, config: SearchConfig | None = None, **options: Any) -> str:
        """The translation of one sentence, as ``translate`` gives it.

        Raises:
            TypeError: if ``text`` is no string.
            ValueError: as in ``translate``.
        """
        if not isinstance(text, str):
            raise TypeError(f"text is {text!r:.60}, not one string: translate takes a list of them")
        return self.translate([text], config, **options)[0]

    def translate(self, texts: Sequence[str], config: SearchConfig | None = None, **options: Any) -> list[str]:
        """A translation of each sentence, in the same order; a blank one gives an empty translation.

        Warns with ``DoubtWarning`` of translations that are probably wrong or should be looked at twice, of at most
        five; ``search`` tells the ``doubt`` of each. It is an ``UnknownWordWarning`` where words are unknown.

        Args:
            options: of ``search``.

        Raises:
            TypeError: if ``texts`` is a single string, or holds something else than strings.
            ValueError: for a number out of range, or a sentence longer than the model can read.
        """
        if isinstance(texts, str):
            raise TypeError("texts is a single string: write translator(text), or translate([text])")
        if options.setdefault("n_best", 1) != 1:
            raise ValueError("translate gives one translation of each: call search for the n_best")
        texts = check_texts(texts)
        best, unknown = self.search(texts, config, **options), dict[str, None]()
        for (one,) in best:
            unknown |= dict.fromkeys(one.unknown)
        if unknown and not self.known:
            text = f"the model does not know {shown([*unknown])}"
            warnings.warn(text, UnknownWordWarning, stacklevel=2)
        doubted = [(text, one.doubt) for text, (one,) in zip(texts, best, strict=True) if one.doubt]
        for text, why in doubted[:5]:
            strange = {"unknown", "rare"} & {*why.signs}
            told = f"{why.text} ({shown([one_line(text)])})"
            warnings.warn(told, UnknownWordWarning if strange else DoubtWarning, stacklevel=2)
        if len(doubted) > 5:
            told = f"Look twice. {len(doubted) - 5} more are to be doubted: search tells of each"
            warnings.warn(told, DoubtWarning, stacklevel=2)
        return [one.text for (one,) in best]

    def search(
        self,
        texts: Sequence[str],
        config: SearchConfig | None = None,
        *,
        max_tokens: int = 4000,
        prepared: bool = False,
        **options: Any,
    ) -> list[list[Translation]]:
        """The ``n_best`` translations of each sentence, best first, with their scores.

        Args:
            config: how to search; None for the translator's own ``decoding``.
            max_tokens: the most source tokens of a batch, over all hypotheses, padding included.
            prepared: the texts are as in the training data, and so shall be the translations.
            options: fields of ``SearchConfig``, such as ``beam_size=8``.
        """
        if not isinstance(config, SearchConfig | None):
            raise TypeError(f"config is {config!r}, expected a SearchConfig")
        config = replace(config or self.decoding, **options)
        lines = check_texts(texts)
        prepare = partial(self.text.prepare, tokenizer=self.source_tokenizer)
        ready = [*map(one_line if prepared else prepare, lines)]
        ids = [[*one, *self.special.eos[:1]] for one in self.source_tokenizer.encode_batch(ready)]
        for index, source in enumerate(ids):
            if problem := self._problem(source, config):
                raise ValueError(f"texts[{index}] has {problem}")
        best = [[Translation("")] * config.n_best for _ in lines]
        sizes = sorted([(len(ids[row]), row) for row, text in enumerate(ready) if text.strip()])
        left = [row for _, row in sizes]
        while left:  # the longest first, with as many others as fit beside it
            size = max(1, max_tokens // (config.beam_size * len(ids[left[-1]])))
            rows, left = left[-size:], left[:-size]
            batch = pad_sequence([torch.tensor(ids[row]) for row in rows], True, self.special.fill)
            hypotheses = beam_search(self.model, batch.to(self.device), config)
            for row, *found in zip(rows, *map(Tensor.tolist, hypotheses), strict=True):
                unknown = unknown_words(ready[row], self.source_tokenizer) if UNK in ids[row] else ()
                best[row] = []
                for tokens, score, log_p in zip(*found, strict=True):
                    text = one_line(self.target_tokenizer.decode(tokens))
                    text = text if prepared else self.text.restore(text, lines[row], ready[row])
                    mean = log_p / max(1, len(tokens) - tokens.count(self.special.fill))
                    why = doubt(self.known, lines[row], text, mean) if self.known and not prepared else None
                    best[row].append(Translation(text, log_p, score, unknown, why))
        # there may be fewer than n_best
        return [[one for one in row if one.score > -math.inf] for row in best]

    def stream(self, text: str, config: SearchConfig | None = None, **options: Any) -> Iterator[str]:
        """Translate one sentence as ``translate`` does with a beam of 1; the pieces, as soon as their words are whole.

        Args:
            config: how to search; None for the translator's own ``decoding``.
            options: fields of ``SearchConfig``, such as ``max_length=50``.

        Raises:
            ValueError: in training mode: a generator that waits must not change the mode of the model.
        """
        config = replace(config or self.decoding, **{"beam_size": 1, "n_best": 1} | options)
        if config.beam_size != 1:
            raise ValueError(f"beam_size={config.beam_size}: only greedy search, with a beam of 1, writes word by word")
        ready = self.prepare(*check_texts([text]))
        source = [*self.source_tokenizer.encode(ready), *self.special.eos[:1]]
        if problem := self._problem(source, config):
            raise ValueError(f"text has {problem}")
        if not ready.strip():
            return
        sources, tokens, done = torch.tensor([source], device=self.device), list[int](), ""
        same = ("max_length", "min_length", "repetition_penalty", "max_ratio")
        for _, token in generate(self.model, sources, **{name: getattr(config, name) for name in same}):
            tokens.append(int(token))
            written = self.target_tokenizer.decode(tokens)
            words = one_line(written + ".").rpartition(" ")[0].rstrip(" ,")
            words = self.text.restore(words, text, ready, whole=False) if words else ""
            if tokens[-1] not in self.special.eos and len(words) > len(done) and words.startswith(done):
                yield words[len(done) :]
                done = words
        yield self.text.restore(one_line(self.target_tokenizer.decode(tokens)), text, ready)[len(done) :]

    def attention(self, text: str, translation: str | None = None) -> AttentionMap:
        """The attention of the model while it writes the translation of a sentence, on the CPU.

        Args:
            translation: a sentence that it is made to write; None for its own translation.

        Raises:
            ValueError: if a sentence is blank, or the model has no attention to the source.
        """
        texts = check_texts([text] if translation is None else [text, translation])
        if not all(map(one_line, texts)):
            raise ValueError("an empty sentence has nothing to attend to")
        source = self.prepare(text)
        if translation is None:
            target = self.search([source], prepared=True)[0][0].text
        else:
            target = self.text.prepare(translation, self.target_tokenizer)
        one, other = self.source_tokenizer, self.target_tokenizer
        tokens = [*one.tokens(source), "<eos>"], [*other.tokens(target), "<eos>"]
        ids = torch.tensor([[*one.encode(source), *self.special.eos[:1]]], device=self.device)
        with eval_mode(self.model):
            weights = self._weights(ids, torch.tensor([[self.special.bos, *other.encode(target)]]).to(ids))
        return AttentionMap(*tokens, **weights)  # type: ignore[arg-type]

    def _weights(self, source: Tensor, target: Tensor) -> dict[str, Tensor]:
        """Attention weights of one sentence, as tensors of layers and heads."""
        if any(isinstance(part, MultiHeadAttention) for part in self.model.modules()):
            kinds: dict[str, list[Tensor]] = {}
            with record_attention(self.model) as maps:
                self.model(source, target)
            for name, weights in maps.items():
                kind = "cross" if name.endswith("cross_attn") else name.split(".")[0]
                kinds.setdefault(kind, []).append(weights[0][0])
            if "cross" in kinds:  # not in a single stack
                kinds = {kind: kinds[kind] for kind in ("cross", "encoder", "decoder") if kind in kinds}
                return {kind: torch.stack(weights).float().cpu() for kind, weights in kinds.items()}
        if hasattr(self.model, "align"):
            return {"cross": self.model.align(source, target)[:, None].float().cpu()}  # type: ignore[operator]
        raise ValueError(f"{type(self.model).__name__} has no attention to show between two texts, and no align()")

    def prepare(self, text: str) -> str:
        """A sentence as the model reads it."""
        return self.text.prepare(text, self.source_tokenizer)

    def refusal(self, text: str, config: SearchConfig | None = None) -> str | None:
        """The reason why a sentence cannot be translated, or None."""
        ids = [*self.source_tokenizer.encode(self.prepare(text)), *self.special.eos[:1]]
        return self._problem(ids, config or self.decoding)

    def _problem(self, ids: list[int], config: SearchConfig) -> str | None:
        limit = getattr(self.model, "max_source_length", None)
        if limit is not None and len(ids) > limit:
            return f"{len(ids)} tokens, more tokens than the {limit} that this model can read: split it"
        blank = len(ids) <= len(self.special.eos[:1])  # and so is its translation, whatever the ratio
        most = math.inf if blank or config.max_ratio is None else max(1, int(len(ids) * config.max_ratio))
        return self._too_short(config, most)

    def _too_short(self, config: SearchConfig, most: float) -> str | None:
        """The reason why no translation of at most so many tokens is long enough, or None."""
        most = min(most, config.max_length, getattr(self.model, "max_target_length", None) or most)
        return (
            f"room for at most {most:.0f} tokens, but min_length={config.min_length}"
            if config.min_length > most
            else None
        )

    @property
    def device(self) -> torch.device:
        """Where the model computes."""
        return next(self.model.parameters()).device


def pick_device(device: str | torch.device = "auto") -> torch.device:
    """The named device; ``auto`` is the accelerator, such as CUDA or MPS, where there is one, and the CPU elsewhere.

    Raises:
        ValueError: if there is no such device.
    """
    if device == "auto":
        device = (torch.accelerator.is_available() and torch.accelerator.current_accelerator()) or "cpu"
    try:
        torch.zeros(1, device=device).item()  # which "meta" could not give either
    except (RuntimeError, AssertionError) as error:
        raise ValueError(f"device={str(device)!r} is not to be had here: {error}") from error
    return torch.device(device)


def write_config(folder: Path, config: TranslatorConfig) -> None:
    """Write ``config.json``, as ``read_config`` reads it."""
    content = TypeAdapter(TranslatorConfig).dump_python(config, mode="json")
    write_json(folder / "config.json", content)
