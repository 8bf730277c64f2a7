"""A training run, from its options to its folder: corpus, vocabularies, model, trainer; and the way back."""

import hashlib
import heapq
import math
import re
import shutil
import sys
import tomllib
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, fields, replace
from functools import partial
from itertools import chain, count
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple

import numpy as np
import torch
from filelock import FileLock, Timeout
from pydantic import Field

from transformer_lib.data.batching import Pair, TokenBatches, pair_lengths
from transformer_lib.data.captions import make_captions
from transformer_lib.data.corpus import TokenCorpus, read_pairs, sample_pairs, tokenize_corpus
from transformer_lib.data.everyday import load_everyday, visitors_corpus
from transformer_lib.data.files import check_empty
from transformer_lib.data.multi30k import load_multi30k
from transformer_lib.data.text import one_line
from transformer_lib.data.tokenizer import Tokenizer
from transformer_lib.models.registry import build_model, model_entry, model_name
from transformer_lib.settings import Count, Probability, Size, settings
from transformer_lib.training.checkpoints import load_weights
from transformer_lib.training.config import TrainingConfig
from transformer_lib.training.distributed import process
from transformer_lib.training.run_state import own_random_state
from transformer_lib.training.trainer import Trainer
from transformer_lib.training.transforms import BPEDropout, SpellingNoise
from transformer_lib.translation.translator import (
    SHIPPED,
    Language,
    TextPreparation,
    Translator,
    TranslatorConfig,
    find_pretrained,
    pick_device,
    read_config,
    shown,
    unknown_words,
    write_config,
)

TABLES = tomllib.loads((Path(__file__).parent / "tables.toml").read_text("utf-8"))
MANY = 40_000
LOCK = ".transformer-lib.lock"
DROPOUTS = {"dropout", "attention_dropout", "activation_dropout"}  # hold no weights
PART = ".transformer-lib.part"  # the folder in which a run is made, inside its own
ENDLESS = re.compile(r"(\w.{0,19}?)\1{9}")  # ten times the same: a model that didn't stop


@settings
class TrainOptions:
    """Everything that decides a training; what is None follows from the model and the corpus."""

    data: str = "captions"
    """captions, multi30k, everyday, hf:NAME of Hugging Face, or a file with source, tab, target in each line."""
    extra: str | None = None
    """A file of further pairs to train on, such as back-translations. None is held back for a test, and pairs in
    which a model repeated itself without end are left out."""
    model: str = "transformer"
    """A registered model: gru, bahdanau, luong, hard, transformer, gpt, llama, or one of your own."""
    source: Language | None = None
    """Language to translate from, such as en."""
    target: Language | None = None
    """Language to translate into."""
    text: Literal["raw", "captions"] | None = None
    """Preparation of the text: raw, or captions (without capitals and full stops, which are restored)."""
    n_captions: Annotated[Size, Field(ge=40)] = 20_000
    """Training pairs to generate, for captions."""
    simple: Probability = 0.2
    """Share of simple sentences among the captions, such as "the street is wide" or "a dog"."""
    vocab_size: Annotated[int, Field(ge=260, le=1_000_000, strict=True)] | None = None
    """Subwords of both languages together; unset: 8,000 or fewer, or for captions (not gpt or llama) whole words."""
    start_from: str | None = None
    """Begin with the weights, vocabularies and text preparation of a shipped translator or of a run; of the model's
    options, only dropout may be another."""
    preset: Literal["tiny", "base", "big"] | None = None
    """Sizes of a Transformer; unset: tiny."""
    max_length: Size | None = None
    """The longest pair to train on, in tokens of its longer side."""
    skip_bad: bool = False
    """Leave out lines that are no pair or too long, and say how many, instead of refusing the file."""
    noise: Probability = 0.0
    """Probability of a typing error, of a missing capital, and of a missing full stop in a training source."""
    capitals: Probability = 0.0
    """Probability of nothing but capitals in a training source; they are many tokens, so training takes longer."""
    joined: Probability = 0.0
    """Lines of two sentences to add for training, as a share of the pairs."""
    bpe_dropout: Probability = 0.0
    """Probability of leaving out a merge when a source is cut into subwords, in every other sentence."""
    seed: Annotated[Count, Field(lt=2**63)] = 0
    """Seed of the captions, the split of a file, the first weights, the order of batches and dropout."""
    model_options: dict[str, Any] = Field(default_factory=dict)
    """Fields of the model's configuration."""
    training: dict[str, Any] = Field(default_factory=dict)
    """Fields of the trainer's configuration."""

    def __post_init__(self) -> None:
        if self.source is not None and self.source == self.target:
            raise ValueError(f"source and target are both {self.source!r}; choose two languages")
        if self.start_from is None:
            model_config(self, 300, 300)  # refuses options that the model does not have
            if self.text == "captions" and self.data != "captions":
                raise ValueError(f"text=captions is for data=captions, not {self.data!r}: such sentences are raw")
        elif self.preset or self.vocab_size or self.text or self.model_options.keys() - DROPOUTS:
            raise ValueError("start_from (--from) brings model, vocabularies and text: only dropout may be another")
        training_config(self)

    def preparation(self) -> TextPreparation:
        """The languages, and the preparation of their text."""
        source, target = self.source, self.target
        if self.data in CORPORA:  # English to German, unless one of them is named
            other = {"en": "de", "de": "en", "fr": "en"}
            source = source or other.get(target or "de", "en")
            target = target or other.get(source, "en")
        kind: Any = self.text or ("captions" if self.data == "captions" else "raw")
        return TextPreparation(kind, source, target)


def model_config(options: TrainOptions, source_vocab_size: int, target_vocab_size: int) -> Any:
    """The configuration of the model, with every size filled in.

    Raises:
        ValueError: for a model that does not translate, an option that it does not have, or a value out of range.
    """
    tied = "all" if subwords(options) else "target"
    entry = model_entry(options.model)
    make: Any = entry.config_class
    names = {one.name for one in fields(make)}
    sizes = {"source_vocab_size": source_vocab_size, "target_vocab_size": target_vocab_size}
    if not sizes.keys() <= names:  # a language model
        sizes = {"vocab_size": source_vocab_size}
    chosen = TABLES["models"].get(options.model, {}) | options.model_options
    if options.model == "transformer":
        make = getattr(make, options.preset or "tiny")
        chosen = {"tie_embeddings": tied, **chosen}
    elif options.preset is not None:
        chosen = chosen | {"preset": options.preset}
    if not hasattr(entry.model_class, "encode"):
        raise ValueError(f"model {options.model!r} does not translate")
    if unknown := sorted(chosen.keys() - names):
        raise ValueError(f"{', '.join(unknown)}: no option of the model {options.model!r}")
    return make(**sizes, **chosen)


def subwords(options: TrainOptions) -> int | None:
    """The size of a shared subword vocabulary, or None for whole words of each language."""
    shared = options.data != "captions" or options.model in ("gpt", "llama")
    return options.vocab_size or (8000 if shared else None)


def recipe(model: str) -> dict[str, Any]:
    """How a kind of model is trained unless something else is asked for."""
    return TABLES["training"]["transformers" if model in TABLES["transformers"] else "others"]


def training_config(options: TrainOptions, lengths: Sequence[int] | np.ndarray = ()) -> TrainingConfig:
    """The trainer's configuration: what was given, and the rest from the model and the size of the corpus.

    A batch has 2,000 tokens, or a twelfth of a smaller corpus; there are enough epochs for 900 updates,
    but for fine-tuning.

    Args:
        lengths: of the training pairs, on their longer side; none to check the options alone.
    """
    start = TABLES["training"]["fine_tuning"] if options.start_from else {}
    chosen = recipe(options.model) | {"seed": options.seed} | start | options.training
    if len(lengths):
        share = min(2000, int(sum(lengths)) // 12)
        chosen.setdefault("max_tokens", max(int(max(lengths)), share, 100))
        n_batches = len(TokenBatches(lengths, chosen["max_tokens"]))
        updates = math.ceil(n_batches / chosen.get("accumulate", 1))
        if "epochs" not in options.training and options.start_from is None:
            chosen["epochs"] = max(chosen["epochs"], math.ceil(900 / updates))
        rises = chosen["schedule"] in ("linear", "inverse-sqrt")
        total = chosen["epochs"] * updates
        chosen.setdefault("warmup", rises * min(4000, total // 10))
        if chosen["warmup"] >= total:
            raise ValueError(f"warmup={chosen['warmup']} must be less than the {total} updates")
    return TrainingConfig(**chosen)


# ---------------------------------------------------------------- corpora


class Corpus(NamedTuple):
    """Sentence pairs: a stream to learn from, which can be read again, and lists to choose by and to report on."""

    train: Iterable[Pair | tuple[str, str]]
    validation: list[Pair]
    test: list[Pair]
    notes: tuple[str, ...] = ()  # about lines that were left out

    def fingerprint(self, part: str) -> str:
        """The SHA-256 of the sentences of a part."""
        rows = "".join(f"{pair.source}\t{pair.target}\n" for pair in getattr(self, part))
        return hashlib.sha256(rows.encode()).hexdigest()


Parts = tuple[list[Pair], list[Pair], list[Pair]]  # to learn from, to choose by, to report on


def check_languages(options: TrainOptions, text: TextPreparation) -> None:
    """Refuse languages that a corpus of English and German doesn't have."""
    if {text.source, text.target} != {"en", "de"}:
        raise ValueError(f"{options.data} is en and de, not {text.source!r} and {text.target!r}")


def turned(pairs: Iterable[Pair], text: TextPreparation) -> list[Pair]:
    """Pairs of English and German in the direction that is asked for."""
    if text.source == "en":
        return list(pairs)
    return [Pair(one.target, one.source, tuple((t, s) for s, t in one.alignment)) for one in pairs]


def load_captions(options: TrainOptions, text: TextPreparation) -> Parts:
    """Generated captions: 500 to choose by, 1,000 to report on, the rest to train on."""
    check_languages(options, text)
    captions = make_captions(options.n_captions + 1500, options.seed, simple=options.simple)
    pairs = turned(captions, text)
    test = pairs[500:1500]
    reserved = {pair.source for pair in test}
    validation = [pair for pair in pairs[:500] if pair.source not in reserved]
    reserved |= {pair.source for pair in validation}
    return [pair for pair in pairs[1500:] if pair.source not in reserved], validation, test


def load_photographs(options: TrainOptions, text: TextPreparation) -> Parts:
    """Multi30k: 29,000 pairs to train on, 1,014 to choose by, and the test set of 2016.

    Source: Elliott et al. (2016).
    """
    languages, splits = (str(text.source), str(text.target)), ("train", "val", "test_2016_flickr")
    parts = (load_multi30k(split, *languages) for split in splits)
    train, val, test = ([Pair(one_line(x.source), one_line(x.target)) for x in part] for part in parts)
    return train, val, test


def load_visitors(options: TrainOptions, text: TextPreparation) -> Parts:
    """Everyday sentences with what visitors type besides; 1,000 pairs to choose by, 1,000 to report on."""
    check_languages(options, text)
    learn = [pair for part in ("train", "more", "stories") for pair in load_everyday(part)]
    pairs = visitors_corpus(learn, options.seed, from_german=text.source == "de")
    parts = (pairs, load_everyday("val"), load_everyday("test"))
    train, val, test = (turned(part, text) for part in parts)
    return train, val, test


CORPORA: dict[str, Callable[[TrainOptions, TextPreparation], Parts]] = {
    "captions": load_captions, "multi30k": load_photographs, "everyday": load_visitors,
}  # fmt: skip


Ready = Callable[[tuple[str, str]], tuple[str, str]]  # a pair, prepared


class PairStream:
    """The pairs of a file or data set for training, read anew each time.

    Of its sources, a twentieth, at most 1,000, is held back for each of the other parts: those with the lowest hashes.

    Raises:
        ValueError: for a line that is no pair, or fewer than 40 different sources.
    """

    def __init__(self, options: TrainOptions, text: TextPreparation, ready: Ready | None = None) -> None:
        self.data, self.seed, self.most, self.text = options.data, options.seed, 0, text
        self.ready = ready or partial(prepared, text=text)
        self.extra: list[tuple[str, str]] = []  # further pairs to train on, prepared
        self.skip, self.skipped, self.empty = options.skip_bad, list[int](), 0  # lines that are no pair
        hashes: set[int] = set()
        for source, _ in self.read():
            hashes.add(self.number(source))
            if len(hashes) == MANY:  # enough to know that 1,000 are held back, the lowest
                hashes, self.most = set(heapq.nsmallest(2000, hashes)), 1000
        held = self.most or min(1000, len(hashes) // 20)
        if len(hashes) < 40:
            s = "s" * (len(hashes) != 1)
            raise ValueError(f"{self.data} has {len(hashes)} different source sentence{s}, and a training needs 40")
        self.part = {number: 1 + i // held for i, number in enumerate(heapq.nsmallest(2 * held, hashes))}

    def read(self) -> Iterator[tuple[str, str]]:
        """All pairs of the file or data set, as the translator reads them; one with an empty side is left out."""
        skipped = list[int]()
        sink = skipped if self.skip else None
        empty = 0
        for pair in map(self.ready, read_pairs(self.data, sink, source=self.text.source, target=self.text.target)):
            if all(pair):
                yield pair
            else:
                empty += 1
        self.skipped, self.empty = skipped, empty

    def number(self, source: str) -> int:
        """A hash of a source, another one for each seed."""
        digest = hashlib.blake2b(f"{self.seed} {source}".encode(), digest_size=8).digest()
        return int.from_bytes(digest)

    def held_back(self) -> tuple[list[Pair], list[Pair]]:
        """The pairs of the validation and of the test part."""
        parts: tuple[list[Pair], list[Pair]] = [], []
        for pair in self.read():
            if part := self.part.get(self.number(pair[0])):
                parts[part - 1].append(Pair(*pair))
        return parts

    def __iter__(self) -> Iterator[tuple[str, str]]:
        pairs = chain(self.read(), self.extra)
        return (pair for pair in pairs if self.number(pair[0]) not in self.part)


def prepared(pair: tuple[str, str], text: TextPreparation, tokenizers: Sequence[Tokenizer] = ()) -> tuple[str, str]:
    """The text of a pair for a translator; captions are written without capitals and full stops, too."""
    source, target = pair
    if text.kind == "captions" and tokenizers:
        return text.prepare(source, tokenizers[0]), text.prepare(target, tokenizers[1])
    return text.prepare(source), target


def left_out(skipped: list[int], empty: int = 0) -> tuple[str, ...]:
    """Notes about lines that are no pair, and pairs of which preparation leaves nothing."""
    notes = {
        f"left out {len(skipped):,} lines that are no pair: {shown([*map(str, skipped)])}": skipped,
        f"left out, as nothing remains of one side: {empty:,} of the pairs": empty,
    }
    return tuple(note for note, one in notes.items() if one)


def load_corpus(
    options: TrainOptions, text: TextPreparation | None = None, tokenizers: Sequence[Tokenizer] = ()
) -> Corpus:
    """The sentence pairs that the options name, as a translator is to read and to write them.

    Args:
        tokenizers: of a translator that has learned captions; both sides become such captions.

    Raises:
        ValueError: if there is no such corpus, or a line of it is no pair.
    """
    text = text or options.preparation()
    ready = partial(prepared, text=text, tokenizers=() if options.data == "captions" else tokenizers)
    skipped: list[int] | None = [] if options.skip_bad else None
    found = list(read_pairs(options.extra, skipped)) if options.extra else []
    kept = [pair for pair in found if not any(ENDLESS.search(f"{side} ") for side in pair)]
    extra, fewer = [*filter(all, map(ready, kept))], len(found) - len(kept)
    notes = left_out(skipped or [], len(kept) - len(extra))
    if fewer:
        notes += (f"left out {fewer:,} extra pairs that repeat a letter, a word or a phrase ten times in a row",)
    if options.data in CORPORA:
        own = CORPORA[options.data](options, text)
        train, val, test = (
            [replace(x, source=source, target=target) for x in part for source, target in [ready((x.source, x.target))]]
            for part in own
        )
        held = {x.source for x in [*val, *test]}
        more = [pair for pair in extra if pair[0] not in held]
        return Corpus([*train, *more], val, test, notes)
    if not options.data.startswith("hf:") and not Path(options.data).is_file():
        raise ValueError(f"data={options.data!r} is no file, nor hf:NAME, {', '.join(CORPORA)}")
    stream = PairStream(options, text, ready)
    stream.extra = extra
    parts = stream.held_back()
    return Corpus(stream, *parts, left_out(stream.skipped, stream.empty) + notes)


def make_tokenizers(corpus: Corpus, vocab_size: int | None) -> tuple[Tokenizer, Tokenizer]:
    """Vocabularies from a sample of the training pairs: shared subwords of the given size, or words of each language.

    Source: Sennrich et al. (2016) for the shared subwords.
    """
    pairs = ((pair.source, pair.target) if isinstance(pair, Pair) else pair for pair in corpus.train)
    sources, targets = zip(*sample_pairs(pairs, 200_000), strict=True)
    if vocab_size is None:
        return Tokenizer.train(sources, level="word"), Tokenizer.train(targets, level="word")
    shared = Tokenizer.train([*sources, *targets], vocab_size, level="bpe")
    return shared, shared


# ---------------------------------------------------------------- runs


class Run(NamedTuple):
    """A translator in training."""

    folder: Path
    translator: Translator
    trainer: Trainer


def with_dropout(model: torch.nn.Module, shares: dict[str, float]) -> torch.nn.Module:
    """A model with the same weights, and other dropout in its further training."""
    config: Any = model.config
    if unknown := sorted(shares.keys() - {one.name for one in fields(config)}):
        raise ValueError(f"{', '.join(unknown)}: no option of the model {model_name(model)!r}")
    other = build_model(model_name(model), replace(config, **shares))
    other.load_state_dict(model.state_dict())
    return other


class Plan(NamedTuple):
    """What a run shall be, decided once."""

    options: TrainOptions  # as they are kept: with paths that hold from everywhere, and the name of the model
    text: TextPreparation
    start: Translator | None  # that it is fine-tuned from

    @property
    def tokenizers(self) -> tuple[Tokenizer, ...]:
        """Those of the translator that it is fine-tuned from."""
        return (self.start.source_tokenizer, self.start.target_tokenizer) if self.start else ()


def resolve(options: TrainOptions) -> Plan:
    """What follows from the options before the corpus is read.

    Raises:
        ValueError: for options that do not go together, or no translator to begin with.
    """
    own = options.n_captions, options.simple
    if options.data != "captions" and own != (TrainOptions.n_captions, TrainOptions.simple):
        raise ValueError(f"n_captions and simple are for data=captions, not {options.data!r}")
    if options.data not in CORPORA and Path(options.data).is_file():
        options = replace(options, data=str(Path(options.data).absolute()))
    if options.extra is not None:
        if not Path(options.extra).is_file():
            raise ValueError(f"extra={options.extra!r} is no file")
        options = replace(options, extra=str(Path(options.extra).absolute()))
    if options.start_from is None:
        return Plan(options, options.preparation(), None)
    place = find_pretrained(options.start_from)
    start = Translator.from_pretrained(place, device="cpu")
    name, text = model_name(start.model), start.text
    if options.model not in (TrainOptions.model, name):
        raise ValueError(f"{options.start_from!r} is a {name!r} model, not {options.model!r}")
    start.text = replace(text, source=options.source or text.source, target=options.target or text.target)
    if start.text.source and start.text.source == start.text.target:
        raise ValueError(f"source and target are both {start.text.source!r}; choose two languages")
    if options.model_options:
        start.model = with_dropout(start.model, options.model_options)
    kept = place.name if place.parent == SHIPPED else str(place.absolute())
    return Plan(replace(options, model=name, start_from=kept), start.text, start)


def create_run(options: TrainOptions, folder: Path | str) -> list[str]:
    """Begin a run: tokenised corpus, vocabularies and ``config.json``, for ``open_run``; notes about the corpus.

    Raises:
        ValueError: if the folder holds a run already or other files, or there is nothing to train on.
    """
    folder = Path(folder)
    if (folder / "config.json").exists():
        raise ValueError(f"{folder} holds a run already: add --resume, or choose another folder")
    part = folder / PART
    shutil.rmtree(part, ignore_errors=True)  # of a run that was killed before it was complete
    check_empty(folder, LOCK)
    plan = resolve(options)
    corpus = load_corpus(plan.options, plan.text, plan.tokenizers)
    parts = {name: corpus.fingerprint(name) for name in ("validation", "test")}
    translator = plan.start or untrained(plan, corpus)
    if options.bpe_dropout and translator.source_tokenizer.level == "word":
        raise ValueError(f"bpe_dropout={options.bpe_dropout} is for subwords: choose a vocab_size")
    notes = [*corpus.notes, *unknown_targets(plan, corpus, translator)]
    try:
        sums = translator.save_vocabularies(part)
        for name in ("train", "validation"):
            notes += tokenize(getattr(corpus, name), name, translator, plan.options, part)
        lengths = pair_lengths(TokenCorpus(part / "corpus" / "train")).max(axis=1)
        training = asdict(training_config(plan.options, lengths))
        more = {"data": {"name": plan.options.data, "fingerprint": parts}, "training": training}
        write_config(part, translator.config(options=asdict(plan.options), sha256=sums, **more))
        for name in ("corpus", "source.json", "target.json", "config.json"):
            (part / name).replace(folder / name)
    finally:
        shutil.rmtree(part, ignore_errors=True)
    return notes


def untrained(plan: Plan, corpus: Corpus) -> Translator:
    """A translator before its training, which takes no memory yet."""
    size = subwords(plan.options)
    tokenizers = make_tokenizers(corpus, size)
    config = model_config(plan.options, *(one.vocab_size for one in tokenizers))
    with torch.device("meta"):
        model = build_model(plan.options.model, config)
    return Translator(model, *tokenizers, text=plan.text)


def longest_pair(model: Any, options: TrainOptions) -> int:
    """The most tokens that a side of a pair may have."""
    own = [getattr(model, f"max_{side}_length", None) for side in ("source", "target")]
    limits = [*own, options.max_length, options.training.get("max_tokens")]
    return min((limit for limit in limits if limit is not None), default=10**9)


def tokenize(pairs: Iterable[Any], part: str, translator: Translator, options: TrainOptions, folder: Path) -> list[str]:
    """Write a part of the corpus in ids; a note about pairs that are too long.

    Raises:
        ValueError: if a pair is too long and was not to be left out, or none is left.
    """
    longest, numbers = longest_pair(translator.model, options), count()
    counted = (pair for pair, _ in zip(pairs, numbers, strict=False))
    tokenizers = translator.source_tokenizer, translator.target_tokenizer
    path, bar = folder / "corpus" / part, bool(sys.stderr and sys.stderr.isatty())
    joined = options.joined if part == "train" else 0.0
    more: dict[str, Any] = {"max_length": longest, "joined": joined, "seed": options.seed}
    corpus = tokenize_corpus(counted, *tokenizers, path, progress_bar=bar, **more)
    left = next(numbers) - (len(corpus) - corpus.joined)
    if left and not (options.skip_bad or options.max_length):
        raise ValueError(f"{left:,} pairs have over {longest} tokens; --skip-bad leaves them out")
    return [f"left out {left:,} pairs of the {part} part that are too long"] if left else []


def unknown_targets(plan: Plan, corpus: Corpus, translator: Translator) -> list[str]:
    """A note about target words that a vocabulary taken over from another translator cannot write."""
    if plan.start is None:
        return []
    targets = (pair.target if isinstance(pair, Pair) else pair[1] for pair in corpus.train)
    words = dict.fromkeys(word for text in targets for word in text.split())
    unknown = unknown_words(" ".join(words), translator.target_tokenizer)
    if not unknown:
        return []
    return [
        f"{len(unknown):,} target words are unknown to {plan.options.start_from}, whose vocabulary cannot grow; "
        f"it will learn to write ⟨unk⟩ for them: {shown(unknown)}"
    ]


def read_options(folder: Path | str, data: str | None = None) -> tuple[TranslatorConfig, TrainOptions]:
    """The configuration of a trained translator, and the options of its training.

    Args:
        data: where the file of sentence pairs is now, if it has moved.

    Raises:
        ValueError: if there is none, or it was not trained by the command.
    """
    config = read_config(folder)
    if config.options is None or config.data is None:
        raise ValueError(f"{folder} was not trained by the command: there are no options in it")
    moved = {} if data is None else {"data": str(Path(data).absolute())}
    before = {"capitals": config.options.get("noise", 0.0)}  # once, noise included them
    try:
        return config, TrainOptions(**before | config.options | moved)
    except ValueError as error:
        raise ValueError(f"{folder}: {error}") from error


def open_run(folder: Path | str, device: str | torch.device = "auto", **changes: Any) -> Run:
    """A run as its folder says, where it was last saved, or before its first update.

    Args:
        changes: of the trainer's configuration, such as ``epochs``, to train longer than first planned.

    Raises:
        ValueError: if the folder holds no run, or one that cannot be read.
    """
    folder, device = Path(folder), pick_device(device)
    config, options = read_options(folder)
    last = folder / "last.safetensors"
    if config.training is None or not (folder / "corpus").is_dir():
        raise ValueError(f"{folder} was not trained here: fine-tune it with --from {folder}")
    tokenizers = [config.tokenizer(folder, side) for side in ("source", "target")]
    with own_random_state(device):
        torch.manual_seed(options.seed)
        model = config.build(folder / "config.json")
    if options.start_from is not None and not last.is_file():
        start = Translator.from_pretrained(options.start_from, device="cpu")
        load_weights(model, start.model.state_dict(), folder)
    translator = Translator(model.to(device), *tokenizers, text=config.text)
    planned = TrainingConfig(**config.training | changes)
    words = translator.source_tokenizer
    transforms: list[Any] = []
    if options.noise or options.capitals:
        noise = options.noise
        transforms.append(SpellingNoise(words, noise, noise, noise, options.capitals))
    transforms += [BPEDropout(words, options.bpe_dropout)] if options.bpe_dropout else []
    train, validation = (TokenCorpus(folder / "corpus" / part) for part in ("train", "validation"))
    trainer = Trainer(model, train, validation, planned, folder, transforms=transforms)
    trainer.translator = config.identity()
    if last.is_file():
        trainer.resume()
    if planned.epochs < trainer.progress.epoch:
        raise ValueError(f"epochs={planned.epochs}: it has trained for {trainer.progress.epoch}")
    if planned != TrainingConfig(**config.training) and process()[0] == 0:
        notes = config.notes | {"resumed": [*config.notes.get("resumed", []), changes]}
        write_config(folder, replace(config, training=asdict(planned), notes=notes))
    return Run(folder, translator, trainer)


@contextmanager
def locked(folder: Path | str) -> Iterator[None]:
    """Keep other processes from training in a folder at the same time; made if need be, removed if it stays empty.

    Raises:
        ValueError: if another process has it.
    """
    folder = Path(folder)
    new = not folder.exists()
    folder.mkdir(parents=True, exist_ok=True)
    try:
        with FileLock(folder / LOCK, timeout=0):
            try:
                yield
            finally:
                with suppress(OSError):  # Windows lets nobody remove a file that is open
                    (folder / LOCK).unlink()
    except Timeout as error:
        raise ValueError(f"{folder} is in use: another process trains in it") from error
    finally:
        if new and not any(folder.iterdir()):
            folder.rmdir()
