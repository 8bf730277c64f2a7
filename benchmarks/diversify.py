"""Go on training a translator with the translations of other translators.

Translators of both directions translate the training pairs: German to English gives
new sources for the old targets, English to German new targets for the old sources.
Each pair is then met as it stands, or with one of its sides replaced. No text from
outside the 29,000 pairs comes in.

    python benchmarks/diversify.py translate --model multi30k-de-en --output runs/texts/a.en
    python benchmarks/diversify.py train --start multi30k-en-de --output runs/c \\
        --sources runs/texts/a.en --targets runs/texts/b.de --epochs 40
    python benchmarks/diversify.py train --output runs/c --epochs 40 --decay 15

Without ``--sources`` and ``--targets`` the training goes on with the pairs alone: the
control. ``score_translators.py`` scores what comes out.

Source: Nguyen et al. (2020), who join all translations to the pairs.
"""

import argparse
import os
import random
from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any, cast

import torch
from minimum_risk import begin
from real_translators import DECAY_AVERAGING, Run, clean, load_pairs

from transformer_lib.data.captions import Pair
from transformer_lib.data.files import write_atomically
from transformer_lib.translation.translator import Translator, find_pretrained


def write_translations(model: str, output: Path, beam_size: int) -> None:
    """Translate one side of the training pairs, a line for each; what is there already stays.

    Args:
        model: name of a shipped translator, or folder of a run.
        output: file to write.
        beam_size: of the search.
    """
    translator = Translator.from_pretrained(model, device="cpu")
    sources = [pair.source for pair in load_pairs("train", translator.text.source, translator.text.target)]
    done = output.read_text(encoding="utf-8").splitlines() if output.exists() else []
    for start in range(len(done), len(sources), 1000):
        done += [clean(t) for t in translator.translate(sources[start : start + 1000], beam_size=beam_size)]
        write_atomically(output, "".join(line + "\n" for line in done).encode())


def diversify(
    pairs: Sequence[Pair], sources: Sequence[Sequence[str]], targets: Sequence[Sequence[str]], chance: random.Random
) -> list[Pair]:
    """One epoch's pairs: every second one as it stands, the others with one side from a translator.

    Args:
        pairs: as people wrote them.
        sources: translations of the targets, a list for each translator.
        targets: translations of the sources, a list for each translator.
        chance: decides.

    Returns:
        As many pairs, in the same order.

    Raises:
        ValueError: if a list of translations is not as long as ``pairs``.
    """
    lists = [("source", texts) for texts in sources] + [("target", texts) for texts in targets]
    for side, texts in lists:
        if len(texts) != len(pairs):
            raise ValueError(f"{len(texts)} {side}s for {len(pairs)} pairs: one for each is needed")
    if not lists:
        return list(pairs)
    epoch = []
    for index, pair in enumerate(pairs):
        side, texts = chance.choice(lists)
        if chance.random() < 0.5 and texts[index]:
            pair = replace(pair, **{side: texts[index]})
        epoch.append(pair)
    return epoch


class DiversifiedRun(Run):
    """A run whose pairs are others in every epoch.

    ``sources`` and ``targets`` hold the translations: see ``diversify``.
    """

    sources: Sequence[Sequence[str]] = ()
    targets: Sequence[Sequence[str]] = ()

    @cached_property
    def written(self) -> list[Pair]:
        """The pairs as people wrote them."""
        return load_pairs("train", self.config.source, self.config.target)

    @property
    def train_pairs(self) -> list[Pair]:  # type: ignore[override]
        """What it learns from in this epoch."""
        chance = random.Random(f"{self.config.seed} {self.epoch} pairs")
        return diversify(self.written, self.sources, self.targets, chance)


def resume(start: str | None, output: Path, **changes: Any) -> DiversifiedRun:
    """The run of a folder, or a new one that begins with the weights of a translator.

    Args:
        start: name of a shipped translator, or folder of a run.
        output: folder of the run.
        changes: of the configuration, for a new run.

    Returns:
        The run.
    """
    if (output / "last.safetensors").exists():
        return cast(DiversifiedRun, DiversifiedRun.load(output))
    if start is None:
        raise ValueError(f"{output} holds no run: --start says what to begin with")
    given = begin(find_pretrained(start))
    given.tokenizer.save(output / "tokenizer.json")
    config = replace(given.config, decay_epochs=0, decay_from=0, averaging=0.999, **changes)
    run = DiversifiedRun(output, config, given.tokenizer)
    for parameter, average, weight in zip(run.parameters, run.average, given.average, strict=True):
        parameter.data.copy_(weight)
        average.copy_(weight)
    return run


def build_parser() -> argparse.ArgumentParser:
    """The options of this program."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    commands = parser.add_subparsers(dest="task", required=True)
    one = commands.add_parser("translate", help="write translations of the training pairs")
    one.add_argument("--model", required=True, help="name of a shipped translator, or folder of a run")
    one.add_argument("--output", type=Path, required=True)
    one.add_argument("--beam-size", type=int, default=5)
    two = commands.add_parser("train", help="begin a run, or go on with one")
    two.add_argument("--start", help="name of a shipped translator, or folder of a run")
    two.add_argument("--output", type=Path, required=True)
    two.add_argument("--sources", type=Path, nargs="*", default=[], help="files of translations of the targets")
    two.add_argument("--targets", type=Path, nargs="*", default=[], help="files of translations of the sources")
    two.add_argument("--epochs", type=int, required=True, help="with a constant rate")
    two.add_argument("--decay", type=int, default=0, help="epochs more in which the rate falls to zero")
    two.add_argument("--precision", choices=("float32", "bfloat16"), default="float32")
    two.add_argument("--seed", type=int, default=0)
    return parser


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line.

    Args:
        arguments: None for those of the process.
    """
    given = build_parser().parse_args(arguments)
    torch.set_flush_denormal(True)
    torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", "1")))
    if given.task == "translate":
        write_translations(given.model, given.output, given.beam_size)
        return
    run = resume(given.start, given.output, precision=given.precision, seed=given.seed)
    run.sources = [path.read_text(encoding="utf-8").splitlines() for path in given.sources]
    run.targets = [path.read_text(encoding="utf-8").splitlines() for path in given.targets]
    diversify(run.written, run.sources, run.targets, random.Random(0))  # refuses lists that do not fit
    if not run.config.decay_epochs:
        run.train(given.epochs, score_every=5)
        if given.decay:
            run.config = replace(run.config, decay_epochs=given.decay, decay_from=run.epoch, averaging=DECAY_AVERAGING)
    if run.config.decay_epochs:
        run.train(run.config.decay_from + run.config.decay_epochs, score_every=5)


if __name__ == "__main__":
    main()
