"""The export gate: the library is exactly what the notebooks export, and its public names are sound.

    python tools/gate.py

Fails, naming the culprit, when

- a module differs from a fresh export, has no notebook, or a chapter exports nothing or shares its module;
- a name is exported twice, or defined again elsewhere in the package;
- a module imports from a later chapter, or an appendix module imports from the package at all;
- a public name lacks its docstring, type annotations, or the line that names its chapter;
- exported code holds a bare assert;
- ``transformer_lib/__init__.py`` and the modules disagree about the public names.

The package is read, never imported.
"""

from __future__ import annotations

import ast
import re
import sys
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
from chapters import BY_HAND, CHAPTER_PARTS, PACKAGE, ROOT, SHIPPED, Notebook, book
from export import render

Function = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True)
class Module:
    """One file of the package, as text and tree."""

    path: Path

    @property
    def name(self) -> str:
        return self.path.stem

    @property
    def label(self) -> str:
        return f"{PACKAGE}/{self.path.name}"

    @cached_property
    def tree(self) -> ast.Module:
        return ast.parse(self.path.read_text(encoding="utf-8"), filename=self.label)

    @cached_property
    def public(self) -> list[str] | None:
        """What ``__all__`` lists, or None if it is not a plain list of names."""
        for node in self.tree.body:
            if isinstance(node, ast.Assign) and any(getattr(t, "id", None) == "__all__" for t in node.targets):
                try:
                    names = ast.literal_eval(node.value)
                except ValueError:
                    return None
                return list(names) if all(isinstance(name, str) for name in names) else None
        return None

    @cached_property
    def definitions(self) -> list[tuple[str, ast.stmt]]:
        """Every name bound at the top level by a definition or an assignment, not by an import."""
        return [(name, node) for node in top_level(self.tree.body) for name in bound(node) if not name.startswith("__")]


def top_level(body: list[ast.stmt]) -> Iterator[ast.stmt]:
    """The statements of a module, looking into conditions, loops and guards."""
    for node in body:
        yield node
        for field in ("body", "orelse", "finalbody"):
            if not isinstance(node, Function | ast.ClassDef):
                yield from top_level(getattr(node, field, []))
        for handler in getattr(node, "handlers", []):
            yield from top_level(handler.body)


def bound(node: ast.stmt) -> list[str]:
    """The names that one statement defines."""
    if isinstance(node, Function | ast.ClassDef):
        return [node.name]
    targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
    if isinstance(node, ast.Assign | ast.AnnAssign):
        return [part.id for target in targets for part in ast.walk(target) if isinstance(part, ast.Name)]
    return []


def decorators(node: ast.stmt) -> set[str]:
    """The last words of a definition's decorators: property, overload, setter, ..."""
    names = set()
    for decorator in node.decorator_list:
        called = decorator.func if isinstance(decorator, ast.Call) else decorator
        names.add(called.attr if isinstance(called, ast.Attribute) else getattr(called, "id", ""))
    return names


def fresh_export(chapters: list[Notebook], modules: dict[str, Module], root: Path) -> Iterator[str]:
    """The package holds what the notebooks export, byte for byte, and nothing else."""
    for chapter in chapters:
        try:
            text = render(chapter.path, root)
        except ValueError as error:
            yield str(error)
            continue
        if text is None:
            continue
        if chapter.module not in modules:
            yield f"{PACKAGE}/{chapter.module}.py is missing: {chapter.name} exports it (make export)"
            continue
        held = modules[chapter.module].path.read_bytes()
        if held != text.encode("utf-8"):
            lines = zip(held.decode("utf-8", "replace").split("\n"), text.split("\n"), strict=False)
            place = next((number for number, (a, b) in enumerate(lines, 1) if a != b), None)
            where = f"from line {place} on" if place else "at its end"
            yield f"{PACKAGE}/{chapter.module}.py differs {where} from a fresh export of {chapter.name} (make export)"


def one_chapter_one_module(chapters: list[Notebook], modules: dict[str, Module], root: Path) -> Iterator[str]:
    """Every module has its notebook, every chapter its own module."""
    owners = defaultdict(list)
    for chapter in chapters:
        if chapter.part in CHAPTER_PARTS and chapter.module is None:
            yield f"{chapter.name} exports nothing: a chapter names its module with '#| default_exp'"
        if chapter.module is None and chapter.exported:
            yield f"{chapter.name}: cell {chapter.exported[0].index} is marked for export, but no '#| default_exp'"
        if chapter.module and chapter.number is None:
            yield f"{chapter.name}: the name of a chapter begins with its number, as in 08_self_attention.ipynb"
        for name in chapter.modules:
            owners[name].append(chapter.name)
    for name, notebooks in owners.items():
        if len(notebooks) > 1:
            yield f"{PACKAGE}/{name}.py is exported by {' and '.join(notebooks)}"
    numbers = defaultdict(list)
    for chapter in chapters:
        if chapter.number:
            numbers[chapter.number].append(chapter.name)
    for number, notebooks in numbers.items():
        if len(notebooks) > 1:
            yield f"{' and '.join(notebooks)} have the same number {number}"
    for path in sorted((root / PACKAGE).rglob("*")):
        inside = path.relative_to(root / PACKAGE).as_posix()
        if path.is_dir() or "__pycache__" in path.parts or inside in BY_HAND or path.name.startswith("."):
            continue
        if inside.startswith(f"{SHIPPED}/") and path.suffix != ".py":
            continue
        if path.parent != root / PACKAGE or path.suffix != ".py" or path.stem not in owners:
            yield f"{PACKAGE}/{inside} has no notebook: nothing in book/ exports it"


def unique_names(modules: dict[str, Module], root: Path) -> Iterator[str]:
    """One name, one definition, in the whole package."""
    exporters = defaultdict(list)
    for module in modules.values():
        for name in module.public or []:
            exporters[name].append(module.label)
    for name, labels in exporters.items():
        if len(labels) > 1:
            yield f"{name} is exported by {' and '.join(labels)}"
        if name in modules:
            yield f"{name}, exported by {labels[0]}, has the name of a module: it would hide {PACKAGE}/{name}.py"
    init = Module(root / PACKAGE / "__init__.py")
    for module in [*modules.values(), *([init] if init.path.exists() else [])]:
        seen = set()
        for name, node in module.definitions:
            home = exporters.get(name, [])
            if home and module.label not in home:
                yield f"{module.label}:{node.lineno}: {name} is defined again; {home[0]} exports it"
            if isinstance(node, Function | ast.ClassDef):
                if name in seen and not decorators(node) & {"overload", "register"}:
                    yield f"{module.label}:{node.lineno}: {name} is defined twice in this module"
                if "overload" not in decorators(node):
                    seen.add(name)


def imports(module: Module, names: set[str]) -> Iterator[tuple[int, str]]:
    """Every import of the package inside a module, anywhere in its text: (line, module or other name)."""
    for node in ast.walk(module.tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                head, _, rest = alias.name.partition(".")
                if head == PACKAGE:
                    yield node.lineno, rest.split(".")[0] or PACKAGE
        elif isinstance(node, ast.ImportFrom):
            inside = node.level > 0 or (node.module or "").split(".")[0] == PACKAGE
            if not inside:
                continue
            target = (node.module or "").removeprefix(PACKAGE).strip(".").split(".")[0]
            if target:
                yield node.lineno, target
            else:
                yield from ((node.lineno, alias.name if alias.name in names else PACKAGE) for alias in node.names)
        elif isinstance(node, ast.Call) and getattr(node.func, "attr", getattr(node.func, "id", "")) in (
            "import_module",
            "__import__",
        ):
            asked = node.args[0].value if node.args and isinstance(node.args[0], ast.Constant) else ""
            if isinstance(asked, str) and (asked.startswith(".") or asked.split(".")[0] == PACKAGE):
                yield node.lineno, asked.removeprefix(PACKAGE).strip(".").split(".")[0] or PACKAGE


def import_order(chapters: list[Notebook], modules: dict[str, Module]) -> Iterator[str]:
    """A module imports from earlier chapters only; the appendix is the ground floor and imports none."""
    places = {chapter.module: chapter.number for chapter in chapters if chapter.module}
    for module in modules.values():
        here = places.get(module.name)
        if here is None:
            continue
        for line, target in imports(module, set(modules)):
            where = f"{module.label}:{line}"
            if target == PACKAGE:
                yield f"{where}: imports from {PACKAGE} itself; import from the module that defines the name"
            elif target not in modules:
                yield f"{where}: imports {target}, which is not a module of {PACKAGE}"
            elif here == 0:
                yield f"{where}: imports {target}; an appendix module imports nothing of the package"
            elif (there := places.get(target)) is not None and there >= here:
                yield f"{where}: imports {target} of chapter {there}, but belongs to chapter {here}"


def annotations(node: Function, method: bool) -> Iterator[str]:
    """What a signature leaves without a type."""
    arguments = node.args.posonlyargs + node.args.args
    if method and arguments and "staticmethod" not in decorators(node):
        arguments = arguments[1:]
    arguments += node.args.kwonlyargs + [extra for extra in (node.args.vararg, node.args.kwarg) if extra]
    missing = [argument.arg for argument in arguments if argument.annotation is None]
    if missing:
        yield f"no type for {', '.join(missing)}"
    if node.returns is None and node.name != "__init__":
        yield "no return type"


def names_chapter(docstring: str, title: str) -> str | None:
    """What is wrong with the ``Chapter:`` line of a docstring, or None."""
    words = " ".join(docstring.split())
    found = re.findall(r"Chapter: (.*)", words)
    if not found:
        return f"its docstring lacks 'Chapter: {title}.'"
    if not re.match(rf"{re.escape(title)}(\.|$|(?<=[?!])(\s|$))", found[0]):
        return f"its docstring says 'Chapter: {found[0][:60]}', not 'Chapter: {title}.'"
    return None


def definition(node: ast.stmt, name: str, title: str | None, method: bool = False) -> Iterator[str]:
    """What a public function or class, and each public method below it, lacks. ``title``: None below the top level."""
    hidden = method and node.name.startswith("_")
    if isinstance(node, Function):
        if "overload" in decorators(node):
            return
        for problem in annotations(node, method):
            yield f"{name}: {problem}"
    docstring = ast.get_docstring(node)
    if not docstring and not hidden and not decorators(node) & {"setter", "deleter"}:
        yield f"{name}: no docstring"
    elif docstring and title and (problem := names_chapter(docstring, title)):
        yield f"{name}: {problem}"
    if isinstance(node, ast.ClassDef):
        for inner in node.body:
            if isinstance(inner, Function | ast.ClassDef) and (
                not inner.name.startswith("_") or re.fullmatch(r"__\w+__", inner.name)
            ):
                yield from definition(inner, f"{name}.{inner.name}", None, method=True)


def documented(chapters: list[Notebook], modules: dict[str, Module]) -> Iterator[str]:
    """Every public name has a docstring, type annotations, and the line that names its chapter."""
    titles = {chapter.module: chapter.title for chapter in chapters if chapter.module}
    for module in modules.values():
        if not ast.get_docstring(module.tree):
            yield f"{module.label}: no docstring"
        if module.public is None:
            yield f"{module.label}: __all__ is not a plain list of names"
        for name, node in module.definitions:
            if name in (module.public or []) and isinstance(node, Function | ast.ClassDef):
                yield from definition(node, f"{module.label}:{node.lineno}: {name}", titles.get(module.name))


def asserts(modules: dict[str, Module]) -> Iterator[str]:
    """Exported code raises errors that say what is wrong; it does not assert."""
    for module in modules.values():
        for node in ast.walk(module.tree):
            if isinstance(node, ast.Assert):
                yield f"{module.label}:{node.lineno}: a bare assert; raise an error that names the argument"


def agreement(modules: dict[str, Module], root: Path) -> Iterator[str]:
    """``__init__.py`` offers exactly what the modules export, each name from its own module."""
    init = Module(root / PACKAGE / "__init__.py")
    if not init.path.exists():
        yield f"{init.label} is missing"
        return
    homes = {name: module.name for module in modules.values() for name in module.public or []}
    if init.public is None:
        if homes:
            yield f"{init.label}: no __all__ that is a plain list of names"
        return
    offered = set(init.public)
    for name in sorted(set(homes) - offered):
        yield f"{init.label}: __all__ lacks {name}, which {PACKAGE}/{homes[name]}.py exports"
    for name in sorted(offered - set(homes) - {"__version__"}):
        yield f"{init.label}: __all__ lists {name}, which no module exports"
    for name in sorted(name for name in offered if init.public.count(name) > 1):
        yield f"{init.label}: __all__ lists {name} twice"
    brought = {}
    for node in ast.walk(init.tree):
        if isinstance(node, ast.ImportFrom):
            target = (node.module or "").removeprefix(f"{PACKAGE}.")
            brought |= {alias.asname or alias.name: target for alias in node.names}
    for name in sorted(set(brought) & set(homes)):
        if brought[name] != homes[name]:
            yield f"{init.label}: imports {name} from {brought[name]}; {PACKAGE}/{homes[name]}.py exports it"
    lazy = any(isinstance(node, Function) and node.name == "__getattr__" for node in init.tree.body)
    defined = {name for name, _ in init.definitions}
    for name in sorted((offered & set(homes)) - set(brought) - defined if not lazy else ()):
        yield f"{init.label}: __all__ lists {name}, but it is not imported"


def check(root: Path = ROOT) -> list[str]:
    """Every problem of the export, each naming its culprit; an empty list if there is none."""
    root = root.resolve()
    chapters = book(root)
    paths = sorted(path for path in (root / PACKAGE).glob("*.py") if path.name not in BY_HAND)
    modules = {path.stem: Module(path) for path in paths}
    problems = []
    for name, module in list(modules.items()):
        try:
            module.tree  # noqa: B018
        except SyntaxError as error:
            problems.append(f"{module.label}:{error.lineno}: {error.msg}")
            del modules[name]
    problems += fresh_export(chapters, {path.stem: Module(path) for path in paths}, root)
    problems += one_chapter_one_module(chapters, modules, root)
    problems += unique_names(modules, root)
    problems += import_order(chapters, modules)
    problems += documented(chapters, modules)
    problems += asserts(modules)
    problems += agreement(modules, root)
    return problems


def main() -> int:
    problems = check()
    for problem in problems:
        print(f"gate: {problem}")
    if not problems:
        modules = [path for path in (ROOT / PACKAGE).glob("*.py") if path.name not in BY_HAND]
        print(f"gate: {len(modules)} modules are what the notebooks export")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
