"""Experiments in the page: what a change does in JavaScript is what hooks do in PyTorch."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from itertools import product
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


def test_webassembly_multiplies() -> None:
    torch.manual_seed(0)
    questions, expected = [], []
    for rows, columns, biased in product((1, 7), (1, 5, 14, 16, 33, 192), (True, False)):
        weight, x, bias = torch.randn(rows, columns), torch.randn(columns), torch.randn(rows)
        questions.append({"rows": weight.tolist(), "x": x.tolist()} | ({"bias": bias.tolist()} if biased else {}))
        expected.append(weight @ x + (bias if biased else 0))
    for found, right in zip(ask_node(products=questions), expected, strict=True):
        assert torch.allclose(torch.tensor(found), right, atol=1e-5)


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


@pytest.fixture(scope="module", params=SENTENCES)
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


ALWAYS_OR_ONCE = ({}, {"step": 2})


def test_silent_heads(case: dict[str, Any]) -> None:
    """Of each part, always or at one step; one, another, or both at once."""
    silent = []
    for where, step in product(("encoder", "decoder", "cross"), ALWAYS_OR_ONCE):
        ones = [{"part": where, "layer": layer, "head": head} | step for layer, head in ((1, 2), (0, 3))]
        silent += [[ones[0]], [ones[1]], ones]
    whole, *found = ask(case, {}, *({"silence": ones} for ones in silent))
    for theirs, ones in zip(found, silent, strict=True):
        mine = expected(case["model"], case["source"], case["target"], [silenced(case["model"], s) for s in ones])
        compare(theirs, mine)
        assert not torch.allclose(torch.tensor(whole["logits"]), mine["logits"], atol=0.01)


def test_a_hidden_word(case: dict[str, Any]) -> None:
    model, place = case["model"], 1
    whole, *found = ask(case, {}, *({"hide": [{"place": place} | step]} for step in ALWAYS_OR_ONCE))
    for theirs, step in zip(found, ALWAYS_OR_ONCE, strict=True):

        def edit(mask: Tensor, step: dict[str, int] = step) -> None:
            mask[:, :, step.get("step", slice(None)), place] = False

        handles = masked(model, "cross", model.config.n_decoder_layers, edit)
        mine = expected(model, case["source"], case["target"], handles)
        compare(theirs, mine)
        assert not torch.allclose(torch.tensor(whole["logits"]), mine["logits"], atol=0.001)


def test_painted_masks(case: dict[str, Any]) -> None:
    model, (n, m) = case["model"], (len(case["source"]), len(case["target"]) + 1)
    painted = {}
    for where, size in (("encoder", (n, n)), ("decoder", (m, m)), ("cross", (m, n))):
        painted[where] = torch.rand(*size, generator=torch.Generator().manual_seed(0)) < 0.6
        painted[where][2] = False  # nothing at all but the first
        painted[where][:, 0] = True
    found = ask(case, *({"masks": {where: rows.tolist()}} for where, rows in painted.items()))
    for theirs, (where, rows) in zip(found, painted.items(), strict=True):

        def edit(mask: Tensor, rows: Tensor = rows) -> None:
            mask &= rows[: mask.shape[2], : mask.shape[3]]

        layers = model.config.n_encoder_layers if where == "encoder" else model.config.n_decoder_layers
        compare(theirs, expected(model, case["source"], case["target"], masked(model, where, layers, edit)))


def swapped(case: dict[str, Any], place: int, layer: int | None) -> list[Any]:
    """The vector of the other sentence at a place, in front of a layer or behind the encoder."""
    encoder, kept = case["model"].encoder, []

    def keep_in(module: nn.Module, given: tuple[Tensor, ...]) -> None:
        kept.append(given[0])

    def keep_out(module: nn.Module, given: Any, made: Tensor) -> None:
        kept.append(made)

    def put(vectors: Tensor) -> Tensor:
        vectors = vectors.clone()
        vectors[:, place] = kept[0][:, place]
        return vectors

    def put_in(module: nn.Module, given: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        return (put(given[0]), *given[1:])

    def put_out(module: nn.Module, given: Any, made: Tensor) -> Tensor:
        return put(made)

    module = encoder if layer is None else encoder.layers[layer]
    register = module.register_forward_hook if layer is None else module.register_forward_pre_hook
    with torch.no_grad(), hooks([register(keep_out if layer is None else keep_in)]):
        case["model"].encode(torch.tensor([case["other"]]))
    return [register(put_out if layer is None else put_in)]


def test_swapped_vectors(case: dict[str, Any]) -> None:
    place = next(i for i, (one, two) in enumerate(zip(case["source"], case["other"], strict=True)) if one != two)
    swap, layers = {"place": place, "at": place, "from": case["other"]}, (None, 0, 2)
    changes = [{"swap": [swap if layer is None else swap | {"layer": layer}]} for layer in layers]
    whole, *found = ask(case, {}, *changes)
    for theirs, layer in zip(found, layers, strict=True):
        mine = expected(case["model"], case["source"], case["target"], swapped(case, place, layer))
        compare(theirs, mine)
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
