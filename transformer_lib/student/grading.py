"""From a notebook's cells to a list of ticks."""

from __future__ import annotations

import ast
import copy
import inspect
import linecache
import re
import sys
import textwrap
import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from importlib import import_module
from types import FunctionType
from typing import Any

import torch

from transformer_lib.student.checks import CHECKS, Check, Wrong

MISSING = object()
Answers = dict[str, tuple[ast.FunctionDef, str]]  # what was written, by name, and in which cell


def checks(chapter: str) -> list[Check]:
    """The tests of a chapter, in order."""
    import_module(f"transformer_lib.student.{chapter}")
    return CHECKS[chapter]


def is_stub(node: ast.FunctionDef) -> bool:
    """Whether nothing stands in a function but its docstring and ``raise NotImplementedError``."""
    last = node.body[-1]
    return len(node.body) <= 2 and isinstance(last, ast.Raise) and "NotImplementedError" in ast.unparse(last)


def read(cells: Sequence[str]) -> tuple[Answers, list[ast.stmt]]:
    """The functions and methods of a notebook that are written, and what else its cells define."""
    found: Answers = {}
    others: list[ast.stmt] = []
    for number, cell in enumerate(cells):
        name = f"cell {number}"
        text = re.sub(r"(?m)^( *)[%!].*$", r"\1pass", cell)
        try:
            tree = ast.parse(text)
        except SyntaxError as error:
            if re.search(r"(?m)^\s*(def|class) ", text):
                print(f"! {name} is left out: {error.msg}, line {error.lineno}: {(error.text or '').strip()}")
            continue
        linecache.cache[name] = (len(text), None, text.splitlines(keepends=True), name)
        for node in tree.body:
            methods = [(node.name, m) for m in node.body] if isinstance(node, ast.ClassDef) else [("", node)]
            for owner, one in methods:
                if isinstance(one, ast.FunctionDef):
                    key = f"{owner}.{one.name}".lstrip(".")
                    found.pop(key, None)
                    if not is_stub(one):
                        found[key] = one, name
            fixed = isinstance(node, ast.Assign) and isinstance(node.value, ast.Constant)
            if fixed or isinstance(node, (ast.Import, ast.ImportFrom, ast.FunctionDef, ast.ClassDef)):
                others.append(node)
    return found, others


def build(node: ast.FunctionDef, cell: str, owner: type | None, scope: dict[str, Any]) -> Any:
    """Compile a function, or a method of a class of the library, whose ``super()`` works there."""
    node = copy.deepcopy(node)
    every = node.args
    for argument in (*every.posonlyargs, *every.args, *every.kwonlyargs, every.vararg, every.kwarg, node):
        if argument is not None:
            setattr(argument, "returns" if argument is node else "annotation", None)
    outer = ast.parse(f"def outer(__class__):\n    return {node.name}").body[0]
    outer.body.insert(0, node)
    exec(compile(ast.fix_missing_locations(ast.Module([outer], [])), cell, "exec"), scope)
    return scope.pop("outer")(owner)


def swap(old: Any, new: Any) -> None:
    """Put a function into the place of another, wherever the library has imported it."""
    for name, module in list(sys.modules.items()):
        if name.startswith("transformer_lib"):
            for key, value in list(vars(module).items()):
                if value is old:
                    setattr(module, key, new)


def helpers(others: Sequence[ast.stmt], users: Sequence[ast.stmt], known: dict[str, Any]) -> list[ast.stmt]:
    """The imports, constants and functions of a notebook that its answers need, and that the library does not have."""
    needed, used = [], {name.id for user in users for name in ast.walk(user) if isinstance(name, ast.Name)}
    for node in reversed(others):
        aliases = node.names if isinstance(node, (ast.Import, ast.ImportFrom)) else []
        names = {alias.asname or alias.name.split(".")[0] for alias in aliases} | {getattr(node, "name", "")}
        names |= {target.id for target in getattr(node, "targets", []) if isinstance(target, ast.Name)}
        if names & used - known.keys():
            needed.append(node)
            used |= {name.id for name in ast.walk(node) if isinstance(name, ast.Name)}
    return needed[::-1]


@contextmanager
def planted(chapter: str, answers: Answers, others: Sequence[ast.stmt] = ()) -> Iterator[None]:
    """A block in which the library has these functions in the place of its own."""
    homes = {one.target.partition(".")[0]: import_module(one.module) for one in checks(chapter)}
    scope: dict[str, Any] = {}
    for home in homes.values():
        scope |= vars(home)
    for node in helpers(others, [node for node, _ in answers.values()], scope):
        with suppress(Exception):
            exec(compile(ast.Module([node], []), "a helper", "exec"), scope)
    undo: list[tuple[Any, ...]] = []
    try:
        for key, (node, cell) in answers.items():
            first, _, method = key.partition(".")
            if first not in homes:
                continue
            old = vars(homes[first])[first]
            if method:
                undo.append((setattr, old, method, vars(old).get(method, MISSING)))
                new = build(node, cell, old, scope)
                setattr(old, method, new)
                if hasattr(new, "__set_name__"):
                    new.__set_name__(old, method)
            else:
                scope[first] = build(node, cell, None, scope)
                undo.append((swap, scope[first], old))
                swap(old, scope[first])
        yield
    finally:
        for action, *rest in reversed(undo):
            delattr(*rest[:2]) if rest[-1] is MISSING else action(*rest)


def tried(one: Check) -> str | None:
    """Run a test: None if it passes, or what to tell the learner."""
    try:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            one.run()
        return None
    except Wrong as wrong:
        return str(wrong)
    except NotImplementedError:
        return "It calls something that is not written yet."
    except Exception as error:
        frames = [f for f in traceback.extract_tb(error.__traceback__) if f.filename.startswith("cell ")]
        where = f"in {frames[-1].filename}, line {frames[-1].lineno}: {frames[-1].line}" if frames else "in the test"
        return f"{type(error).__name__}: {error}\n{where}"


def report(chapter: str, cells: Sequence[str], names: Sequence[str] = (), *, quiet: bool = False) -> tuple[int, int]:
    """Print a line for each test of a chapter, and what is wrong; how many passed, of how many.

    Each function is tested alone, so that one mistake fails one function. What passes is then tested together.
    """
    say = (lambda text: None) if quiet else print
    answers, others = read(cells)
    listed = {one.target for one in checks(chapter)}
    added = {name: answer for name, answer in answers.items() if name not in listed}
    chosen = [one for one in checks(chapter) if not names or {one.target, one.target.split(".")[0]} & set(names)]
    good, crashed = [], set()
    for one in chosen:
        if one.target not in answers:
            say(f"· {one.target}: {one.expects}")
            continue
        with planted(chapter, {**added, one.target: answers[one.target]}, others):
            problem = tried(one)
        say(f"{'✗' if problem else '✓'} {one.target}: {one.expects}")
        if problem and one.target in crashed and "\nin " in problem:
            continue  # the same mistake, as a rule
        if problem:
            crashed |= {one.target} if "\nin " in problem else set()
            say(textwrap.indent(f'{problem}\nThe page explains it under "{one.section}".', "      "))
        else:
            good.append(one)
    if len(good) == len(chosen):
        with planted(chapter, answers, others):
            together = [(one, problem) for one in chosen if (problem := tried(one))]
        for one, problem in together:
            good.remove(one)
            say(f"✗ {one.target}, together with your other functions: {one.expects}")
            say(textwrap.indent(problem, "      "))
    return len(good), len(chosen)


def grade(chapter: str, *names: str) -> None:
    """Test what this notebook has written of a chapter, all of it or some functions and classes.

    ✓ passes, ✗ does not, · is not written yet.
    """
    cells = get_ipython().user_ns["In"]  # noqa: F821
    passed, total = report(chapter, cells, names)
    print(f"{passed} of {total}")


def source(chapter: str, name: str) -> str:
    """The library's own text of a function or method."""
    first, _, method = name.partition(".")
    module = next((one.module for one in checks(chapter) if one.target == name), None)
    if module is None:
        raise ValueError(f"{name!r} is none of {', '.join(dict.fromkeys(one.target for one in checks(chapter)))}")
    found = vars(import_module(module))[first]
    function = inspect.unwrap(vars(found)[method] if method else found)
    assert isinstance(function, FunctionType)
    return textwrap.dedent(inspect.getsource(function))


def take(chapter: str, name: str) -> None:
    """Show the library's own text of a function, and use it in this notebook from now on."""
    text, scope = source(chapter, name), get_ipython().user_ns  # noqa: F821
    print(text)
    first, _, method = name.partition(".")
    node = ast.parse(text).body[0]
    assert isinstance(node, ast.FunctionDef)
    function = build(node, f"the library's {name}", scope.get(first), scope)
    if method:
        setattr(scope[first], method, function)
    else:
        scope[first] = function
