"""Searches to walk through, step by step, and every attention map of a translation."""

import math
from collections.abc import Sequence
from copy import deepcopy
from typing import Any

import torch
from torch import Tensor

from transformer_lib.data.text import check_texts
from transformer_lib.decoding.beam_search import SearchConfig, Step, beam_search
from transformer_lib.decoding.greedy import generate
from transformer_lib.models.seq2seq import eval_mode
from transformer_lib.viz.viewer import HTML, Control, Part, Viewer, make_viewer, percent, widest_map


def _encode(translator: Any, text: str) -> tuple[Tensor, list[str]]:
    """The ids of a sentence as a row, and its tokens to show."""
    tokenizer = translator.source_tokenizer
    ready = translator.text.prepare(text, tokenizer)
    if not ready.strip():
        raise ValueError("text is blank: there is nothing to translate")
    source = torch.tensor([[*tokenizer.encode(ready), *translator.special.eos[:1]]])
    return source.to(translator.device), [*tokenizer.tokens(ready), "<eos>"]


def _decode(translator: Any, tokens: Sequence[int]) -> str:
    ended = any(token in translator.special.eos for token in tokens)
    text = translator.target_tokenizer.decode(tokens) + " <eos>" * ended
    return text.strip() or "(blank)"


def decoding_viewer(translator: Any, text: str, *, choices: int = 5, max_length: int = 40) -> Viewer:
    """Greedy decoding step by step: the likeliest next tokens, and what the model attends to.

    Args:
        translator: a ``Translator``; its model's ``align`` gives the weights, if it has one.
        choices: how many tokens to show at each step.
    """
    model, (source, words) = translator.model, _encode(translator, text)
    tokens: list[int] = []
    steps: list[list[Any]] = []

    def choose(scores: Tensor) -> Tensor:
        best = scores[0].softmax(-1).topk(choices)
        step: list[Any] = [f"{_decode(translator, tokens)} …" if tokens else "…"]
        for rank, (p, token) in enumerate(zip(*(part.tolist() for part in best), strict=True)):
            told = f"{100 * p:.1f}\u00a0%", "" if rank else "written"
            step += [int(not rank), round(100 * p), _decode(translator, [token]), *told]
        steps.append([f"Most likely next: {step[3]}, {step[4]}.", *step])
        return best.indices[:1]

    with eval_mode(model):
        for _, token in generate(model, source, choose, max_length=max_length):
            tokens.append(int(token))
        target = source.new_tensor([[translator.special.bos, *tokens[:-1]]])
        weights = model.align(source, target)[0] if hasattr(model, "align") else None
    parts, scene = [], HTML["greedy"].format(rows=HTML["step row"] * choices)
    if weights is not None:
        rows = zip(steps, percent(weights.cpu()), strict=True)
        steps = [[step[0], *row, *step[1:]] for step, row in rows]
        parts = [Part((), ["", *words])]
        scene = HTML["read"].format(words=HTML["read word"] * len(words)) + scene
    slider = Control("Step", range(1, len(steps) + 1), "slider", len(steps) - 1, begin=0)
    return make_viewer(f"Greedy decoding of “{text}”", [slider], scene, [Part((0,), steps), *parts])


def beam_viewer(
    translator: Any,
    text: str,
    *,
    beam_size: int | Sequence[int] = 3,
    length_penalty: float | Sequence[float] = 0.6,
    max_length: int = 40,
    step: int = 1,
) -> Viewer:
    """Beam search step by step: the candidates, which of them go on, and which are finished.

    Args:
        beam_size: several numbers to choose from, or one.
        length_penalty: likewise.
        step: the one that is shown first.

    Returns:
        A viewer whose summary ends with the best translation for the first of the settings.
    """
    beams, penalties = _control("Beam", beam_size), _control("Length penalty", length_penalty)
    most = 2 * max(beams.options)  # candidates
    source, _ = _encode(translator, text)
    # the last digit shown is the same on every machine
    model = deepcopy(translator.model).cpu().double()
    table, longest = [], 0
    for size in beams.options:
        row = []
        for penalty in penalties.options:
            config = SearchConfig(size, penalty, max_length)
            steps: list[Step] = []
            beam_search(model, source.cpu(), config, on_step=steps.append)
            shown = _beam_steps(translator, steps, config)
            row.append([step + [0, 0, "", "", ""] * (most - len(step) // 5) for step in shown])
            longest = max(longest, len(steps))
        table.append(row)
    opened = table[beams.start][penalties.start]
    slider = Control("Step", range(1, longest + 1), "slider", len(opened) - 1, begin=step - 1)
    scene, title = HTML["beam"].format(rows=HTML["step row"] * most), f"Beam search for “{text}”"
    page = make_viewer(title, [beams, penalties, slider], scene, [Part((0, 1, 2), table)])
    return Viewer(f"{title}: {opened[-1][0].split(': ', 1)[1].rsplit(', score', 1)[0]}", page.html)


def _control(name: str, values: Any) -> Control:
    """A control that opens at the first of several values, or at the only one."""
    several = list(values) if isinstance(values, Sequence) else [values]
    return Control(name, sorted(several), start=sorted(several).index(several[0]))


def _beam_steps(translator: Any, steps: Sequence[Step], config: SearchConfig) -> list[list[Any]]:
    """The rows of each step: its caption, then five entries for each candidate."""
    shown, n_finished = [], 0
    for length, step in enumerate(steps, start=1):
        rows: list[Any] = []
        parts = (step.candidates.tokens, step.candidates.scores, step.ended, step.live)
        found = zip(*(part[0].tolist() for part in parts), strict=True)
        for rank, (tokens, total, ended, live) in enumerate(found):
            fate = "goes on" if live else "dropped"
            if ended and rank < config.beam_size:
                fate = f"finished, score {total / config.normalizer(length):.2f}"
                n_finished += 1
            text = _decode(translator, tokens)
            text = text if len(text) < 45 else f"…{text[-42:]}"
            told = text, f"{total:.2f}", fate
            rows += [int(fate != "dropped"), round(100 * math.exp(total)), *told]
        caption = f"{int(step.live.sum())} go on, {n_finished} finished so far."
        shown.append([f"{caption} The numbers are log-probabilities.", *rows])
    best, score = steps[-1].best, steps[-1].best.scores.flatten()[0]
    text = _decode(translator, [token for token in best.tokens[0, 0].tolist() if token])
    shown[-1][0] = f"The best of {n_finished} finished: {text}, score {score:.2f}."
    return shown


def translation_viewer(
    translator: Any,
    texts: Sequence[str],
    *,
    start: tuple[int, int] | None = None,
) -> Viewer:
    """Every attention map of some translations: choose a sentence, a layer, a head and a word.

    Args:
        start: layer and head of cross-attention at which it opens, counted from 0; None for the head whose weights
            reach the most source words.
    """
    texts = check_texts(texts)
    maps = [translator.attention(text) for text in texts]
    kinds = {
        "cross": "translation to source",
        "encoder": "source to source",
        "decoder": "translation to itself",
    }
    kinds = {k: name for k, name in kinds.items() if getattr(maps[0], k) is not None}
    layer, head = start or widest_map(maps[0].cross.numpy())
    opened = f"It opens at layer {layer + 1}, head {head + 1} of the attention from translation to source"
    note = "" if start else f"{opened}, whose weights reach the most source words."
    longest = max(len(one) for found in maps for one in (found.source, found.target))
    words, weights = [], []
    for found in maps:
        source, target = ([w.replace("▁", "") for w in one] for one in (found.source, found.target))
        read = ["<bos>", *target[:-1]]
        sides = {"cross": (target, source), "encoder": (source, source), "decoder": (target, read)}
        filled = {k: [one + [""] * (longest - len(one)) for one in sides[k]] for k in kinds}
        words.append([["", *rows, *columns] for rows, columns in filled.values()])
        weights.append([percent(getattr(found, k)) for k in kinds])
    layers, heads = max(map(len, weights[0])), max(len(maps[0]) for maps in weights[0])
    controls = [
        Control("Sentence", texts, "menu"),
        Control("Attention from", list(kinds.values()), "menu"),
        Control("Layer", range(1, layers + 1), start=layer),
        Control("Head", range(1, heads + 1), start=head),
        Control("From", range(longest), "words", labels=[HTML["from word"]] * longest),
    ]
    scene = HTML["maps"].format(words=HTML["to word"] * longest)
    parts = [Part((0, 1), words), Part((0, 1, 2, 3, 4), weights, weights=True)]
    return make_viewer("Every attention map of a translation", controls, scene, parts, note=note)
