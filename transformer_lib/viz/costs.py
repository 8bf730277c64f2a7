"""A calculator of what models cost: memory and time, to train and to run."""

import html
import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from transformer_lib.viz.viewer import Viewer, page_script

__all__ = ["cost_calculator"]

STYLE, TEXT = (Path(__file__).with_suffix(f".{kind}").read_text("utf-8") for kind in ("css", "html"))
SCRIPT = page_script(__file__, "costs", "power", "short", "size", "time")
HTML: dict[str, str] = dict(re.findall(r"<!-- (.+?) -->\n(.*?)\n(?=<!-- |\Z)", TEXT, re.DOTALL))
MODEL = (
    "billion parameters",
    "of these used for a token",
    "layers",
    "numbers cached (token, layer)",
    "billion tokens to train on",
)
DEVICE = ("trillion operations a second", "TB a second", "GB of memory")
WORK = {"length": ("tokens of a text", 8000), "rows": ("texts at once", 1)}
TRAINING = {"operations": "operations", "hours": "time", "training": "weights, gradients and Adam"}
RUNNING = {"inference": "weights + cache", "reading": "to read the texts", "writing": "to write on"}


def _menu(name: str, label: str, options: Mapping[object, str], chosen: object) -> str:
    items = ""
    for value, text in options.items():
        selected = " selected" * (value == chosen)
        items += HTML["option"].format(value=html.escape(str(value)), text=html.escape(text), selected=selected)
    return HTML["menu"].format(name=name, label=label, options=items)


def _numbers(kind: str, labels: Sequence[str], values: Sequence[float]) -> str:
    pairs = enumerate(zip(labels, values, strict=True))
    return "".join(HTML["number"].format(name=f"{kind}-{i}", label=label, value=value) for i, (label, value) in pairs)


def cost_calculator(
    models: Mapping[str, Sequence[float]], devices: Mapping[str, Sequence[float]], model: str = "", device: str = ""
) -> Viewer:
    """Memory and time of a model on some devices; a reader chooses among these or types over every number.

    Args:
        models: for each name billions of parameters, and of those that are used for a token; layers; numbers that a
            layer keeps of a token; billions of tokens of training.
        devices: for each name trillions of operations and terabytes moved in a second; gigabytes of memory.
        model: the one that is shown at first, by default the first one.
        device: likewise.
    """
    model, device = model or next(iter(models)), device or next(iter(devices))
    title = "What does it cost?"
    one = _numbers("device", DEVICE, devices[device]) + HTML["number"].format(name="devices", label="devices", value=1)
    work = "".join(HTML["number"].format(name=name, label=label, value=value) for name, (label, value) in WORK.items())
    work += HTML["number"].format(name="utilisation", label="% of the peak reached", value=35)
    work += _menu("bytes", "bytes for a weight", {2: "2", 1: "1", 0.5: "a half"}, 2)
    bars = {"training": ("training", 3), "inference": ("running", 2)}
    page = HTML["figure"].format(
        title=title,
        style=STYLE,
        models=_menu("model", "Model", {name: name for name in models}, model),
        model=_numbers("model", MODEL, models[model]),
        devices=_menu("device", "Device", {name: name for name in devices}, device),
        device=one,
        work=work,
        training="".join(HTML["out"].format(name=name, label=label) for name, label in TRAINING.items()),
        running="".join(HTML["out"].format(name=name, label=label) for name, label in RUNNING.items()),
        bars="".join(HTML["bar"].format(name=n, label=label, parts="<i></i>" * k) for n, (label, k) in bars.items()),
        data=json.dumps({"models": models, "devices": devices}).replace("<", r"\u003c"),
        script=SCRIPT,
    )
    return Viewer(f"{title} A calculator for {len(models)} models and {len(devices)} devices.", page)
