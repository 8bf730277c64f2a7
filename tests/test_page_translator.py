"""The translator of the pages: the same tokens, scores and attention in JavaScript as in Python, and how it behaves."""

from __future__ import annotations

import json
import random
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from browser import NARROW, launch, serve

from tools import page_example
from tools.page_example import ask_node
from transformer_lib import Tokenizer, Translator, build_model, make_captions, results
from transformer_lib.decoding.beam_search import beam_search
from transformer_lib.translation.translator import TextPreparation, find_pretrained

ROOT = Path(__file__).resolve().parents[1]
RECORD = results.load("page-translator")
SENTENCES = ["Ein Hund läuft im Schnee.", "Two dogs are playing, aren't they?", "naïve Größe 42", "🐕 … Ġ"]
needs_node = pytest.mark.skipif(shutil.which("node") is None, reason="there is no Node")


# ---- the script under Node ----


def random_strings(count: int) -> list[str]:
    """Strings of words, of spaces and signs, and of any code point that is not a surrogate."""
    rng = random.Random(0)
    words = [
        *[
            "The",
            "dog's",
            "naïve",
            "übergroße",
            "Straße",
            "it'll",
            "I'm",
            "1234",
            "x²",
            "…",
            "—",
            "(",
            "'",
            '"',
            ".",
            ",",
            "Ġ",
        ],
        "\t",
        "\n",
        "\u2003",
        "\x1c",
    ]

    def character() -> str:
        point = rng.choice((rng.randrange(128), rng.randrange(0x3000), rng.randrange(0x110000)))
        return chr(point) if not 0xD800 <= point < 0xE000 else " "

    kinds = (lambda: rng.choice(words) + rng.choice(("", " ")), lambda: rng.choice(" ab'sS1.\n\t\u00a0é"), character)
    return ["".join(kind() for _ in range(rng.randrange(20))) for kind in rng.choices(kinds, k=count)]


@needs_node
def test_both_tokenizers_agree_on_any_text() -> None:
    texts = random_strings(1000)
    pieces = Tokenizer.train([*SENTENCES * 3, *(pair.source for pair in make_captions(50, seed=1))], 400)
    words = Tokenizer.train([text for text in texts if text.strip()], level="word")
    for tokenizer in (pieces, words):
        content = {"level": tokenizer.level, "pieces": tokenizer.pieces, "merges": tokenizer.merges}
        expected = [[ids := tokenizer.encode(text), tokenizer.decode(ids)] for text in texts]
        assert ask_node(tokenizer=content, texts=texts) == expected


TRANSFORMERS = {
    "post": {},
    "pre": {"norm_first": True, "n_encoder_layers": 3, "n_decoder_layers": 1},
    "learned": {"positions": "learned", "tie_embeddings": "none", "output_bias": True, "activation": "swish"},
    "narrow": {"tie_embeddings": "target", "bias": False, "d_key": 5, "d_value": 7, "final_norm": True},
}
RECURRENT: dict[str, tuple[str, dict[str, Any]]] = {
    "one vector": ("gru", {}),
    "one vector, deep": ("gru", {"n_layers": 2, "reverse_source": True}),
    "bahdanau": ("bahdanau", {}),
    "bahdanau, deep": ("bahdanau", {"n_layers": 2}),
    "dot": ("luong", {"score": "dot"}),
    "general, deep": ("luong", {"score": "general", "n_layers": 2}),
    "concat, no input feeding": ("luong", {"score": "concat", "input_feeding": False}),
}
MODELS = {name: ("transformer", changes) for name, changes in TRANSFORMERS.items()} | RECURRENT
SIZES = {"transformer": {"n_heads": 2, "d_ff": 24, "n_encoder_layers": 2, "n_decoder_layers": 2, "max_length": 64}}


def random_translator(kind: str, changes: dict[str, Any], folder: Path, half: bool = True) -> Translator:
    """A translator with random weights, saved and read again, as the page reads it."""
    tokenizer = Tokenizer.train(SENTENCES * 3, 280)
    sizes = {"source_vocab_size": len(tokenizer), "target_vocab_size": len(tokenizer), "d_model": 16}
    torch.manual_seed(0)
    model = build_model(kind, {**sizes, **SIZES.get(kind, {"d_hidden": 12}), **changes})
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.4)
    made = Translator(model, tokenizer, tokenizer, text=TextPreparation(source="de", target="en"))
    return Translator.from_pretrained(made.save_pretrained(folder, half=half), device="cpu")


@needs_node
@pytest.mark.parametrize("half", [True, False], ids=["half", "single"])
@pytest.mark.parametrize(("kind", "changes"), MODELS.values(), ids=MODELS)
def test_every_model_that_the_page_can_run(kind: str, changes: dict[str, Any], half: bool, tmp_path: Path) -> None:
    folder = tmp_path / "x"
    translator = random_translator(kind, changes, folder, half)
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    config["decoding"] = {"length_penalty": 1.0, "max_ratio": 0.7}  # the folder says how it is best searched
    (folder / "config.json").write_text(json.dumps(config), encoding="utf-8")
    for beam_size, penalty in ((1, 0.6), (4, 1.0)):
        options = {"beamSize": beam_size, "maxLength": 12}
        options |= {"lengthPenalty": penalty} if penalty != 1.0 else {}
        found = ask_node(folder=str(folder), jobs=SENTENCES, options=options)
        for text, one in zip(SENTENCES, found, strict=True):
            (best,) = translator.search(
                [text], beam_size=beam_size, length_penalty=penalty, max_length=12, max_ratio=0.7
            )[0]
            assert one["text"] == best.text
            assert one["score"] == pytest.approx(best.score, abs=1e-3)


@needs_node
@pytest.mark.parametrize(("kind", "changes"), MODELS.values(), ids=MODELS)
def test_attention_of_every_model_is_that_of_python(kind: str, changes: dict[str, Any], tmp_path: Path) -> None:
    translator = random_translator(kind, changes, tmp_path / "x")
    source = [*translator.source_tokenizer.encode(SENTENCES[0]), 2]
    (found,) = ask_node(folder=str(tmp_path / "x"), jobs=[source], options={"maxLength": 8}, cross=True)[0]
    if kind == "gru":  # has none
        assert found["cross"] == [[]] * len(found["tokens"])
        return
    written = torch.tensor([[1, *found["tokens"][:-1]]])
    maps = translator._weights(torch.tensor([source]), written)["cross"]  # (L, H, T, S)
    assert torch.allclose(torch.tensor(found["cross"]), maps.permute(2, 0, 1, 3), atol=1e-4)


TYPED = [
    "The dog does not cross the street because it is too wide.",
    "the dog sleeps",
    "  A small girl ,who is hungry, eats bread!? ",
    "The Spaceship sleeps…",
    "",
    " . ",
]


@needs_node
def test_text_is_prepared_and_restored_as_in_python() -> None:
    translator = Translator.from_pretrained("captions-en-de", device="cpu")
    found = ask_node(folder=str(find_pretrained("captions-en-de")), jobs=TYPED, options={"beamSize": 5})
    assert [one["text"] for one in found] == [best[0].text for best in translator.search(TYPED)]


@needs_node
def test_the_recorded_example_is_what_the_model_does() -> None:
    translator = Translator.from_pretrained("captions-en-de", device="cpu")
    for key, one in RECORD["examples"].items():
        animal, place, reason = key.split()
        text = RECORD["pattern"].format(animal, place, reason)
        assert "".join(translator.stream(text)) == " ".join(one["target"])
        pronoun = next(i for i, word in enumerate(one["target"]) if word in ("er", "sie", "es"))
        noun, weight = max(one["weights"][pronoun], key=lambda pair: pair[1])
        assert one["source"][noun] == (place if reason == "wide" else animal) and weight > 900
    assert page_example.examples(RECORD["head"]) == RECORD["examples"]


@pytest.mark.slow
def test_the_recorded_head_is_the_one_that_points_most_often() -> None:
    translator = Translator.from_pretrained("captions-en-de", device="cpu")
    assert page_example.pointing(translator) == (RECORD["head"], RECORD["metrics"])


@needs_node
@pytest.mark.slow
@pytest.mark.parametrize("beam_size", [1, 5])
def test_captions_are_translated_as_by_pytorch(beam_size: int) -> None:
    translator = Translator.from_pretrained("captions-en-de", device="cpu")
    sources = [[*translator.source_tokenizer.encode(pair.source), 2] for pair in make_captions(50, seed=3)]
    folder = str(find_pretrained("captions-en-de"))
    theirs = ask_node(folder=folder, jobs=sources, options={"beamSize": beam_size})
    for source, (best, *_) in zip(sources, theirs, strict=True):
        mine = beam_search(translator.model, torch.tensor([source]), translator.decoding, beam_size=beam_size)
        assert [token for token in mine.tokens[0, 0].tolist() if token] == best["tokens"]
        assert mine.scores[0, 0].item() == pytest.approx(best["score"], abs=1e-3)


@needs_node
def test_attention_is_that_of_python() -> None:
    text = RECORD["pattern"].format(*RECORD["start"])
    (found,) = ask_node(folder=str(find_pretrained("captions-en-de")), jobs=[text], head=RECORD["head"])
    layer, head = RECORD["head"]
    translator = Translator.from_pretrained("captions-en-de", device="cpu")
    rows = translator.attention(text, found["text"]).cross[layer, head]
    comma = 6  # shares a box with the word before
    expected = torch.cat([rows[:5], (rows[5:6] + rows[comma : comma + 1]) / 2, rows[comma + 1 : -1]])
    assert torch.allclose(torch.tensor(found["weights"]), expected, atol=1e-4)


# ---- the widget in a browser ----

PAGE = """<!doctype html><html lang="en" data-theme="{mode}"><meta charset="utf-8"><title>t</title>
<meta name="viewport" content="width=device-width"><link rel="icon" href="data:,">
<link rel="stylesheet" href="book.css"><body class="bd-article">{widget}</body></html>"""


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A page with the widget and its files, as the book's extension makes them."""
    pytest.importorskip("sphinx")
    sys.path.insert(0, str(ROOT / "book" / "_ext"))
    import book_translator

    folder = tmp_path_factory.mktemp("site")
    shipped = book_translator.models(find_pretrained("captions-en-de").parent)
    for mode in ("light", "dark"):
        text = PAGE.format(mode=mode, widget=book_translator.page(RECORD, shipped, "files"))
        (folder / f"{mode}.html").write_text(text, encoding="utf-8")
    shutil.copy(ROOT / "book" / "_static" / "book.css", folder)
    shutil.copytree(ROOT / "book" / "_static" / "fonts", folder / "fonts")
    book_translator.copy_files(folder / "files")
    return folder


@pytest.fixture(scope="module")
def browser() -> Any:
    with launch() as found:
        yield found


def opened(browser: Any, address: str, **options: Any) -> tuple[Any, list[str]]:
    """The page, and everything that went wrong on it or left for another host."""
    page = browser.new_context(**options).new_page()
    problems: list[str] = []
    page.on("console", lambda message: problems.append(message.text))
    page.on("pageerror", lambda error: problems.append(str(error)))
    page.on(
        "request",
        lambda request: (
            None if request.url.startswith((address.rsplit("/", 1)[0], "data:")) else problems.append(request.url)
        ),
    )
    page.goto(address)
    return page, problems


HIDDEN = """() => {  // points of the curve that lie behind a word
  const path = document.querySelector(".tl-picture path");
  const frame = document.querySelector("svg").getBoundingClientRect();
  const words = [...document.querySelectorAll(".tl-source span, .tl-target button")];
  const boxes = words.map((one) => one.getBoundingClientRect());
  const points = [...Array(90).keys()].map((i) => path.getPointAtLength((path.getTotalLength() * (i + 5)) / 100));
  return points.filter(({ x, y }) => boxes.some((box) => box.left - frame.left < x && x < box.right - frame.left
    && box.top - frame.top < y && y < box.bottom - frame.top)).length;
}"""
READY = "() => document.querySelector('.tl-settings.tl-loaded')"
SPOKEN = "(text) => document.querySelector('.tl-says').textContent === text"


@pytest.mark.slow
def test_the_widget_shows_loads_translates_and_keeps(site: Path, browser: Any) -> None:
    with serve(site) as root:
        page, problems = opened(browser, f"{root}light.html", reduced_motion="reduce")
        asked: list[str] = []
        page.on("request", lambda request: asked.append(request.url))
        assert page.inner_text(".tl-state") == "er ← dog 100 %"
        page.click(".tl-changes button:text-is('wide')")
        assert page.inner_text(".tl-state") == "sie ← street 100 %" and asked == []  # recorded, nothing loaded
        assert page.locator(".tl-picture path").count() == 1
        assert "(3.0 MB)" in page.inner_text(".tl-form button") and "no terms" in page.inner_text(".tl-terms")

        page.focus("input")  # from here on by keyboard alone
        page.keyboard.press("Enter")
        page.wait_for_function(READY)
        page.wait_for_function(SPOKEN, arg="Der Hund überquert die Straße nicht, weil sie zu breit ist.")
        page.fill("input", "Two hungry dogs are eating the spaceship.")
        page.keyboard.press("Enter")
        page.wait_for_function("() => document.querySelector('.tl-notice').textContent.includes('spaceship')")
        assert page.inner_text(".tl-source .tl-unknown") == "spaceship."
        page.fill("input", "The cat sleeps because it is tired.")
        page.wait_for_function(SPOKEN, arg="Die Katze schläft, weil sie müde ist.")  # without Enter
        page.focus(".tl-target button[tabindex='0']")
        page.keyboard.press("Home")
        assert page.inner_text(".tl-target button[aria-pressed='true']") == "Die"
        page.keyboard.press("ArrowRight")
        assert page.inner_text(".tl-state").startswith("Katze ← cat")
        widths = page.locator(".tl-settings label:nth-child(2) option").all_inner_texts()
        assert widths == ["beam of 5", "greedy"]
        page.select_option(".tl-settings label:nth-child(2) select", "1")
        page.wait_for_function(SPOKEN, arg="Die Katze schläft, weil sie müde ist.")

        page.fill("input", "cat " * 200)  # too long: refused, and the old translation does not stay
        page.wait_for_function("() => document.querySelector('.tl-notice').textContent.includes('takes 500')")
        assert page.locator(".tl-target button").count() == 0

        page.select_option(".tl-settings label:nth-child(1) select", label="Multi30k, German to English")
        assert (
            page.input_value("input") == "Zwei Hunde spielen im Schnee."
            and page.locator(".tl-changes:visible").count() == 0
        )
        assert page.locator(".tl-target button").count() == 0 and "photographs only" in page.inner_text(".tl-terms")
        page.click(".tl-tries button:nth-child(3)")  # loads and translates
        page.wait_for_function(SPOKEN, arg="Three children are sitting on a bench.")
        page.fill("input", "Zwei Hunde spielen im Schnee. " * 16)
        page.wait_for_function("() => document.querySelector('.tl-notice').textContent.includes('after 100 tokens')")
        page.fill("input", "Два Zxqwvkpt")
        page.wait_for_function("() => document.querySelector('.tl-notice').textContent.includes('Два, Zxqwvkpt')")
        page.select_option(".tl-settings label:nth-child(1) select", label="Multi30k, English to German")
        assert page.input_value("input") == "Two dogs are playing in the snow."
        page.select_option(".tl-settings label:nth-child(1) select", label="Captions, English to German")
        assert page.inner_text(".tl-state") == "sie ← street 100 %"  # the recorded example again

        asked.clear()
        page.reload()
        page.wait_for_function("() => document.querySelector('.tl-form button').textContent.includes('kept here')")
        page.click(".tl-form button")
        page.wait_for_function(READY)
        assert not [url for url in asked if "safetensors" in url] and problems == []
        page.context.close()


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["light", "dark"])
def test_the_widget_fits_a_phone_and_degrades(site: Path, browser: Any, mode: str) -> None:
    with serve(site) as root:
        page, problems = opened(browser, f"{root}{mode}.html", viewport=NARROW, reduced_motion="reduce")
        assert page.evaluate("() => document.documentElement.scrollWidth") <= 390
        assert page.evaluate(HIDDEN) == 0
        page.route("**/*.safetensors*", lambda route: route.abort())
        page.click(".tl-form button")
        page.wait_for_function("() => document.querySelector('.tl-notice').textContent.includes('could not be loaded')")
        assert page.locator(".tl-target button").count() == 0
        assert all("Failed to load" in one or "ERR_FAILED" in one for one in problems)  # what the browser itself says
        page.context.close()

        page, problems = opened(browser, f"{root}{mode}.html", java_script_enabled=False)
        text = " ".join(page.inner_text("body").split())
        assert "weil er zu müde ist." in text and "weil sie zu breit ist." in text
        assert "Load the translator" not in text and problems == []
        page.context.close()
