"""The searches to walk through: they find what the library finds, and are safe and always the same."""

import re

import pytest
import torch

from transformer_lib import Translator, beam_search, greedy_decode, viz
from transformer_lib.data.tokenizer import EOS
from transformer_lib.viz.steps import SearchStep, step_viewer

TEXTS = ["the dog sleeps", "The dog does not cross the street because it is too wide."]


@pytest.fixture(scope="module")
def translator() -> Translator:
    return Translator.from_pretrained("captions-en-de", device="cpu")


def source_of(translator: Translator, text: str) -> torch.Tensor:
    ready = translator.text.prepare(text, translator.source_tokenizer)
    return torch.tensor([[*translator.source_tokenizer.encode(ready), EOS]])


def frames(viewer: viz.StepViewer) -> list[str]:
    return re.findall(r'<div class="tl-frame"(?: hidden)?>(.*?)</div>', viewer.html, re.S)


@pytest.mark.parametrize("text", TEXTS)
@pytest.mark.parametrize("beam_size", [1, 3])
def test_the_beam_finds_what_beam_search_finds(translator: Translator, text: str, beam_size: int) -> None:
    viewer = viz.beam_viewer(translator, text, beam_size=beam_size, length_penalty=1.0)
    options = {"beam_size": beam_size, "length_penalty": 1.0, "max_length": 40}
    ((best, *_),) = beam_search(translator.model, source_of(translator, text), **options)
    assert viewer.summary.endswith(f": {translator.target_tokenizer.decode(best.tokens)} <eos>")
    assert f"finished, score {best.score:.2f}" in viewer.html
    assert all(frame.count("goes on") <= beam_size for frame in frames(viewer))


@pytest.mark.parametrize("text", TEXTS)
def test_every_step_of_greedy_decoding_is_there(translator: Translator, text: str) -> None:
    source = source_of(translator, text)
    (tokens,) = greedy_decode(translator.model, source).tolist()
    found = frames(viz.decoding_viewer(translator, text, choices=3))
    assert len(found) == len(tokens) and all(frame.count("<tr") == 3 for frame in found)
    written = [re.search(r"<td[^>]*>([^<]*)</td><td>[^<]*</td><td>written", frame)[1] for frame in found]
    assert written[:-1] == translator.target_tokenizer.decode(tokens).split() and written[-1] == "&lt;eos&gt;"
    assert all(frame.count("<span") == source.shape[1] for frame in found)


def test_a_model_keeps_its_mode_and_blank_text_is_refused(translator: Translator) -> None:
    translator.model.train()
    once = viz.beam_viewer(translator, "the dog sleeps").html
    assert translator.model.training
    translator.model.eval()
    assert once == viz.beam_viewer(translator, "the dog sleeps").html
    for show in (viz.beam_viewer, viz.decoding_viewer):
        with pytest.raises(ValueError, match="blank"):
            show(translator, " . ")


def test_words_are_escaped_and_nothing_is_loaded() -> None:
    viewer = step_viewer([SearchStep("<b>", [("<b>", 0.5, "<b>", "")], [("<b>", 1.0)])] * 2, "<b>")
    assert "<b>" not in viewer.html and viewer.html.count(" hidden>") == 1
    for word in ("http", "src=", "@import", "url("):
        assert word not in viewer.html
    assert "html" not in repr(viewer) and viewer._repr_html_() == viewer.html
