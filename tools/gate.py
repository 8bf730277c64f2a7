"""The export gate: the library is exactly what the notebooks export, and its imports run one way.

    python tools/gate.py

Fails, naming the culprit, when

- an exported module differs from a fresh export, or has no notebook;
- a public name is exported twice;
- a module imports from a later chapter, against the order of the folders, or in a circle.

The package is read, never imported. (Docstrings, annotations and bare asserts are ruff's business.)
"""

from __future__ import annotations

import ast
import sys
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

from chapters import PACKAGE, ROOT, Notebook, book, by_hand
from export import exporters, path_of, render

FLOORS = (
    "settings strict",
    "data metrics viz plain",
    "models",
    "training decoding",
    "translation viz.steps",
    "student",
)
LAYERS = {name: floor for floor, names in enumerate(FLOORS) for name in names.split()}


def floor_of(module: str) -> int:
    """The floor of a module: its own, or that of its folder."""
    return LAYERS.get(module, LAYERS.get(module.split(".")[0], 0))


@dataclass(frozen=True)
class Module:
    """One file of the package, as text and tree."""

    path: Path
    label: str

    @cached_property
    def tree(self) -> ast.Module:
        return ast.parse(self.path.read_text(encoding="utf-8"), filename=self.label)

    @property
    def public(self) -> list[str]:
        """What ``__all__`` lists."""
        for node in self.tree.body:
            if isinstance(node, ast.Assign) and getattr(node.targets[0], "id", None) == "__all__":
                return ast.literal_eval(node.value)
        return []

    def imports(self) -> Iterator[tuple[int, str]]:
        """Every module of the package that this one imports, anywhere in its text, with the line."""
        for node in ast.walk(self.tree):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            if isinstance(node, ast.ImportFrom):
                names = [f"{PACKAGE}." if node.level else node.module]
            for name in names:
                if name.split(".")[0] == PACKAGE:
                    yield node.lineno, name.removeprefix(PACKAGE).strip(".")


def fresh_export(pages: list[Notebook], modules: dict[str, Module], root: Path) -> Iterator[str]:
    """Exported modules hold what the notebooks export, byte for byte."""
    try:
        exported = exporters(pages)
    except ValueError as error:
        yield str(error)
        return
    for name, sources in exported.items():
        label = path_of(name, root).relative_to(root).as_posix()
        names = " and ".join(page.name for page in sources)
        if name not in modules:
            yield f"{label} is missing: {names} exports it (make export)"
        elif modules[name].path.read_text(encoding="utf-8") != render(name, sources, root):
            yield f"{label} differs from a fresh export of {names} (make export)"
    for name, module in modules.items():
        if name not in exported and not by_hand(module.path):
            yield f"{module.label} has no notebook: nothing in book/ exports it"


def unique_names(modules: dict[str, Module]) -> Iterator[str]:
    """One public name, one definition; but a plain file is complete, so others may define the same."""
    exporters = defaultdict(list)
    for path, module in modules.items():
        for name in () if path.startswith("plain.") else module.public:
            exporters[name].append(module.label)
    for name, labels in exporters.items():
        if len(labels) > 1:
            yield f"{name} is exported by {' and '.join(labels)}"


def import_order(pages: list[Notebook], modules: dict[str, Module]) -> Iterator[str]:
    """Text goes data, models, training and decoding, translation: imports run that way, and along the pages."""
    places: dict[str, int] = {}  # a module belongs to the first page that adds to it
    for page in reversed(pages):
        places |= {name: page.number or 0 for name in page.modules}
    for name, module in modules.items():
        here, floor = places.get(name), floor_of(name)
        for line, target in module.imports():
            where = f"{module.label}:{line}"
            if target not in modules:
                full = f"{PACKAGE}.{target}".rstrip(".")
                yield f"{where}: imports {full}, which is not a module; name the one that defines it"
            elif floor_of(target) > floor:
                yield f"{where}: imports {target}, but {target.split('.')[0]} comes after {name.split('.')[0]}"
            elif here and places.get(target, 0) > here:
                yield f"{where}: imports {target} of chapter {places[target]}, but belongs to chapter {here}"
    yield from circles(modules)


def circles(modules: dict[str, Module]) -> Iterator[str]:
    """No module imports itself in a roundabout way."""
    wanted = {name: {target for _, target in module.imports()} for name, module in modules.items()}
    try:
        tuple(TopologicalSorter(wanted).static_order())
    except CycleError as error:
        yield f"modules import each other in a circle: {' <- '.join(error.args[1])}"


def check(root: Path = ROOT) -> list[str]:
    """Every problem of the export, each naming its culprit; an empty list if there is none."""
    root = root.resolve()
    pages, modules = book(root), {}
    for path in sorted((root / PACKAGE).rglob("*.py")):
        if not path.name.startswith("__"):
            name = ".".join(path.relative_to(root / PACKAGE).with_suffix("").parts)
            modules[name] = Module(path, path.relative_to(root).as_posix())
    return [*fresh_export(pages, modules, root), *unique_names(modules), *import_order(pages, modules)]


def main() -> int:
    problems = check()
    for problem in problems:
        print(f"gate: {problem}")
    if not problems:
        print("gate: the exported modules are what the notebooks export")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
