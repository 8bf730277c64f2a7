"""The searches to walk through: they find what the library finds, and are safe and always the same."""

import json
import re
from typing import Any

import pytest
import torch

from transformer_lib import Translator, beam_search, greedy_decode, viz
from transformer_lib.data.tokenizer import EOS

TEXTS = ["the dog sleeps", "The dog does not cross the street because it is too wide."]


@pytest.fixture(scope="module")
def translator() -> Translator:
    return Translator.from_pretrained("captions-en-de", device="cpu")


def source_of(translator: Translator, text: str) -> torch.Tensor:
    ready = translator.text.prepare(text, translator.source_tokenizer)
    return torch.tensor([[*translator.source_tokenizer.encode(ready), EOS]])


def steps_of(viewer: viz.Viewer) -> list[list[Any]]:
    """What each step shows: what is said, and then the places."""
    data = re.search(r'<script type="application/json">(.*?)</script>', viewer.html, re.S)[1]
    return json.loads(data)[0]["table"]


@pytest.mark.parametrize("text", TEXTS)
@pytest.mark.parametrize("beam_size", [1, 3])
def test_the_beam_finds_what_beam_search_finds(translator: Translator, text: str, beam_size: int) -> None:
    viewer = viz.beam_viewer(translator, text, beam_size=beam_size, length_penalty=1.0)
    options = {"beam_size": beam_size, "length_penalty": 1.0, "max_length": 40}
    best = beam_search(translator.model, source_of(translator, text), **options)
    assert viewer.summary.endswith(f": {translator.target_tokenizer.decode(best.tokens[0, 0].tolist())} <eos>")
    assert f"finished, score {best.scores[0, 0]:.2f}" in viewer.html
    assert all(step.count("goes on") <= beam_size for step in steps_of(viewer)[0][0])
    assert 'data-begin="0"' in viewer.html
    assert 'data-begin="1"' in viz.beam_viewer(translator, text, beam_size=beam_size, step=2).html


@pytest.mark.parametrize("text", TEXTS)
def test_every_step_of_greedy_decoding_is_there(translator: Translator, text: str) -> None:
    source = source_of(translator, text)
    (tokens,) = greedy_decode(translator.model, source).tolist()
    found = steps_of(viz.decoding_viewer(translator, text, choices=3))
    assert len(found) == len(tokens) and all(len(step) == 1 + source.shape[1] + 1 + 15 for step in found)
    rows = [step[source.shape[1] + 2 :] for step in found]  # after the weights and the caption
    assert all(row[4::5] == ["written", "", ""] and row[0::5] == [1, 0, 0] for row in rows)
    written = [row[2] for row in rows]
    assert written[:-1] == translator.target_tokenizer.decode(tokens).split() and written[-1] == "<eos>"
    assert all(98 <= sum(step[1 : 1 + source.shape[1]]) <= 102 for step in found)


def test_a_model_keeps_its_mode_and_blank_text_is_refused(translator: Translator) -> None:
    translator.model.train()
    once = viz.beam_viewer(translator, "the dog sleeps").html
    assert translator.model.training
    translator.model.eval()
    assert once == viz.beam_viewer(translator, "the dog sleeps").html
    for show in (viz.beam_viewer, viz.decoding_viewer):
        with pytest.raises(ValueError, match="blank"):
            show(translator, " . ")
