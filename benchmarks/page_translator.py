"""The translator of the pages against PyTorch: equal tokens and scores, its size, its speed in a browser, its memory.

    TRANSFORMER_LIB_DATA=FOLDER python benchmarks/page_translator.py [--record results/page-translator.json]

Needs Node, Chromium and ``pip install playwright``. The record also holds the example that the first page of the book
shows before anything is loaded, and how often one head of the captions model points to the noun that "it" stands for.
"""

from __future__ import annotations

import argparse
import gzip
import json
import random
import re
import shutil
import subprocess
import sys
import tempfile
from functools import lru_cache
from itertools import product
from pathlib import Path
from typing import Any

import torch

from transformer_lib.data.captions import Pair
from transformer_lib.data.files import write_json
from transformer_lib.data.tokenizer import EOS, Tokenizer
from transformer_lib.decoding.search import beam_search
from transformer_lib.translation.evaluation import run_metadata
from transformer_lib.translation.options import load_corpus, read_options
from transformer_lib.translation.translator import Translator, find_pretrained, pretrained_names

ROOT = Path(__file__).resolve().parents[1]
VIZ, DRIVER = ROOT / "transformer_lib" / "viz", ROOT / "tests" / "translator_driver.mjs"
SCRIPTS = ("translator.js", "translator_page.js")
GREEDY, BEAM, STRINGS, MEMORY = 200, 50, 1000, 100
CAPTIONS, HEAD = "captions-en-de", (3, 0)
PATTERN = "The {0} does not cross the {1} because it is too {2}."
SLOTS = (("dog", "cat", "horse"), ("street", "river"), ("tired", "wide"))
SOME = """The dog's naïve übergroße Straße it'll I'm we've 1234 x² … — ( ) ' " . , Ġ"""
PRONOUNS = ("er", "sie", "es")

IN_BROWSER = """async ({name, texts, rounds}) => {
  const { Translator } = await import("/translator.js");
  const read = async (file) => (await fetch(`/${name}/${file}`)).arrayBuffer();
  const began = performance.now();
  const translator = await Translator.load(read);
  const loaded = performance.now();
  const finish = (steps) => { for (;;) { const { value, done } = steps.next(); if (done) return value; } };
  let tokens = 0, heap = [];
  for (let round = 0; round < rounds; round++) {
    const ids = [...translator.source.encode(texts[round % texts.length]), 2];
    tokens += finish(translator.model.search(ids))[0].tokens.length;
    if (round === 9 || round === rounds - 1) { gc(); heap.push(performance.memory.usedJSHeapSize); }
  }
  return { load: loaded - began, token: (performance.now() - loaded) / tokens, heap };
}"""


def ask_node(**asked: Any) -> Any:
    """What the script says under Node."""
    command = ["node", str(DRIVER)]
    done = subprocess.run(command, input=json.dumps(asked), capture_output=True, text=True, check=True)
    return json.loads(done.stdout)


@lru_cache
def test_pairs(name: str) -> list[Pair]:
    """The test part that a shipped model was scored on, prepared."""
    translator = Translator.from_pretrained(name, device="cpu")
    return load_corpus(read_options(find_pretrained(name)), translator.text).test


def random_strings(count: int, seed: int = 0) -> list[str]:
    """Strings of every kind of character: sentences, spaces, signs, and any code point that is not a surrogate."""
    chance = random.Random(seed)
    words = [*SOME.split(), "\t", "\n", "\u2003", "\u0085", "\x1c"]

    def character() -> str:
        point = chance.choice((chance.randrange(128), chance.randrange(0x3000), chance.randrange(0x110000)))
        return chr(point) if not 0xD800 <= point < 0xE000 else " "

    def one() -> str:
        kind = chance.random()
        if kind < 0.4:
            return chance.choice(("", " ")).join(chance.choice(words) for _ in range(chance.randrange(12)))
        if kind < 0.6:
            return "".join(chance.choice(" ab'sS1.\n\t\u00a0é") for _ in range(chance.randrange(20)))
        return "".join(character() for _ in range(chance.randrange(20)))

    return [one() for _ in range(count)]


def equal_tokenizers(path: Path, texts: list[str]) -> int:
    """How many texts both tokenizers turn into the same ids, and these into the same text."""
    tokenizer = Tokenizer.load(path)
    found = ask_node(tokenizer=json.loads(path.read_text(encoding="utf-8")), texts=texts)
    expected = [[ids := tokenizer.encode(text), tokenizer.decode(ids)] for text in texts]
    return sum(one == other for one, other in zip(found, expected, strict=True))


def compare(name: str, texts: list[str], beam_size: int) -> tuple[int, float, float]:
    """How many translations are equal token by token, the largest difference of scores, processor time for a token."""
    translator = Translator.from_pretrained(name, device="cpu")
    sources = [[*translator.source_tokenizer.encode(text), EOS] for text in texts]
    found = ask_node(folder=str(find_pretrained(name)), jobs=sources, options={"beamSize": beam_size}, timed=True)
    equal, largest, tokens = 0, 0.0, 0
    for source, (ours, *_) in zip(sources, found["results"], strict=True):
        tokens += len(ours["tokens"])
        theirs = beam_search(translator.model, torch.tensor([source]), beam_size=beam_size)[0][0]
        equal += list(theirs.tokens) == ours["tokens"]
        largest = max(largest, abs(theirs.score - ours["score"]))
    return equal, largest, found["spent"] / tokens


def in_browser(name: str, texts: list[str]) -> dict[str, Any]:
    """Loading time, time for a token, and growth of the memory, in headless Chromium."""
    sys.path.insert(0, str(ROOT / "tools"))
    from browser import chromium, serve
    from playwright.sync_api import sync_playwright

    with tempfile.TemporaryDirectory() as folder, sync_playwright() as player:
        shutil.copy(VIZ / "translator.js", folder)
        shutil.copytree(find_pretrained(name), Path(folder) / name)
        (Path(folder) / "index.html").write_text("<!doctype html><title>t</title>", encoding="utf-8")
        arguments = ["--no-sandbox", "--js-flags=--expose-gc", "--enable-precise-memory-info"]
        browser = player.chromium.launch(executable_path=chromium(), args=arguments)
        with serve(Path(folder), "/") as address:
            page = browser.new_page()
            page.goto(address)
            found = page.evaluate(IN_BROWSER, {"name": name, "texts": texts, "rounds": MEMORY})
        browser.close()
    return found


def measure(name: str) -> dict[str, Any]:
    """One row of the record: a model."""
    texts = [pair.source for pair in test_pairs(name)]
    folder = find_pretrained(name)
    strings = random_strings(STRINGS)
    tokenizers = [equal_tokenizers(folder / f"{side}.json", strings) for side in ("source", "target")]
    greedy, _, spent = compare(name, texts[:GREEDY], 1)
    beam, difference, _ = compare(name, texts[:BEAM], 5)
    seen = in_browser(name, texts)
    files = [folder / f for f in ("config.json", "source.json", "target.json", "weights.safetensors")]
    return {
        "model": name,
        "megabytes": round(sum(path.stat().st_size for path in files) / 1e6, 1),
        f"equal_of_{GREEDY}_greedy": greedy,
        f"equal_of_{BEAM}_beam_5": beam,
        "score_difference": float(f"{difference:.1e}"),
        f"equal_of_{STRINGS}_strings": min(tokenizers),
        "seconds_to_load": round(seen["load"] / 1000, 2),
        "ms_per_token": round(seen["token"], 1),
        "processor_ms_per_token": round(spent, 1),
        f"megabytes_grown_in_{MEMORY}": round((seen["heap"][1] - seen["heap"][0]) / 1e6, 1),
    }


def examples() -> dict[str, dict[str, Any]]:
    """The recorded translations of the first page: words, and for each target word (source word, thousandths)."""
    keys = list(product(*SLOTS))
    found = ask_node(folder=str(find_pretrained(CAPTIONS)), jobs=[PATTERN.format(*key) for key in keys], head=HEAD)
    rows = [
        [[[i, round(1000 * weight)] for i, weight in enumerate(row) if weight >= 0.01] for row in one["weights"]]
        for one in found
    ]
    return {
        " ".join(key): {"source": one["source"], "target": one["target"], "weights": weights}
        for key, one, weights in zip(keys, found, rows, strict=True)
    }


def pointing() -> dict[str, Any]:
    """How often a head attends most to the noun that "it" stands for, while the correct pronoun is written."""
    translator = Translator.from_pretrained(CAPTIONS, device="cpu")
    right, total = torch.zeros(4, 4), 0
    for pair in test_pairs(CAPTIONS):
        for it, noun in pair.referents:
            places = [t for s, t in pair.alignment if s == it and pair.target.split()[t] in PRONOUNS]
            if places:
                weights = translator.attention(pair.source, pair.target, prepared=True).cross[:, :, places[0]]
                right += weights.argmax(dim=-1) == noun
                total += 1
    shares = right / total
    ours, shares[HEAD] = float(shares[HEAD]), 0.0
    found = {"head_points_to_the_noun": round(ours, 3), "no_other_head_more_than": round(float(shares.max()), 3)}
    return {**found, "captions_with_it": total}


def packed(name: str) -> int:
    """Bytes of a script as it is published, without its lines of comment, and packed."""
    text = (VIZ / name).read_text(encoding="utf-8")
    return len(gzip.compress(re.sub(r"(?m)^ *//.*\n", "", text).encode(), 9))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--record", type=Path, help="write a JSON record to this file")
    given = parser.parse_args()
    torch.set_num_threads(1)
    rows = []
    for name in pretrained_names():
        rows.append(measure(name))
        print(rows[-1], flush=True)
    facts = {"bytes_of_script_gzipped": sum(map(packed, SCRIPTS)), **pointing()}
    print(facts)
    if given.record is not None:
        content = {
            **run_metadata(f"python benchmarks/page_translator.py --record {given.record}", [0]),
            "title": "The translator in the page",
            "data": "the test parts of the models' own data",
            "notes": "seconds and milliseconds in Chromium, on a busy machine; processor time in Node",
            "metrics": facts,
            "rows": rows,
            **{"head": list(HEAD), "pattern": PATTERN, "slots": SLOTS, "start": [words[0] for words in SLOTS]},
            "examples": examples(),
        }
        write_json(given.record, content)


if __name__ == "__main__":
    main()
