"""A training run, from its options to its folder: corpus, vocabularies, model, trainer; and the way back."""

import hashlib
import math
import os
import random
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple

import torch
from pydantic import Field

from transformer_lib.data.batching import Example, batches, encode_pairs
from transformer_lib.data.captions import Pair, make_captions
from transformer_lib.data.multi30k import load_multi30k
from transformer_lib.data.tokenizer import Tokenizer
from transformer_lib.models.registry import build_model, model_entry
from transformer_lib.settings import Count, Probability, Size, settings
from transformer_lib.training.trainer import Trainer, TrainingConfig
from transformer_lib.training.transforms import BPEDropout, SpellingNoise
from transformer_lib.translation.translator import (
    SHIPPED,
    Language,
    TextPreparation,
    Translator,
    TranslatorConfig,
    UnknownWordWarning,
    find_pretrained,
    read_config,
    shown,
    unknown_words,
    write_config,
)

TRANSFORMERS = ("transformer", "gpt", "llama")
PARTS = ("train", "validation", "test")
_RECURRENT = {"d_model": 128, "d_hidden": 256, "n_layers": 1, "dropout": 0.1}
_LANGUAGE_MODEL = {"d_model": 128, "n_heads": 4, "n_kv_heads": 2, "n_layers": 4, "d_ff": 256, "dropout": 0.1}
MODEL_DEFAULTS: dict[str, dict[str, Any]] = {
    **dict.fromkeys(("gru", "bahdanau", "luong", "hard"), _RECURRENT),
    **dict.fromkeys(("gpt", "llama"), _LANGUAGE_MODEL),
}
TRANSFORMER_TRAINING: dict[str, Any] = {
    "epochs": 30, "learning_rate": 3e-3, "schedule": "linear", "smoothing": 0.1, "average": 5,
}  # fmt: skip
OTHER_TRAINING: dict[str, Any] = {
    "epochs": 10, "learning_rate": 2e-3, "schedule": "plateau", "warmup": 0, "smoothing": 0.0,
    "average": 0, "patience": 3, "betas": (0.9, 0.999), "eps": 1e-8,
}  # fmt: skip
FINE_TUNING = {"epochs": 10, "learning_rate": 3e-4, "schedule": "linear"}


@settings
class TrainOptions:
    """Everything that decides a training; what is None follows from the model and the corpus."""

    data: str = "captions"
    """The corpus: captions, multi30k, or a file with a source and a target in each line, a tab in between."""
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
    vocab_size: Annotated[int, Field(ge=260, le=1_000_000, strict=True)] | None = None
    """Size of the subword vocabulary of both languages; unset: whole words for captions, else 8,000 or fewer."""
    start_from: str | None = None
    """Begin with the weights, vocabularies and text preparation of a shipped translator or of a run."""
    preset: Literal["tiny", "base", "big"] | None = None
    """Sizes of a Transformer; unset: tiny."""
    max_length: Size | None = None
    """The longest pair to train on, in tokens of its longer side."""
    skip_bad: bool = False
    """Leave out lines that are no pair or too long, and say how many, instead of refusing the file."""
    noise: Probability = 0.0
    """Probability of a typing error, of a missing capital and of a missing full stop in a source in training."""
    bpe_dropout: Probability = 0.0
    """Probability of leaving out a merge when a source is cut into subwords, in every other sentence."""
    seed: Count = 0
    """Seed of the captions, the split of a file, the first weights, the order of batches and dropout."""
    model_options: dict[str, Any] = Field(default_factory=dict)
    """Fields of the model's configuration."""
    training: dict[str, Any] = Field(default_factory=dict)
    """Fields of the trainer's configuration."""

    def __post_init__(self) -> None:
        if self.data not in CORPORA and not Path(self.data).is_file():
            raise ValueError(f"data={self.data!r} is no file, and none of {', '.join(CORPORA)}")
        if self.source is not None and self.source == self.target:
            raise ValueError(f"source and target are both {self.source!r}; choose two languages")
        if self.start_from is None:
            model_config(self, 300, 300)  # refuses options that the model does not have
        elif self.preset or self.vocab_size or self.text or self.model_options:
            raise ValueError(f"start_from={self.start_from!r} brings model, vocabularies and text: leave their options out")
        training_config(self, [])

    def preparation(self) -> TextPreparation:
        """The languages, and the preparation of their text."""
        if self.start_from is not None:
            text = read_config(find_pretrained(self.start_from)).text
            return replace(text, source=self.source or text.source, target=self.target or text.target)
        source, target = self.source, self.target
        if self.data in CORPORA:  # English to German, unless one of them is named
            other = {"en": "de", "de": "en", "fr": "en"}
            source = source or other.get(target or "de", "en")
            target = target or other.get(source, "en")
        return TextPreparation(self.text or ("captions" if self.data == "captions" else "raw"), source, target)


def model_config(options: TrainOptions, source_vocab_size: int, target_vocab_size: int) -> Any:
    """The configuration of the model, with every size filled in.

    Raises:
        ValueError: for an option that the model does not have, or a value out of range.
    """
    make: Any = model_entry(options.model).config_class
    names = {entry.name for entry in fields(make)}
    sizes = {"source_vocab_size": source_vocab_size, "target_vocab_size": target_vocab_size}
    sizes = {name: size for name, size in sizes.items() if name in names} or {"vocab_size": source_vocab_size}
    chosen = {k: v for k, v in MODEL_DEFAULTS.get(options.model, {}).items() if k in names} | options.model_options
    if unknown := sorted(chosen.keys() - names) + ["preset"] * (options.preset is not None and options.model != "transformer"):
        raise ValueError(f"{', '.join(unknown)}: no option of the model {options.model!r}; leave it out")
    if options.model == "transformer":
        make = getattr(make, options.preset or "tiny")
        chosen.setdefault("tie_embeddings", "all" if subwords(options) else "target")
    return make(**sizes, **chosen)


def subwords(options: TrainOptions) -> int | None:
    """The size of a shared subword vocabulary, or None for whole words of each language."""
    shared = options.data != "captions" or options.model in ("gpt", "llama")
    return options.vocab_size or (8000 if shared else None)


def training_config(options: TrainOptions, examples: Sequence[Example]) -> TrainingConfig:
    """The trainer's configuration: what was given, and the rest from the model and the size of the corpus.

    A batch has 2,000 tokens, or a twelfth of a smaller corpus; there are enough epochs for 900 updates.

    Args:
        examples: the training pairs; none to check the options alone.
    """
    chosen = dict(TRANSFORMER_TRAINING if options.model in TRANSFORMERS else OTHER_TRAINING) | {"seed": options.seed}
    chosen |= FINE_TUNING if options.start_from else {}
    chosen |= options.training
    if "max_tokens" not in options.training:
        lengths = [max(map(len, pair)) for pair in examples]
        chosen["max_tokens"] = max(max(lengths, default=1), min(2000, sum(lengths) // 12), 100)
    updates = 1
    if examples:
        n_batches = sum(1 for _ in batches(examples, chosen["max_tokens"]))
        updates = math.ceil(n_batches / chosen.get("accumulate", 1))
        if "epochs" not in options.training and options.start_from is None:
            chosen["epochs"] = max(chosen["epochs"], math.ceil(900 / updates))
    if "warmup" not in chosen:
        rises = chosen["schedule"] in ("linear", "inverse-sqrt")
        chosen["warmup"] = rises * min(4000, chosen["epochs"] * updates // 10)
    if not examples:  # whether a warm-up fits is known when there are batches
        chosen["warmup"] = chosen["warmup"] or 1
    try:
        return TrainingConfig(**chosen)
    except TypeError as error:  # an option that the trainer does not have
        raise ValueError(str(error)) from error


# ---------------------------------------------------------------- corpora


class Corpus(NamedTuple):
    """Sentence pairs to learn from, to choose by, and to report on."""

    train: list[Pair]
    validation: list[Pair]
    test: list[Pair]
    notes: tuple[str, ...] = ()  # about lines that were left out

    def fingerprint(self) -> dict[str, str]:
        """A SHA-256 of each part."""
        digests = {part: hashlib.sha256() for part in PARTS}
        for part, digest in digests.items():
            for pair in getattr(self, part):
                digest.update(f"{pair.source}\t{pair.target}\n".encode())
        return {part: digest.hexdigest() for part, digest in digests.items()}


def load_captions(options: TrainOptions, text: TextPreparation) -> Corpus:
    """Generated captions: 500 to choose by, 1,000 to report on, the rest to train on."""
    if {text.source, text.target} != {"en", "de"}:
        raise ValueError(f"captions pair en and de, not {text.source!r} and {text.target!r}")
    pairs = make_captions(options.n_captions + 1500, seed=options.seed)
    if text.source == "de":
        pairs = [Pair(p.target, p.source, tuple((t, s) for s, t in p.alignment)) for p in pairs]
    test = pairs[500:1500]
    reserved = {pair.source for pair in test}
    validation = [pair for pair in pairs[:500] if pair.source not in reserved]
    reserved |= {pair.source for pair in validation}
    return Corpus([pair for pair in pairs[1500:] if pair.source not in reserved], validation, test)


def load_photographs(options: TrainOptions, text: TextPreparation) -> Corpus:
    """Multi30k: 29,000 pairs to train on, 1,014 to choose by, and the test set of 2016.

    Source: Elliott et al. (2016).
    """
    languages = str(text.source), str(text.target)
    parts = (load_multi30k(split, *languages) for split in ("train", "val", "test_2016_flickr"))
    return Corpus(*([_plain(pair) for pair in part] for part in parts))


def _plain(pair: Pair) -> Pair:
    return Pair(" ".join(pair.source.split()), " ".join(pair.target.split()))


CORPORA: dict[str, Callable[[TrainOptions, TextPreparation], Corpus]] = {
    "captions": load_captions, "multi30k": load_photographs,
}  # fmt: skip


def load_file(options: TrainOptions, text: TextPreparation) -> Corpus:
    """Pairs of a file; a twentieth of its sources, at most 1,000, are held back for each of the other parts.

    Raises:
        ValueError: for a line that is not two texts with a tab in between, or fewer than 40 sentences to translate.
    """
    pairs, skipped = [], []
    with open(options.data, "rb") as file:
        for number, line in enumerate(file, start=1):
            columns = _columns(line, number, options)
            if columns is not None and len(columns) == 2:
                pairs.append(Pair(*columns))
            elif columns is not None:
                skipped.append(str(number))
    sources = sorted({pair.source for pair in pairs})
    if len(sources) < 40:
        raise ValueError(f"{options.data} has {len(sources)} different sentences; at least 40 are needed")
    random.Random(options.seed).shuffle(sources)
    held = min(1000, len(sources) // 20)
    part_of = {source: 1 + index // held for index, source in enumerate(sources[: 2 * held])}
    parts: tuple[list[Pair], ...] = ([], [], [])
    for pair in pairs:
        parts[part_of.get(pair.source, 0)].append(pair)
    told = f"left out {len(skipped):,} lines that are no pair: {shown(skipped)}"
    return Corpus(*parts, (told,) if skipped else ())


def _columns(line: bytes, number: int, options: TrainOptions) -> list[str] | None:
    """The columns of a line, fewer than two if it is to be skipped; None if it is blank."""
    where = f"{options.data}, line {number}"
    try:
        text = line.decode("utf-8-sig" if number == 1 else "utf-8")
        if "\0" in text:
            raise ValueError("it holds NUL characters")
    except ValueError as error:  # a UnicodeDecodeError is one
        if options.skip_bad:
            return []
        raise ValueError(f"{where} is not UTF-8 text ({error})") from error
    if not text.strip():
        return None
    columns = [" ".join(column.split()) for column in text.split("\t")]
    if len(columns) == 2 and all(columns):
        return columns
    if options.skip_bad:
        return []
    raise ValueError(
        f"{where}: expected two texts with one tab in between, got {text[:60]!r}; "
        "repair it, or skip such lines with --skip-bad"
    )


def load_corpus(options: TrainOptions, text: TextPreparation | None = None) -> Corpus:
    """The sentence pairs that the options name."""
    return CORPORA.get(options.data, load_file)(options, text or options.preparation())


def make_tokenizers(corpus: Corpus, vocab_size: int | None) -> tuple[Tokenizer, Tokenizer]:
    """Vocabularies from the training pairs: shared subwords of the given size, or the words of each language.

    Source: Sennrich et al. (2016) for the shared subwords.
    """
    sides = [[pair.source for pair in corpus.train], [pair.target for pair in corpus.train]]
    if vocab_size is None:
        return Tokenizer.train(sides[0], level="word"), Tokenizer.train(sides[1], level="word")
    shared = Tokenizer.train(sides[0] + sides[1], vocab_size, level="bpe")
    return shared, shared


# ---------------------------------------------------------------- runs


@dataclass
class Run:
    """A translator in training."""

    folder: Path
    options: TrainOptions
    translator: Translator
    trainer: Trainer
    notes: list[str]


def create_run(options: TrainOptions, folder: Path | str) -> Corpus:
    """Begin a run: vocabularies and ``config.json``, in a folder without one; ``open_run`` reads it, the corpus too.

    Raises:
        ValueError: if the folder holds a run already, or there is nothing to train on.
    """
    folder = Path(folder)
    if folder == Path():
        raise ValueError("output is the present folder: name one for the run")
    if (folder / "config.json").exists():
        raise ValueError(f"{folder} holds a run already: add --resume to go on with it, or choose another folder")
    if options.data not in CORPORA:
        options = replace(options, data=str(Path(options.data).absolute()))
    if options.start_from is not None:
        start = find_pretrained(options.start_from)
        options = replace(options, start_from=start.name if start.parent == SHIPPED else str(start.absolute()))
    text = options.preparation()
    corpus = load_corpus(options, text)
    translator = _first(options, corpus, text)
    examples, _ = encode(corpus, "train", translator, options)
    training = training_config(options, examples)
    sums = translator.save_vocabularies(folder)
    more = {
        "options": asdict(options),
        "training": asdict(training),
        "data": {"name": options.data, "fingerprint": corpus.fingerprint()},
        "sha256": sums,
    }
    write_config(folder, translator.config(**more))
    return corpus


def _first(options: TrainOptions, corpus: Corpus, text: TextPreparation) -> Translator:
    """The translator before its first update."""
    if options.start_from is not None:
        translator = Translator.from_pretrained(options.start_from, device="cpu")
        translator.text = text
        return translator
    tokenizers = make_tokenizers(corpus, subwords(options))
    with torch.random.fork_rng():
        torch.manual_seed(options.seed)
        model = build_model(options.model, model_config(options, *(one.vocab_size for one in tokenizers)))
    return Translator(model, *tokenizers, text=text)


def encode(
    corpus: Corpus, part: str, translator: Translator, options: TrainOptions
) -> tuple[list[Example], list[Pair]]:
    """The pairs of a part in ids, without those that are too long, and the pairs that are left.

    Raises:
        ValueError: if a pair is too long and was not to be left out, or none is left.
    """
    own = [getattr(translator.model, f"max_{side}_length", None) for side in ("source", "target")]
    limits = [*own, options.max_length, options.training.get("max_tokens")]
    longest = min((limit for limit in limits if limit is not None), default=10**9)
    pairs = getattr(corpus, part)
    both = translator.source_tokenizer, translator.target_tokenizer
    rows = list(zip(encode_pairs(pairs, *both) if pairs else [], pairs, strict=True))
    fits = [(ids, pair) for ids, pair in rows if max(map(len, ids)) <= longest]
    if len(fits) < len(rows) and not (options.skip_bad or options.max_length):
        long = next(pair for ids, pair in rows if max(map(len, ids)) > longest)
        raise ValueError(
            f"{options.data}: a pair has more tokens than the {longest} there is room for: {shown([long.source])}; "
            "leave out such pairs with --skip-bad"
        )
    if not fits:
        raise ValueError(f"{options.data} holds no pairs of at most {longest} tokens in its {part} part")
    return [ids for ids, _ in fits], [pair for _, pair in fits]


def read_options(folder: Path | str, data: str | None = None) -> tuple[TranslatorConfig, TrainOptions]:
    """The configuration of a trained translator, and the options of its training.

    Args:
        data: where the file of sentence pairs is now, if it has moved.

    Raises:
        ValueError: if there is none, or it was not trained by the command.
    """
    config = read_config(folder)
    if config.options is None or config.data is None:
        raise ValueError(f"{folder} was not trained by 'transformer-lib train': its config.json tells no options")
    moved = {} if data is None else {"data": str(Path(data).absolute())}
    try:
        return config, TrainOptions(**config.options | moved)
    except ValueError as error:
        raise ValueError(f"{folder}: {error}") from error


def read_corpus(config: TranslatorConfig, options: TrainOptions, parts: Sequence[str]) -> Corpus:
    """The corpus of a training, if the named parts are what they were when it began.

    Raises:
        ValueError: if one of them holds other sentences.
    """
    corpus = load_corpus(options, config.text)
    known, now = (config.data or {}).get("fingerprint", {}), corpus.fingerprint()
    for part in parts:
        if known.get(part) != now[part]:
            raise ValueError(
                f"{options.data} has changed since the training began: its {part} part now holds other sentences; "
                "restore the file, or train again"
            )
    return corpus


def open_run(
    folder: Path | str,
    device: torch.device,
    corpus: Corpus | None = None,
    *,
    data: str | None = None,
    **changes: Any,
) -> Run:
    """A run as its folder says, where it was last saved, or before its first update.

    Args:
        corpus: if it has been read already.
        data: where the file of sentence pairs is now, if it has moved.
        changes: of the trainer's configuration, such as ``epochs``, to train longer than first planned.

    Raises:
        ValueError: if the folder holds no run, one that cannot be read, or one whose corpus has changed.
    """
    folder = Path(folder)
    config, options = read_options(folder, data)
    last = folder / "last.safetensors"
    if config.training is None or (folder / "weights.safetensors").is_file():
        raise ValueError(f"{folder} was not trained here: fine-tune it with --from {folder}")
    corpus = corpus or read_corpus(config, options, ("train", "validation"))
    if last.is_file():
        tokenizers = [config.tokenizer(folder, side) for side in ("source", "target")]
        model = config.build(None, folder / "config.json")
        translator = Translator(model, *tokenizers, text=config.text)
    else:
        translator = _first(options, corpus, config.text)
    translator.model.to(device)
    notes = list(corpus.notes)
    parts = []
    for part in ("train", "validation"):
        parts.append(encode(corpus, part, translator, options)[0])
        if left := len(getattr(corpus, part)) - len(parts[-1]):
            notes.append(f"left out {left:,} pairs of the {part} part that are too long")
    unknown = _unknown(options, corpus, translator)
    if unknown and not last.is_file():
        warnings.warn(unknown[0], UnknownWordWarning, stacklevel=2)
    notes += unknown
    planned = TrainingConfig(**config.training | changes)
    words = translator.source_tokenizer
    transforms: list[Any] = [SpellingNoise(words, *[options.noise] * 3)] if options.noise else []
    transforms += [BPEDropout(words, options.bpe_dropout)] if options.bpe_dropout else []
    trainer = Trainer(translator.model, *parts, planned, folder, transforms=transforms)
    run = Run(folder, options, translator, trainer, notes)
    if last.is_file():
        run.trainer.resume()
    if planned.epochs < run.trainer.progress.epoch:
        raise ValueError(f"epochs={planned.epochs}: the run has trained for {run.trainer.progress.epoch} already")
    notes.append(
        f"batches of {planned.max_tokens:,} tokens, {planned.epochs} epochs, at most {run.trainer.total:,} updates, "
        f"the first {planned.warmup:,} to warm up"
    )
    if changes:
        write_config(folder, replace(config, training=asdict(planned)))
    return run


def _unknown(options: TrainOptions, corpus: Corpus, translator: Translator) -> list[str]:
    """A note about target words that a vocabulary taken over from another translator cannot write."""
    if options.start_from is None:
        return []
    words = list(dict.fromkeys(word for pair in corpus.train for word in pair.target.split()))
    unknown = unknown_words(" ".join(words), translator.target_tokenizer)
    if not unknown:
        return []
    told = (
        f"{len(unknown):,} of {len(words):,} target words are unknown to {options.start_from}, whose vocabulary "
        f"cannot grow; it will learn to write <unk> for them: {shown(unknown)}"
    )
    return [told]


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
        import fcntl

        handle = os.open(folder, os.O_RDONLY)
    except (ImportError, PermissionError):  # not on Unix: no lock
        yield
        return
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        os.close(handle)
        raise ValueError(f"{folder} is in use: another process trains in it") from error
    try:
        yield
    finally:
        os.close(handle)
        if new and not any(folder.iterdir()):
            folder.rmdir()

