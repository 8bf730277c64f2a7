"""Viewers to play with: one query, the heads of a layer, positions."""

import html
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from transformer_lib.viz.viewer import HTML, Control, Part, Viewer, lights, make_viewer, percent


@torch.no_grad()
def query_viewer(
    words: Sequence[str],
    projected: Mapping[str, tuple[Tensor, Tensor, Tensor]],
    *,
    word: int = 0,
    title: str = "One query",
) -> Viewer:
    """Self-attention seen from one word: its scores, its weights, and what its output is made of.

    Args:
        words: of the sentence.
        projected: queries, keys and values, each with a row for each word; a button for each name.
        word: the one that is chosen at first.
        title: what the viewer shows.
    """
    table, note = [], ""
    for queries, keys, values in projected.values():
        scores = queries @ keys.T
        weights = scores.softmax(dim=-1)
        outputs = weights @ values
        share = weights * (outputs @ values.T) / outputs.square().sum(dim=-1, keepdim=True)
        if (share < -0.005).any():
            note = "A word whose share is negative pulls the output back, so the others can exceed 100 %."
        numbers = scores.tolist(), percent(weights), (100 * share).round().int().tolist()
        table.append([_query_row(words, *row) for row in zip(words, *numbers, strict=True)])
    controls = [Control("Show", list(projected))] if len(projected) > 1 else []
    controls.append(Control("Query of", words, "words", word, labels=lights(words)))
    rows = "".join(HTML["query row"].format(word=html.escape(one)) for one in words)
    scene = HTML["query"].format(control=len(controls) - 1, rows=rows)
    part = Part((0, 1), table) if len(controls) > 1 else Part((0,), table[0])
    return make_viewer(title, controls, scene, [part], note=note)


def _query_row(words: Sequence[str], word: str, *numbers: list[Any]) -> list[Any]:
    """What is said of a word, and its cells: the score, the weight and the share of every word."""

    def most(numbers: list[int]) -> str:
        best = sorted(zip(numbers, words, strict=True), key=lambda one: -one[0])[:3]
        return ", ".join(f"{one} {number}\N{NO-BREAK SPACE}%" for number, one in best if number > 0)

    _, weights, shares = numbers
    said = f"“{word}” attends to {most(weights)}. Its output comes from {most(shares)}."
    cells: list[Any] = [said, *weights]
    for score, weight, share in zip(*numbers, strict=True):
        percents = [f"{number}\N{NO-BREAK SPACE}%" for number in (weight, share)]
        cells += [f"{score:.1f}", weight, percents[0], max(share, 0), percents[1]]
    return cells


def heads_viewer(sentences: Mapping[str, tuple[Any, ...]], *, watched: int = 0, head: int = 0) -> Viewer:
    """The heads of one layer: what each attends to, and what is written when it is silenced.

    Args:
        sentences: for each name the words; the weights (H, T, T); the words written with all heads, without head 1,
            without head 2 and so on; and as often the probabilities of some forms of the watched word.
        watched: the place of that word.
        head: the head that is chosen at first.
    """
    texts, maps, outcomes = [], [], []
    for words, weights, written, chances in sentences.values():
        texts.append(["", *words])
        maps.append(percent(weights))
        heads = range(len(written))  # 0: with all of them
        rows = [_silenced_row(n, words, watched, written, chances) for n in heads]
        outcomes.append([[rows[0], row] for row in rows[1:]])
    places = [HTML["heads word"]] * len(words)
    controls = [
        Control("Sentence", list(sentences)),
        Control("Head", range(1, len(outcomes[0]) + 1), start=head),
        Control("Silence it", ["no", "yes"]),
        Control("Attention from", words, "words", watched, labels=places),
    ]
    scene = HTML["heads"].format(rows=HTML["heads row"] * len(chances[0]))
    parts = [Part((0,), texts), Part((0, 1, 3), maps, weights=True), Part((0, 1, 2), outcomes)]
    return make_viewer("One head, and the words without it", controls, scene, parts)


def _silenced_row(head: int, words: Sequence[str], watched: int, written: Any, chances: Any) -> list[Any]:
    """What is said of the words written without a head (0: with all of them), and their cells."""
    forms, whole = written[head], written[0]
    chance = {f"{form} {100 * p:.0f}\u00a0%": round(100 * p) for form, p in chances[head].items()}
    heads = f"Without head {head}" if head else "With all heads"
    said = f"{heads}, “{words[watched]}” becomes {', '.join(chance)}."
    pairs = list(zip(words, forms, whole, strict=True))
    changed = [f"{word}: {form} instead of {old}" for word, form, old in pairs if form != old]
    if head:
        said += f" Changed: {'; '.join(changed)}." if changed else " No word changes."
    bars = [cell for text, size in chance.items() for cell in (size, text)]
    return [said, *(f"{'≠ ' * (form != old)}{form}" for _, form, old in pairs), *bars]


def _hands(rows: Tensor) -> tuple[list[int], list[list[int]]]:
    """Three of the hands of a table whose columns are pairs, and where they stand, in degrees from the top."""
    pairs = rows.double().unflatten(-1, (-1, 2))
    chosen = [i * pairs.shape[1] // 3 for i in range(3)]
    angles = torch.atan2(pairs[:, chosen, 0], pairs[:, chosen, 1]).rad2deg()
    return chosen, angles.round().int().remainder(360).tolist()


def position_viewer(table: Tensor, *, position: int = 5, title: str = "One position") -> Viewer:
    """A position to drag: the hands of its clock, its row of the table, and its product with every other position.

    Args:
        table: sinusoids, a row for each position, sine and cosine in turn.
        position: where it opens.
        title: what the viewer shows.
    """
    chosen, angles = _hands(table)
    products = (100 * table @ table.T / table[0].square().sum()).round().int().tolist()
    cells = (100 * table).round().int().tolist()
    names = f"hands {chosen[0]}, {chosen[1]} and {chosen[2]}"
    rows = []
    for p, (hands, row, product) in enumerate(zip(angles, cells, products, strict=True)):
        others = [f"{product[r]} with position {r}" for r in (p + 1, p + 10) if r < len(table)]
        told = f"Position {p}: {names} stand at {hands[0]}, {hands[1]} and {hands[2]} degrees."
        if others:
            told += f" Its product is 100 with itself, {', '.join(others)}."
        rows.append([told, *hands, f"position {p}", *row, *product])
    shown = {"row": HTML["cell"] * table.shape[1], "products": HTML["cell"] * len(table)}
    scene = HTML["position"].format(clock=HTML["clock"], last=len(table) - 1, **shown)
    slider = Control("Position", range(len(table)), "slider", position)
    return make_viewer(title, [slider], scene, [Part((0,), rows)])


def rotary_viewer(methods: Mapping[str, tuple[Tensor, Tensor]], *, distances: int = 8) -> Viewer:
    """Two words to shift: the hands of the query and of the key, and their score.

    Args:
        methods: for each name the query and the key of the two words at every position, (P, D) each, the columns in
            pairs; the hands are those of the first.
        distances: how far the key may stand before the query.
    """
    hands = [_hands(one)[1] for one in next(iter(methods.values()))]
    scores = {name: (queries @ keys.T).tolist() for name, (queries, keys) in methods.items()}
    largest = max(abs(score) for found in scores.values() for row in found for score in row)
    table = []
    for p in range(distances, len(hands[0])):
        rows = []
        for distance in range(distances + 1):
            r = p - distance
            row: list[Any] = [*hands[0][p], f"query at {p}", *hands[1][r], f"key at {r}"]
            said = []
            for name, found in scores.items():
                said.append(f"{name}: score {found[p][r]:.2f}")
                row += [round(100 * found[p][r] / largest), said[-1]]  # all bars share a zero
            rows.append([f"Query at {p}, key at {r}. {'; '.join(said)}.", *row])
        table.append(rows)
    controls = [
        Control("Query at", range(distances, len(hands[0])), "slider", 0),
        Control("Distance", range(distances + 1), "slider", 3),
    ]
    scene = HTML["rotary"].format(clocks=HTML["clock"] * 2, rows=HTML["rotary row"] * len(methods))
    return make_viewer("Two words that move together", controls, scene, [Part((0, 1), table)])
