"""Choose how a translator of ``real_translators.py`` decodes, export it, and score it.

    python benchmarks/score_translators.py choose --run runs/b
    python benchmarks/score_translators.py export --run runs/b --output exported/en-de
    python benchmarks/score_translators.py test --model exported/en-de --record results/x.json
    python benchmarks/score_translators.py odd --model exported/en-de

``choose`` looks at the validation set only, and writes what it found to the run's
folder as ``decoding.json``; ``test`` takes its beam and length penalty from there.
"""

import argparse
import json
import os
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from intervals import difference
from real_translators import RunConfig, clean, load_pairs, score, translate
from sacrebleu.metrics import BLEU, CHRF

from transformer_lib.data.batching import batches, encode_pairs
from transformer_lib.data.files import write_atomically, write_json
from transformer_lib.data.multi30k import moses_tokenize
from transformer_lib.data.tokenizer import Tokenizer
from transformer_lib.models.transformer import Transformer, TransformerConfig
from transformer_lib.training.checkpoints import load_tensors
from transformer_lib.training.loop import evaluate_loss
from transformer_lib.translation.evaluation import bleu_by_length, bleu_interval, run_metadata
from transformer_lib.translation.export import DATA_LICENSES
from transformer_lib.translation.options import TrainOptions, load_corpus
from transformer_lib.translation.text import TextPreparation
from transformer_lib.translation.translator import Translator

ODD_INPUTS = Path(__file__).resolve().parents[1] / "tests" / "data" / "odd_inputs.tsv"


def load_model(path: Path, config: TransformerConfig) -> Transformer:
    """A model with the weights of a file, in single precision.

    Args:
        path: weights by name, in any precision; tied ones may stand there once.
        config: the sizes.

    Returns:
        The model in evaluation mode.
    """
    model = Transformer(config)
    weights = {name: tensor.float() for name, tensor in load_tensors(path)[0].items()}
    known = dict(model.named_parameters())
    if missing := known.keys() - weights.keys():
        raise ValueError(f"{path} lacks {min(missing)}")
    for name, parameter in known.items():
        parameter.data.copy_(weights[name])
    return model.eval()


def intervals(hypotheses: Sequence[str], references: Sequence[str], language: str) -> dict[str, list[float]]:
    """95 % bootstrap intervals over sentences of the three scores of ``score``.

    Args:
        hypotheses: what a system wrote.
        references: what people wrote.
        language: of both.

    Returns:
        Lower and upper end by name of the score.
    """
    moses = [[moses_tokenize(t, language) for t in side] for side in (hypotheses, references)]
    found = {
        "bleu": bleu_interval(*moses, tokenize="none"),
        "bleu_cased": bleu_interval(hypotheses, references),
    }
    chrf = CHRF().corpus_score(list(hypotheses), [list(references)], n_bootstrap=1000)
    found["chrf"] = [round(float(chrf._mean + side * chrf._ci), 2) for side in (-1, 1)]
    return found


def by_length(
    sources: Sequence[str], hypotheses: Sequence[str], references: Sequence[str], languages: tuple[str, str]
) -> list[dict[str, Any]]:
    """Lower-cased Moses BLEU of short and of long sentences apart, sorted by the Moses tokens of the source.

    Args:
        sources: the sentences that were translated.
        hypotheses: their translations.
        references: what people wrote.
        languages: of the sources and of the translations.

    Returns:
        What ``bleu_by_length`` returns.
    """
    told = zip((sources, hypotheses, references), (languages[0], languages[1], languages[1]), strict=True)
    return bleu_by_length(*([moses_tokenize(text, language) for text in side] for side, language in told))


def choose(folder: Path, beams: Sequence[int], length_penalties: Sequence[float]) -> dict[str, Any]:
    """Translate the validation set in several ways and keep the best.

    Args:
        folder: of a run.
        beams: beam sizes to try; greedy search is tried as well.
        length_penalties: length penalties to try.

    Returns:
        The best way, by lower-cased BLEU, and all that was tried.
    """
    notes = load_tensors(folder / "average.safetensors")[1]
    config = RunConfig.from_notes(notes["config"])
    model = load_model(folder / "average.safetensors", config.model())
    tokenizer = Tokenizer.load(folder / "tokenizer.json")
    pairs = load_pairs("val", config.source, config.target)
    tried = []
    for beam, penalty in [(1, 0.0), *((b, p) for b in beams for p in length_penalties)]:
        found = translate(model, tokenizer, [pair.source for pair in pairs], beam, penalty)
        scores = score(found, [pair.target for pair in pairs], config.target)
        line = {"beam_size": beam, "length_penalty": penalty}
        line |= {name: round(entry["value"], 2) for name, entry in scores.items()}
        tried.append(line)
        print(json.dumps(line), flush=True)
    best = max(tried, key=lambda line: line["bleu"])
    content = {
        "beam_size": best["beam_size"],
        "length_penalty": best["length_penalty"],
    }
    content |= {"epoch": notes["epoch"], "split": "val", "tried": tried}
    write_json(folder / "decoding.json", content)
    return content


SHOWN = {
    "test_bleu": "BLEU (lower-cased, Moses)",
    "test_bleu_cased": "BLEU (cased, 13a)",
    "test_chrf": "chrF",
}
ALSO = "; and on translations of its sentences by translators of both directions"
CARD = """# {name}

A Transformer with {parameters:,} parameters that translates {source} to {target}, trained by
[Attention, Step by Step](https://github.com/OWNER/attention-step-by-step).

- Trained on: multi30k, with noise on the source: typing errors, missing capitals and full stops, names, two
  sentences in a line{also}
- Text: as people write it
- Weights: moving average, half precision, safetensors
- Made by: `{command}`; `benchmarks/score_translators.py` chose how it decodes on the validation set: {decoding}
- Scores on the test set of 2016, with 95 % intervals: {scores}

{license}
"""


def translator_of(folder: Path) -> tuple[Translator, dict[str, Any]]:
    """The translator with the averaged weights of a run.

    Args:
        folder: of the run.

    Returns:
        The translator, and the notes of its checkpoint.
    """
    notes = load_tensors(folder / "average.safetensors")[1]
    config = RunConfig.from_notes(notes["config"])
    model = load_model(folder / "average.safetensors", config.model())
    tokenizer = Tokenizer.load(folder / "tokenizer.json")
    text = TextPreparation("raw", config.source, config.target)
    return Translator(model, tokenizer, tokenizer, text=text), notes


def export(folder: Path, output: Path, before: Path | None = None, command: str | None = None) -> None:
    """Write a translator in half precision, as ``Translator.from_pretrained`` and the command read it.

    Args:
        folder: of a run for which ``choose`` has been run.
        output: folder to write.
        before: record of the translator whose training it went on with; its curves come first.
        command: what was typed; None for what ``real_translators.py`` needs.
    """
    translator, notes = translator_of(folder)
    config = RunConfig.from_notes(notes["config"])
    sizes = ("d_model", "n_heads", "n_encoder_layers", "n_decoder_layers", "d_ff", "dropout")
    options = TrainOptions(
        data="multi30k",
        source=config.source,
        target=config.target,
        text="raw",
        vocab_size=config.vocab_size,
        model_options={name: getattr(config, name) for name in sizes} | {"norm_first": True},
        epochs=notes["epoch"],
        max_tokens=config.max_tokens,
        learning_rate=config.learning_rate,
        warmup=config.warmup,
        seed=config.seed,
    )
    log = [json.loads(line) for line in (folder / "log.jsonl").read_text().splitlines()]
    if before is not None:
        first = json.loads(before.read_text())["curves"]
        log = first + [line | {"epoch": line["epoch"] + first[-1]["epoch"]} for line in log]
    command = command or typed(notes["config"], notes["epoch"])
    fingerprint = load_corpus(options, translator.text).fingerprint()
    told = {
        "options": asdict(options),
        "training": notes | {"recipe": "benchmarks/real_translators.py", "command": command, "log": log},
        "data": {"name": "multi30k", "fingerprint": fingerprint},
        "decoding": json.loads((folder / "decoding.json").read_text()),
    }
    translator.save_pretrained(output, half=True, notes=told)


def typed(config: dict[str, Any], epochs: int) -> str:
    """What to type to train such a translator again.

    Args:
        config: of the run.
        epochs: all of them, those of the decay included.

    Returns:
        The commands, joined by "&&".
    """
    usual, given = asdict(RunConfig()), []
    for name, value in config.items():
        if (
            name not in ("decay_epochs", "decay_from", "noise", "target_bpe_dropout", "averaging")
            and value != usual[name]
        ):
            given.append(f"--{name.replace('_', '-')} {value}")
    program, first = "python benchmarks/real_translators.py", config["decay_from"] or epochs
    command = " ".join([program, "train", *given, f"--epochs {first} --output runs/a"])
    if config["decay_epochs"]:
        command += f" && {program} decay --start runs/a --output runs/b --epochs {config['decay_epochs']}"
    return command


def load_exported(folder: Path) -> tuple[Transformer, Tokenizer, dict[str, Any]]:
    """What ``export`` wrote.

    Args:
        folder: of the model.

    Returns:
        The model, its tokenizer and its configuration, with the languages.
    """
    translator = Translator.from_pretrained(folder, device="cpu")
    told, text = json.loads((folder / "config.json").read_text()), translator.text
    languages = {"source": text.source, "target": text.target}
    return translator.model, translator.source_tokenizer, told | languages  # type: ignore[return-value]


def translate_test_set(folder: Path) -> list[str]:
    """The test set of 2016 as an exported model translates it, with the decoding that was chosen.

    Args:
        folder: of the model.

    Returns:
        One translation for each sentence.
    """
    model, tokenizer, config = load_exported(folder)
    pairs = load_pairs("test_2016_flickr", config["source"], config["target"])
    decoding = (config["decoding"][name] for name in ("beam_size", "length_penalty"))
    return translate(model, tokenizer, [pair.source for pair in pairs], *decoding)


def test(folder: Path, record: Path | None, beside: Path | None = None) -> dict[str, Any]:
    """Translate the test set of 2016 with the chosen decoding, and score it.

    Args:
        folder: an exported model.
        record: JSON file to write; None for none.
        beside: another exported model of the same languages, for a paired interval of the difference.

    Returns:
        The content of the record.
    """
    model, tokenizer, config = load_exported(folder)
    languages = config["source"], config["target"]
    pairs = load_pairs("test_2016_flickr", *languages)
    sources, right = (
        [pair.source for pair in pairs],
        [pair.target for pair in pairs],
    )
    decoding = {name: config["decoding"][name] for name in ("beam_size", "length_penalty")}
    found = translate_test_set(folder)
    scores, ranges = (
        score(found, right, languages[1]),
        intervals(found, right, languages[1]),
    )
    metrics: dict[str, Any] = {}
    for name, entry in scores.items():
        metrics[f"test_{name}"] = entry | {"value": round(entry["value"], 2)}
        if name in ranges:
            metrics[f"test_{name}"]["interval_95"] = ranges[name]
    examples = encode_pairs(pairs, tokenizer, tokenizer)
    metrics["test_loss"] = {"value": round(evaluate_loss(model, batches(examples, 4000)), 4)}
    metrics["test_sentences"] = {"value": len(pairs)}
    training, size = config["training"], sum(p.numel() for p in model.parameters())
    content = {
        **run_metadata(
            training.get("command") or typed(training["config"], training["epoch"]), [training["config"]["seed"]]
        ),
        "data": "multi30k",
        "model": f"transformer, {size} parameters",
        "parameters": size,
        "decoding": {"weights": "moving average, half precision", **decoding},
        "decoding_choice": {k: config["decoding"][k] for k in ("split", "tried")},
        "options": training["config"],
        "metrics": metrics,
        "by_length": {"test": by_length(sources, found, right, languages)},
        "curves": training["log"],
    }
    if beside is not None:
        texts = (found, translate_test_set(beside), right)
        split = [[moses_tokenize(text, languages[1]) for text in side] for side in texts]
        ends = difference(*split, BLEU(tokenize="none", force=True))
        content["test_bleu_minus"] = {"model": beside.name, "interval_95": ends}
    card = CARD.format(
        name=folder.name,
        parameters=size,
        source=languages[0],
        target=languages[1],
        also=ALSO * ("--sources" in content["command"]),
        command=content["command"],
        decoding=", ".join(f"{name.replace('_', ' ')} {value}" for name, value in decoding.items()),
        scores="; ".join(
            f"{label} {metrics[name]['value']} {metrics[name]['interval_95']}" for name, label in SHOWN.items()
        ),
        license=DATA_LICENSES["multi30k"],
    )
    write_atomically(folder / "README.md", card.encode())
    if record:
        write_json(record, content)
    return content


def odd(folder: Path) -> dict[str, Any]:
    """Translate the odd inputs of ``tests/data`` and compare with what is acceptable.

    Args:
        folder: an exported model.

    Returns:
        By kind of input and for all: how many, how many exactly right, chrF against the
        acceptable translations.
    """
    model, tokenizer, config = load_exported(folder)
    lines = ODD_INPUTS.read_text(encoding="utf-8").splitlines()[1:]
    rows = [line.split("\t") for line in lines]
    rows = [row for row in rows if row[1] == config["source"]]
    decoding = (config["decoding"][name] for name in ("beam_size", "length_penalty"))
    found = translate(model, tokenizer, [row[2] for row in rows], *decoding)
    groups: dict[str, list[tuple[str, list[str]]]] = {}
    for (kind, _, text, expected), written in zip(rows, found, strict=True):
        accepted = expected.split(" | ")
        right = clean(written) in accepted
        print(f"{'yes' if right else 'NO '} {kind:16} {text!r} -> {written!r}")
        for name in (kind, "all"):
            groups.setdefault(name, []).append((written, accepted))
    result = {}
    for name, group in groups.items():
        most = max(len(accepted) for _, accepted in group)
        streams = [[a[i] if i < len(a) else a[0] for _, a in group] for i in range(most)]
        result[name] = {
            "inputs": len(group),
            "right": sum(written in accepted for written, accepted in group),
            "chrf": round(CHRF().corpus_score([w for w, _ in group], streams).score, 1),
        }
        print(name, json.dumps(result[name]))
    return result


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line.

    Args:
        arguments: None for those of the process.
    """
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    commands = parser.add_subparsers(dest="task", required=True)
    one = commands.add_parser("choose")
    one.add_argument("--run", type=Path, required=True)
    one.add_argument("--beams", type=int, nargs="+", default=[5])
    one.add_argument("--length-penalties", type=float, nargs="+", default=[0.6, 1.0, 1.4])
    two = commands.add_parser("export")
    two.add_argument("--run", type=Path, required=True)
    two.add_argument("--output", type=Path, required=True)
    two.add_argument("--before", type=Path, help="record of the translator whose training it went on with")
    two.add_argument("--command", help="what was typed, if it was not real_translators.py")
    three = commands.add_parser("test")
    three.add_argument("--model", type=Path, required=True)
    three.add_argument("--record", type=Path)
    three.add_argument("--beside", type=Path, help="another exported model, for the interval of the difference")
    four = commands.add_parser("odd")
    four.add_argument("--model", type=Path, required=True)
    options = parser.parse_args(arguments)
    torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", "1")))
    if options.task == "choose":
        choose(options.run, options.beams, options.length_penalties)
    elif options.task == "export":
        export(options.run, options.output, options.before, options.command)
    elif options.task == "test":
        content = test(options.model, options.record, options.beside)
        print(json.dumps({k: content[k] for k in ("metrics", "by_length")}, indent=1))
    else:
        odd(options.model)


if __name__ == "__main__":
    main()
