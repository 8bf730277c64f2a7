"""Experiments in the page: what a change does in JavaScript is what hooks do in PyTorch."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from experiments.pages import ask_node
from transformer_lib import Translator
from transformer_lib.models.multi_head import record_attention
from transformer_lib.translation.translator import find_pretrained

TIRED, WIDE = (f"the dog does not cross the street because it is too {word}" for word in ("tired", "wide"))
SENTENCES = {
    "captions-en-de": (TIRED, WIDE),
    "everyday-en-de": ("The dog does not bark because it is tired.", "The dog does not bark because it is happy."),
}


@pytest.mark.parametrize("columns", [1, 5, 14, 16, 33, 192])
@pytest.mark.parametrize("rows", [1, 7])
@pytest.mark.parametrize("biased", [True, False], ids=["bias", "no bias"])
def test_webassembly_multiplies(rows: int, columns: int, biased: bool) -> None:
    torch.manual_seed(rows * columns)
    weight, x, bias = torch.randn(rows, columns), torch.randn(columns), torch.randn(rows)
    question = {"rows": weight.tolist(), "x": x.tolist()} | ({"bias": bias.tolist()} if biased else {})
    (found,) = ask_node(products=[question])
    expected = weight @ x + (bias if biased else 0)
    assert torch.allclose(torch.tensor(found), expected, atol=1e-5)


# ---- the same changes by hooks ----


def part(model: nn.Module, name: str, layer: int) -> Any:
    """The attention of a layer."""
    stack = model.get_submodule(f"{'encoder' if name == 'encoder' else 'decoder'}.layers.{layer}")
    return stack.get_submodule("cross_attn" if name == "cross" else "self_attn")


@contextmanager
def hooks(handles: list[Any]) -> Iterator[None]:
    with ExitStack() as stack:
        for handle in handles:
            stack.callback(handle.remove)
        yield


def silenced(model: nn.Module, one: dict[str, Any]) -> Any:
    """Zeros in front of the output projection, in the place of a head."""
    attention = part(model, one["part"], one["layer"])
    width = attention.out_proj.in_features // model.config.n_heads  # type: ignore[union-attr]
    columns = slice(one["head"] * width, (one["head"] + 1) * width)

    def hook(module: nn.Module, given: tuple[Tensor]) -> tuple[Tensor]:
        context = given[0].clone()
        context[:, one.get("step", slice(None)), columns] = 0
        return (context,)

    return attention.out_proj.register_forward_pre_hook(hook)


def masked(model: nn.Module, name: str, layers: int, edit: Callable[[Tensor], None]) -> list[Any]:
    """A mask (1, 1, T, S) that `edit` changes, for each layer of a part."""

    def hook(module: Any, given: tuple[Any, ...], named: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
        size = given[0].shape[1], (given[1] if len(given) > 1 else given[0]).shape[1]
        mask = torch.ones(1, 1, *size, dtype=torch.bool)
        if named.pop("causal", False):
            mask = mask.tril()
        edit(mask)
        return given, named | {"mask": mask}

    return [part(model, name, n).register_forward_pre_hook(hook, with_kwargs=True) for n in range(layers)]


def expected(model: Any, source: list[int], target: list[int], handles: list[Any]) -> dict[str, Tensor]:
    """Logits and maps while the hooks are on."""
    with torch.no_grad(), hooks(handles), record_attention(model) as maps:
        logits = model(torch.tensor([source]), torch.tensor([[1, *target]]))
    found: dict[str, list[Tensor]] = {"encoder": [], "decoder": [], "cross": []}
    for name, weights in maps.items():
        found["cross" if name.endswith("cross_attn") else name.split(".")[0]].append(weights[0][0])
    stacked = {name: torch.stack(weights).permute(2, 0, 1, 3) for name, weights in found.items()}  # (T, L, H, S)
    return {"logits": logits[0]} | stacked


def compare(theirs: dict[str, Any], mine: dict[str, Tensor]) -> None:
    assert torch.allclose(torch.tensor(theirs["logits"]), mine["logits"], atol=1e-4)
    for name in ("encoder", "cross"):
        assert torch.allclose(torch.tensor(theirs[name]), mine[name], atol=1e-5)
    for step, layers in enumerate(theirs["decoder"]):
        assert torch.allclose(torch.tensor(layers).float(), mine["decoder"][step, ..., : step + 1], atol=1e-5)


@pytest.fixture(params=SENTENCES)
def case(request: pytest.FixtureRequest) -> dict[str, Any]:
    """A shipped translator with a sentence, its own translation, and a second sentence."""
    translator = Translator.from_pretrained(request.param, device="cpu")
    texts = SENTENCES[request.param]
    source, other = ([*translator.source_tokenizer.encode(text), 2] for text in texts)
    target = translator.target_tokenizer.encode(translator.translate([texts[0]])[0])
    folder = str(find_pretrained(request.param))
    return {"model": translator.model.eval(), "folder": folder, "source": source, "other": other, "target": target}


def ask(case: dict[str, Any], *changes: dict[str, Any], **more: Any) -> list[dict[str, Any]]:
    experiments = [{"source": case["source"], "target": case["target"], "change": one} for one in changes]
    return ask_node(folder=case["folder"], experiments=experiments, **more)


@pytest.mark.parametrize("plain", [False, True])
def test_without_a_change_nothing_changes(case: dict[str, Any], plain: bool) -> None:
    (found,) = ask(case, {}, plain=plain)
    compare(found, expected(case["model"], case["source"], case["target"], []))


@pytest.mark.parametrize("where", ["encoder", "decoder", "cross"])
@pytest.mark.parametrize("step", [{}, {"step": 2}], ids=["always", "once"])
def test_a_silent_head(case: dict[str, Any], where: str, step: dict[str, int]) -> None:
    ones = [{"part": where, "layer": layer, "head": head} | step for layer, head in ((1, 2), (0, 3))]
    whole, *found = ask(case, {}, *({"silence": [one]} for one in ones), {"silence": ones})
    for theirs, silent in zip(found, ([ones[0]], [ones[1]], ones), strict=True):
        mine = expected(case["model"], case["source"], case["target"], [silenced(case["model"], s) for s in silent])
        compare(theirs, mine)
        assert not torch.allclose(torch.tensor(whole["logits"]), mine["logits"], atol=0.01)


@pytest.mark.parametrize("step", [{}, {"step": 2}], ids=["always", "once"])
def test_a_hidden_word(case: dict[str, Any], step: dict[str, int]) -> None:
    model, place = case["model"], 1

    def edit(mask: Tensor) -> None:
        mask[:, :, step.get("step", slice(None)), place] = False

    whole, found = ask(case, {}, {"hide": [{"place": place} | step]})
    handles = masked(model, "cross", model.config.n_decoder_layers, edit)
    mine = expected(model, case["source"], case["target"], handles)
    compare(found, mine)
    assert not torch.allclose(torch.tensor(whole["logits"]), mine["logits"], atol=0.01)


@pytest.mark.parametrize("where", ["encoder", "decoder", "cross"])
def test_a_painted_mask(case: dict[str, Any], where: str) -> None:
    model = case["model"]
    width = len(case["target"]) + 1 if where == "decoder" else len(case["source"])
    height = len(case["source"] if where == "encoder" else case["target"]) + 1
    rows = torch.rand(height, width, generator=torch.Generator().manual_seed(0)) < 0.6
    rows[2] = False  # nothing at all
    rows[:, 0], rows[2, 0] = True, False

    def edit(mask: Tensor) -> None:
        mask &= rows[: mask.shape[2], : mask.shape[3]]

    (found,) = ask(case, {"masks": {where: rows.tolist()}})
    layers = model.config.n_encoder_layers if where == "encoder" else model.config.n_decoder_layers
    compare(found, expected(model, case["source"], case["target"], masked(model, where, layers, edit)))


@pytest.mark.parametrize("layer", [None, 0, 2])
def test_a_swapped_vector(case: dict[str, Any], layer: int | None) -> None:
    model = case["model"]
    place = next(i for i, (one, two) in enumerate(zip(case["source"], case["other"], strict=True)) if one != two)
    module = model.encoder if layer is None else model.encoder.layers[layer]
    kept: list[Tensor] = []
    keep = (
        model.encoder.register_forward_hook(lambda module, given, made: kept.append(made))
        if layer is None
        else module.register_forward_pre_hook(lambda module, given: kept.append(given[0]))
    )
    with torch.no_grad(), hooks([keep]):
        model.encode(torch.tensor([case["other"]]))

    def put(vectors: Tensor) -> Tensor:
        vectors = vectors.clone()
        vectors[:, place] = kept[0][:, place]
        return vectors

    handle = (
        module.register_forward_hook(lambda module, given, made: put(made))
        if layer is None
        else module.register_forward_pre_hook(lambda module, given: (put(given[0]), *given[1:]))
    )
    swap = {"place": place, "at": place, "from": case["other"]} | ({} if layer is None else {"layer": layer})
    whole, found = ask(case, {}, {"swap": [swap]})
    mine = expected(model, case["source"], case["target"], [handle])
    compare(found, mine)
    assert not torch.allclose(torch.tensor(whole["logits"]), mine["logits"], atol=0.01)


def test_the_translation_is_written_anew() -> None:
    folder = str(find_pretrained("captions-en-de"))
    texts = [f"the horse does not cross the street because it is too {word}" for word in ("tired", "wide")]
    model = Translator.from_pretrained("captions-en-de", device="cpu")
    head = {"part": "cross", "layer": 3, "head": 2}
    experiments = [{"text": text, "change": one} for text in texts for one in ({}, {"silence": [head]})]
    found = ask_node(folder=folder, experiments=experiments, options={"beamSize": 1})
    for text, (whole, silent) in zip(texts, zip(found[::2], found[1::2], strict=True), strict=True):
        assert whole["text"] == model.translate([text], beam_size=1)[0]
        with hooks([silenced(model.model, head)]):
            assert silent["text"] == model.translate([text], beam_size=1)[0]
    assert any(whole["text"] != silent["text"] for whole, silent in zip(found[::2], found[1::2], strict=True))


@pytest.mark.parametrize("name", ["multi30k-de-en-bahdanau", "multi30k-de-en-luong"])
def test_words_hidden_from_a_recurrent_translator(name: str) -> None:
    translator = Translator.from_pretrained(name, device="cpu")
    model, text = translator.model.eval(), "Ein Hund läuft im Schnee."
    source = [*translator.source_tokenizer.encode(text), 2]
    target = translator.target_tokenizer.encode(translator.translate([text])[0])
    experiment = {"source": source, "target": target, "change": {"hide": [{"place": 1}, {"place": 3, "step": 2}]}}
    (found,) = ask_node(folder=str(find_pretrained(name)), experiments=[experiment])
    with torch.no_grad():
        state = model.start(torch.tensor([source]))
        for step, token in enumerate([1, *target]):
            mask = torch.ones_like(state.memory.mask)
            mask[:, 1], mask[:, 3] = False, step != 2
            state = replace(state, memory=replace(state.memory, mask=mask))
            logits, state = model.step(torch.tensor([token]), state)
            assert torch.allclose(torch.tensor(found["logits"][step]), logits[0], atol=1e-4)
