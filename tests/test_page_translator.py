"""The translator of the pages: the same tokens, scores and attention in JavaScript as in Python, and how it behaves."""

from __future__ import annotations

import json
import re
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from pages import prose_of

from transformer_lib import Tokenizer, Transformer, TransformerConfig, Translator, make_captions
from transformer_lib.translation.text import TextPreparation
from transformer_lib.translation.translator import find_pretrained, pretrained_names

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "benchmarks"), str(ROOT / "tools")]
import page_translator  # noqa: E402

ask_node = page_translator.ask_node
RECORD = json.loads((ROOT / "transformer_lib/results/page-translator.json").read_text(encoding="utf-8"))
SENTENCES = ["Ein Hund läuft im Schnee.", "Two dogs are playing, aren't they?", "naïve Größe 42", "🐕 … Ġ"]
needs_node = pytest.mark.skipif(shutil.which("node") is None, reason="there is no Node")


# ---- the script under Node ----


@needs_node
def test_both_tokenizers_agree_on_any_text() -> None:
    texts = page_translator.random_strings(1000)
    pieces = Tokenizer.train([*SENTENCES * 3, *(pair.source for pair in make_captions(50, seed=1))], 400)
    words = Tokenizer.train([text for text in texts if text.strip()], level="word")
    for tokenizer in (pieces, words):
        content = {"level": tokenizer.level, "pieces": tokenizer.pieces, "merges": tokenizer.merges}
        expected = [[ids := tokenizer.encode(text), tokenizer.decode(ids)] for text in texts]
        assert ask_node(tokenizer=content, texts=texts) == expected


OPTIONS = {
    "post": {},
    "pre": {"norm_first": True, "n_encoder_layers": 3, "n_decoder_layers": 1},
    "learned": {"positions": "learned", "tie_embeddings": "none", "output_bias": True, "activation": "swish"},
    "narrow": {"tie_embeddings": "target", "bias": False, "d_key": 5, "d_value": 7, "final_norm": True},
}


@needs_node
@pytest.mark.parametrize("half", [True, False], ids=["half", "single"])
@pytest.mark.parametrize("changes", OPTIONS.values(), ids=OPTIONS)
def test_every_transformer_that_can_be_saved(changes: dict[str, Any], half: bool, tmp_path: Path) -> None:
    tokenizer = Tokenizer.train(SENTENCES * 3, 280)
    sizes = {"d_model": 16, "n_heads": 2, "d_ff": 24, "n_encoder_layers": 2, "n_decoder_layers": 2, "max_length": 64}
    config = TransformerConfig(len(tokenizer), len(tokenizer), **{**sizes, **changes})
    torch.manual_seed(0)
    model = Transformer(config)
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.4)
    folder = Translator(model, tokenizer, tokenizer, text=TextPreparation()).save_pretrained(tmp_path / "x", half=half)
    translator = Translator.from_pretrained(folder, device="cpu")
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    config["decoding"] = {"length_penalty": 1.0}  # the folder says how it is best searched
    (folder / "config.json").write_text(json.dumps(config), encoding="utf-8")
    for beam_size, penalty in ((1, 0.6), (4, 1.0)):
        options = {"beamSize": beam_size, "maxLength": 12}
        options |= {"lengthPenalty": penalty} if penalty != 1.0 else {}
        found = ask_node(folder=str(folder), jobs=SENTENCES, options=options)
        for text, one in zip(SENTENCES, found, strict=True):
            (best,) = translator.search([text], beam_size=beam_size, length_penalty=penalty, max_length=12)[0]
            assert one["text"] == best.text
            assert one["score"] == pytest.approx(best.score, abs=1e-3)


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
    assert page_translator.examples() == RECORD["examples"]
    translator = Translator.from_pretrained("captions-en-de", device="cpu")
    for key, one in RECORD["examples"].items():
        text = RECORD["pattern"].format(*key.split())
        assert "".join(translator.stream(text)) == " ".join(one["target"])
        pronoun = next(i for i, word in enumerate(one["target"]) if word in page_translator.PRONOUNS)
        noun, weight = max(one["weights"][pronoun], key=lambda found: found[1])
        animal, place, reason = key.split()
        assert one["source"][noun] == (place if reason == "wide" else animal) and weight > 900


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


# ---- what was measured ----


def test_the_record_says_equal() -> None:
    for row in RECORD["rows"]:
        assert row["equal_of_200_greedy"] == 200 and row["equal_of_50_beam_5"] == 50
        assert row["equal_of_1000_strings"] == 1000 and row["score_difference"] < 1e-3
    assert RECORD["metrics"]["head_points_to_the_noun"] >= 0.985


def test_the_pages_say_what_the_record_says() -> None:
    prose = " ".join(prose_of("appendix/how_this_page_translates").split())
    facts = RECORD["metrics"]
    assert f"the {facts['captions_with_it']} captions" in prose
    assert f"{100 * facts['head_points_to_the_noun']:.0f} % of them" in prose
    assert f"no other head in more than {100 * facts['no_other_head_more_than']:.0f} %" in prose
    assert "200 of 200 sentences" in prose and "50 of 50" in prose and "1,000 strings of 1,000" in prose
    assert max(row["score_difference"] for row in RECORD["rows"]) < 1e-5
    assert all(4 < row["ms_per_token"] < 6 for row in RECORD["rows"]) and "about five thousandths of a second" in prose
    index = (ROOT / "book" / "index.md").read_text(encoding="utf-8")
    assert "in 99 % of the 223 test captions" in index and "1.5 million parameters" in index
    assert "1,453,568 parameters" in (find_pretrained("captions-en-de") / "README.md").read_text(encoding="utf-8")


def test_the_script_is_small_and_asks_nobody() -> None:
    assert sum(map(page_translator.packed, page_translator.SCRIPTS)) < 10_000
    files = [ROOT / "transformer_lib" / "viz" / name for name in page_translator.SCRIPTS]
    for path in files:
        text = path.read_text(encoding="utf-8")
        assert not re.search(r"https?:", text) and "innerHTML" not in text
        assert max(map(len, text.splitlines())) <= 100


@needs_node
@pytest.mark.slow
@pytest.mark.parametrize("name", pretrained_names())
def test_two_hundred_sentences_are_translated_as_by_pytorch(name: str) -> None:
    try:
        texts = [pair.source for pair in page_translator.test_pairs(name)]
    except (OSError, ValueError):
        pytest.skip("Multi30k is not here")
    assert page_translator.compare(name, texts[:200], 1)[0] == 200
    equal, difference, _ = page_translator.compare(name, texts[:50], 5)
    assert equal == 50 and difference < 1e-3


@pytest.mark.slow
def test_a_hundred_translations_leave_the_memory_as_it_was() -> None:
    pytest.importorskip("playwright")
    from browser import chromium

    if chromium() is None:
        pytest.skip("there is no Chromium")
    seen = page_translator.in_browser("captions-en-de", [pair.source for pair in make_captions(20, seed=1)])
    assert seen["heap"][1] - seen["heap"][0] < 4e6


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
    pytest.importorskip("playwright")
    from browser import chromium, launch

    if chromium() is None:
        pytest.skip("there is no Chromium")
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


READY = "() => document.querySelector('.tl-settings.tl-loaded')"
SPOKEN = "(text) => document.querySelector('.tl-says').textContent === text"


@pytest.mark.slow
def test_the_widget_shows_loads_translates_and_keeps(site: Path, browser: Any) -> None:
    from browser import serve

    with serve(site, "/") as root:
        page, problems = opened(browser, f"{root}light.html", reduced_motion="reduce")
        asked: list[str] = []
        page.on("request", lambda request: asked.append(request.url))
        assert page.inner_text(".tl-state") == "er ← dog 100 %"
        page.click(".tl-changes button:text-is('wide')")
        assert page.inner_text(".tl-state") == "sie ← street 100 %" and asked == []  # recorded, nothing loaded
        assert page.locator(".tl-picture path").count() == 1
        assert "(2.9 MB)" in page.inner_text(".tl-form button") and "no terms" in page.inner_text(".tl-terms")

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
        page.select_option(".tl-settings label:nth-child(2) select", "5")
        page.wait_for_function(SPOKEN, arg="Die Katze schläft, weil sie müde ist.")

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
    from browser import NARROW, serve

    with serve(site, "/") as root:
        page, problems = opened(browser, f"{root}{mode}.html", viewport=NARROW, reduced_motion="reduce")
        assert page.evaluate("() => document.documentElement.scrollWidth") <= 390
        page.route("**/*.safetensors*", lambda route: route.abort())
        page.click(".tl-form button")
        page.wait_for_function(
            "() => document.querySelector('.tl-notice').textContent.includes('recorded example stays')"
        )
        assert page.inner_text(".tl-state") == "er ← dog 100 %"
        assert all("Failed to load" in one or "ERR_FAILED" in one for one in problems)  # what the browser itself says
        page.context.close()

        page, problems = opened(browser, f"{root}{mode}.html", java_script_enabled=False)
        text = " ".join(page.inner_text("body").split())
        assert "weil er zu müde ist." in text and "weil sie zu breit ist." in text
        assert "Load the translator" not in text and problems == []
        page.context.close()
