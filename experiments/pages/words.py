"""What each shipped translator knows, and how sure it usually is: the first page and the library warn by it.

    python -m experiments.pages.words [NAME ...]

Writes `known.json` into the folders of the named translators, or of all. Needs their corpora: Multi30k, everyday.
"""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

from transformer_lib import Translator
from transformer_lib.translation.export import learned
from transformer_lib.translation.known import FILE, Known
from transformer_lib.translation.run import read_options
from transformer_lib.translation.translator import SHIPPED, pretrained_names


def measure(folder: Path) -> Known:
    """What the translator of a folder knows."""
    stored, options = read_options(folder)
    translator = Translator.from_pretrained(folder, device="cpu")
    known = learned(translator, stored, replace(options, extra=None))  # its words are in the corpus, too
    if known is None:
        raise ValueError(f"the corpus of {folder} is not at hand")
    return known


def main(names: list[str]) -> None:
    """Write the files."""
    for name in names or pretrained_names():
        known = measure(SHIPPED / name)
        known.save(SHIPPED / name / FILE)
        print(f"{name}: {len(known.source)} and {len(known.target)} words, {known.wrong}, {known.unsure}", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
