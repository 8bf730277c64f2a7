"""A small folder that translates, with a card."""

import shlex
from dataclasses import asdict, replace
from itertools import islice
from pathlib import Path
from typing import Any

from transformer_lib.data.batching import Pair
from transformer_lib.data.files import check_empty, write_atomically
from transformer_lib.decoding.beam_search import SearchConfig
from transformer_lib.translation.known import SENTENCES, Known, learn
from transformer_lib.translation.run import CORPORA, TABLES, TrainOptions, load_corpus, read_options
from transformer_lib.translation.translator import (
    Precision,
    Translator,
    TranslatorConfig,
    find_pretrained,
    weights_file,
)

STORED = {"float32": "single precision", "float16": "half precision", "int8": "eight bits and a scale for each row"}
MODEL_CARD = (Path(__file__).parent / "card.md").read_text("utf-8")


def command(options: TrainOptions) -> str:
    """The options that are not the default, as they are typed."""
    rows = asdict(options).items()
    values = {name: value for name, value in rows if value != getattr(TrainOptions, name, {})}
    values |= values.pop("model_options", {}) | values.pop("training", {})
    return typed(values)


def typed(values: dict[str, Any]) -> str:
    """Options as they are typed."""
    words = []
    for name, value in values.items():
        flag = "from" if name == "start_from" else name.replace("_", "-")
        if isinstance(value, bool):
            words.append(f"--{flag}" if value else f"--no-{flag}")
        else:
            words += [f"--{flag}", *map(str, value if isinstance(value, list | tuple) else [value])]
    return shlex.join(words)


def learned(translator: Translator, config: TranslatorConfig, options: TrainOptions) -> Known | None:
    """What the translator has read, if the corpus of its training is at hand."""
    if options.data.startswith("hf:"):  # the network is not asked
        return None
    tokenizers = (translator.source_tokenizer, translator.target_tokenizer)
    try:
        corpus = load_corpus(options, translator.text, tokenizers)
    except (OSError, ValueError):
        return None
    if (config.data or {}).get("fingerprint", {}).get("validation") != corpus.fingerprint("validation"):
        return None
    pairs = ((pair.source, pair.target) if isinstance(pair, Pair) else pair for pair in corpus.train)
    texts = (pair.source for pair in corpus.validation)
    return learn(translator, pairs, [*islice((one for one in texts if not translator.refusal(one)), SENTENCES)])


def export_run(
    folder: Path | str,
    target: Path | str,
    weights: str | None = None,
    precision: Precision = "float16",
    **search: Any,
) -> Path:
    """Write what it takes to translate, and no more: configuration, vocabularies, small weights, a card.

    If the corpus of the training is at hand, also what the translator knows, by which it warns.

    Args:
        folder: of the run, or the name of a shipped model.
        target: must be new or empty.
        precision: of the stored weights, as in ``Translator.save_pretrained``.
        search: fields of ``SearchConfig`` for the searches of the exported translator.

    Raises:
        ValueError: if ``folder`` holds no run, or ``target`` is not empty.
    """
    folder, target = find_pretrained(folder), Path(target)
    check_empty(target)  # before what takes minutes
    config, options = read_options(folder)
    stem = weights_file(folder, weights).stem
    stem = config.notes.get("weights", stem) if stem == "weights" else stem  # what it was when it was exported first
    translator = Translator.from_pretrained(folder, device="cpu", weights=weights)
    tokenizers = translator.source_tokenizer, translator.target_tokenizer
    decoding, known = replace(translator.decoding, **search), translator.known
    translator = Translator(translator.model, *tokenizers, text=translator.text, decoding=decoding, known=known)
    translator.known = known or learned(translator, config, options)
    name = options.data if options.data.startswith("hf:") else Path(options.data).name
    # the folders of this machine are nobody's business
    start, extra = (path and Path(path).name for path in (options.start_from, options.extra))
    options, text = replace(options, data=name, extra=extra, start_from=start), translator.text
    data = dict(config.data or {}) | {"name": name}
    resumed = [typed({"resume": True} | changes) for changes in config.notes.get("resumed", [])]
    notes = {"training": config.training, "data": data, "notes": config.notes | {"weights": stem}}
    translator.save_pretrained(target, precision=precision, options=asdict(options), **notes)
    chosen: dict[str, Any] = {} if stem in ("weights", "averaged") else {"weights": stem}
    chosen |= {"precision": precision} if precision != "float16" else {}
    chosen |= sorted(asdict(translator.decoding).items() - asdict(SearchConfig()).items())
    commands = [f"transformer-lib train {one} --output RUN" for one in (command(options), *resumed)]
    commands.append(f"transformer-lib export RUN {typed(chosen | {'output': target.absolute().name})}")
    card = MODEL_CARD.format(
        name=target.absolute().name,
        kind=options.model,
        parameters=sum(one.numel() for one in translator.model.parameters()),
        languages=f"{text.source or 'the first column'} to {text.target or 'the second'}",
        data=name if name in CORPORA or name.startswith("hf:") else "a file of sentence pairs",
        text=TABLES["text"][text.kind],
        weights=stem,
        precision=STORED[precision],
        commands="\n".join(commands),
        license=TABLES["licenses"].get(name, "The terms are those of the sentences it was trained on."),
    )
    write_atomically(target / "README.md", card.encode())
    return target
