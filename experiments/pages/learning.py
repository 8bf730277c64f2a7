"""The record of the layer that learns in the page: its losses, and its map after fifty steps.

    python -m experiments.pages.learning

The task is *reverse*, with the settings that stand there at first.
"""

from typing import Any

from experiments.harness import provenance
from experiments.pages import ROOT, ask_node
from transformer_lib.data.files import write_json

RECORD = ROOT / "transformer_lib" / "results" / "page-learning.json"
EXAMPLE = [2, 0, 7, 1, 4, 3, 5, 0]


def record() -> dict[str, Any]:
    """What the script makes of fifty steps."""
    (found,) = ask_node(learn=[{}], steps=50, example=EXAMPLE)
    losses = [round(loss, 5) for loss in found["losses"]]
    weights = [round(weight, 3) for weight in found["weights"]]
    content = {"losses": losses, "weights": weights, "answers": found["answers"]}
    metrics = {"loss of the first batch": losses[0], "loss of the fiftieth batch": losses[-1]}
    return {"title": "Attention learned in the page", "data": "letters", "metrics": metrics} | content


if __name__ == "__main__":
    write_json(RECORD, provenance("python -m experiments.pages.learning") | record())
