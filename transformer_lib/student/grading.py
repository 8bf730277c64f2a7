"""From a notebook's cells to a list of ticks."""

from __future__ import annotations

import ast
import builtins
import copy
import inspect
import linecache
import re
import signal
import sys
import textwrap
import threading
import traceback
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from importlib import import_module
from pathlib import Path
from types import FunctionType
from typing import Any
from unittest.mock import patch

import torch
from torch import nn

from transformer_lib.student.checks import CHECKS, Check, Wrong

HERE = Path(__file__).parent
LIMIT = 60  # seconds for a test
MISSING = object()
TORCH = str(Path(torch.__file__).parent)
KEPT = (ast.Import, ast.ImportFrom, ast.FunctionDef, ast.ClassDef)
QUICK = {*dir(builtins), "math", "torch", "nn", "F", ""}  # how a constant's calls may begin: "" is a literal
Answers = dict[str, tuple[ast.FunctionDef, str]]  # what was written, by name, and in which cell


def chapters() -> list[str]:
    """The chapters in which there is something to write."""
    return sorted(path.stem for path in HERE.glob("*.py") if "\n@check(" in path.read_text(encoding="utf-8"))


def checks(chapter: str) -> list[Check]:
    """The tests of a chapter, in order."""
    if chapter not in chapters():
        raise ValueError(f"there is nothing to write in {chapter!r}; there is in {', '.join(chapters())}")
    import_module(f"transformer_lib.student.{chapter}")
    return CHECKS[chapter]


def is_stub(node: ast.FunctionDef) -> bool:
    """Whether nothing stands in a function but its docstring and ``raise NotImplementedError``."""
    last = node.body[-1]
    return len(node.body) <= 2 and ast.unparse(last).startswith("raise NotImplementedError")


def functions(node: ast.stmt) -> Iterator[tuple[str, ast.FunctionDef]]:
    """The functions that a statement defines, each with its name; that of a method begins with its class."""
    inside = node.body if isinstance(node, ast.ClassDef) else [node]
    owner = node.name if isinstance(node, ast.ClassDef) else ""
    for one in inside:
        if isinstance(one, ast.FunctionDef):
            yield f"{owner}.{one.name}" if owner else one.name, one


def headers(text: str) -> list[re.Match[str]]:
    """Where a cell begins a function or a class, also if Python can't read it."""
    return list(re.finditer(r"(?m)^( *)(def|class) +(\w+).*$", text))


def unread(text: str) -> Iterator[str]:
    """The functions of a cell that Python can't read."""
    owner = ""
    for found in headers(text):
        space, word, name = found.groups()
        if word == "class":
            owner = name
        else:
            yield f"{owner}.{name}" if owner and space else name


def parsed(cell: str) -> ast.Module:
    """A cell as Python, if need be without the notebook's own commands."""
    try:
        return ast.parse(cell)
    except SyntaxError:
        return ast.parse(re.sub(r"(?m)^( *)(%(?! )|!(?!=)).*$", r"\1pass", cell))


def is_constant(node: ast.stmt) -> bool:
    """Whether a statement gives a name to something that is made at once."""
    if not isinstance(node, (ast.Assign, ast.AnnAssign)):
        return False
    calls = [] if isinstance(node.value, ast.Lambda) else [one for one in ast.walk(node) if isinstance(one, ast.Call)]
    return all(re.match(r"\w*", ast.unparse(one.func))[0] in QUICK for one in calls)


def read(cells: Sequence[str], left_out: set[str] | None = None) -> tuple[Answers, list[ast.stmt]]:
    """The functions and methods of a notebook that are written, and what else its cells define.

    ``left_out`` collects the functions of cells that Python can't read.
    """
    found: Answers = {}
    others: list[ast.stmt] = []
    for cell in cells:
        starts = headers(cell)
        name = f'the cell "{starts[0][0].strip() if starts else cell.strip()[:40]}"'
        try:
            tree = parsed(cell)
        except SyntaxError as error:
            if starts and left_out is not None:
                print(f"! {name} is left out: {error.msg}, line {error.lineno}: {(error.text or '').strip()}")
                left_out.update(unread(cell))
            continue
        if left_out is not None:
            left_out.difference_update(key for node in tree.body for key, _ in functions(node))
        linecache.cache[name] = (len(cell), None, cell.splitlines(keepends=True), name)
        for node in tree.body:
            for key, one in functions(node):
                found.pop(key, None)
                if not is_stub(one):
                    found[key] = one, name
            if isinstance(node, KEPT) or is_constant(node):
                others.append(node)
    return found, others


def build(node: ast.FunctionDef, cell: str, owner: type | None, scope: dict[str, Any]) -> Any:
    """Compile a function, or a method of a class of the library, whose ``super()`` works there."""
    node = copy.deepcopy(node)
    node.returns = None
    for argument in ast.walk(node.args):
        if isinstance(argument, ast.arg):
            argument.annotation = None
    outer = ast.parse(f"def outer(__class__):\n    return {node.name}").body[0]
    outer.body.insert(0, node)
    made: dict[str, Any] = {}
    exec(compile(ast.fix_missing_locations(ast.Module([outer], [])), cell, "exec"), scope, made)
    return made["outer"](owner)


def built(node: ast.FunctionDef, cell: str, owner: type | None, scope: dict[str, Any]) -> Any:
    """The function that ``build`` compiles, or one that raises what went wrong there."""
    try:
        return build(node, cell, owner, scope)
    except Exception as error:
        problem = error

    def fails(*_: Any, **__: Any) -> None:
        raise problem

    return fails


def swap(old: Any, new: Any) -> None:
    """Put a function into the place of another, wherever the library has imported it."""
    for name, module in list(sys.modules.items()):
        if name.startswith("transformer_lib"):
            for key, value in list(vars(module).items()):
                if value is old:
                    setattr(module, key, new)


def names_in(nodes: Sequence[ast.AST]) -> set[str]:
    """The names in some statements or expressions."""
    return {one.id for node in nodes for one in ast.walk(node) if isinstance(one, ast.Name)}


def new_names(node: ast.stmt) -> set[str]:
    """The names that a statement defines."""
    if isinstance(node, (ast.Import, ast.ImportFrom)):
        return {alias.asname or alias.name.split(".")[0] for alias in node.names}
    if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
        return {node.name}
    return names_in(getattr(node, "targets", None) or [getattr(node, "target", node)])


def helpers(others: Sequence[ast.stmt], users: Sequence[ast.stmt], known: dict[str, Any]) -> list[ast.stmt]:
    """The imports, constants and functions of a notebook that its answers need, and that the library does not have."""
    needed, wanted = set[ast.stmt](), names_in(users) - known.keys()
    while more := {node for node in others if new_names(node) & wanted} - needed:
        needed |= more
        wanted |= names_in([*more]) - known.keys()
    return [node for node in others if node in needed]


@contextmanager
def planted(chapter: str, answers: Answers, others: Sequence[ast.stmt] = ()) -> Iterator[None]:
    """A block in which the library has these functions in the place of its own."""
    homes = {one.target.partition(".")[0]: import_module(one.module) for one in checks(chapter)}
    scope: dict[str, Any] = {}
    for home in homes.values():
        scope |= vars(home)
    for node in helpers(others, [node for node, _ in answers.values()], scope):
        with suppress(Exception), torch.random.fork_rng(devices=[]):
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
                new = built(node, cell, old, scope)
                setattr(old, method, new)
                if hasattr(new, "__set_name__"):
                    new.__set_name__(old, method)
            else:
                scope[first] = built(node, cell, None, scope)
                undo.append((swap, scope[first], old))
                swap(old, scope[first])
        yield
    finally:
        for action, *rest in reversed(undo):
            delattr(*rest[:2]) if rest[-1] is MISSING else action(*rest)


@contextmanager
def time_limit() -> Iterator[None]:
    """A block that is stopped after a minute of computing, where the system has such an alarm."""

    def stop(*_: Any) -> None:
        raise TimeoutError(f"still running after {LIMIT} seconds of computing")

    if not hasattr(signal, "SIGVTALRM") or threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGVTALRM, stop)
    signal.setitimer(signal.ITIMER_VIRTUAL, LIMIT)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, before)


@contextmanager
def uneven_norms() -> Iterator[None]:
    """A block in which fresh norms have random gains and biases, so that no two of them do the same."""
    register = nn.Module.register_parameter

    def fill(self: nn.Module, name: str, parameter: nn.Parameter | None) -> None:
        if "Norm" in type(self).__name__ and parameter is not None:
            parameter.data.uniform_(0.5, 1.5)
        register(self, name, parameter)

    with patch.object(nn.Module, "register_parameter", fill), ExitStack() as stack:
        for norm in (nn.LayerNorm, nn.RMSNorm):
            stack.enter_context(patch.object(norm, "reset_parameters", lambda self: None))
        yield


def attempt(one: Check) -> str | None:
    """Run a test once: None if it passes, or what to tell the learner."""
    try:
        with torch.random.fork_rng(devices=[]), uneven_norms(), time_limit():
            torch.manual_seed(0)
            one.run()
        return None
    except Wrong as wrong:
        return str(wrong)
    except NotImplementedError:
        return "It calls something that is not written yet."
    except Exception as error:
        trace = traceback.extract_tb(error.__traceback__)
        frames = [frame for frame in trace if not frame.filename.startswith(TORCH) and frame.name != "stop"]
        mine = [f"in {f.filename}, line {f.lineno}: {f.line}" for f in frames if f.filename.startswith('the cell "')]
        where = mine[-1] if mine else f"in the test, with what your function returned: {frames[-1].line}"
        last = frames[-1]
        if Path(last.filename).is_relative_to(HERE.parent) and not Path(last.filename).is_relative_to(HERE):
            where += f"\nThe library's own `{last.name}` raised it: look at what it was given, and what it can take."
        if not mine and "NoneType" in str(error):
            where += "\nSomething is None here: is a return missing?"
        if isinstance(error, NameError):
            where += "\nTests run in the library's module. Of your notebook, they see imports, definitions, constants."
        return f"{type(error).__name__}: {error}\n{where}"


def tried(one: Check) -> str | None:
    """Run a test: None if it passes, or what to tell the learner.

    It has to pass once more while every dropout doubles its input, so that a missing dropout is seen.
    """
    if problem := attempt(one):
        return problem
    with patch.object(nn.Dropout, "forward", lambda self, x: 2 * x):
        return attempt(one) and "The numbers are right, but the module's dropout is not called, or in another place."


def report(chapter: str, cells: Sequence[str], names: Sequence[str] = (), *, quiet: bool = False) -> tuple[int, int]:
    """Print a line for each test of a chapter, and what is wrong; how many passed, of how many.

    Each function is tested alone, so that one mistake fails one function. What passes is then tested together.
    """
    say = (lambda text: None) if quiet else print
    left_out: set[str] = set()
    answers, others = read(cells, left_out)
    listed = {one.target for one in checks(chapter)}
    added = {name: answer for name, answer in answers.items() if name not in listed}
    for name in names:
        if name not in listed | {target.split(".")[0] for target in listed}:
            raise unknown(chapter, name)
    chosen = [one for one in checks(chapter) if not names or {one.target, one.target.split(".")[0]} & set(names)]
    good, before = [], {}
    for target in dict.fromkeys(one.target for one in chosen):
        mine = [one for one in chosen if one.target == target]
        if target not in answers:
            for one in mine:
                lost = target in left_out
                say(f"! {target}: its cell is left out, see above" if lost else f"· {target}: {one.expects}")
            continue
        with planted(chapter, {**added, target: answers[target]}, others):
            results: list[tuple[Check, str | None]] = []
            for one in mine:  # an endless loop is waited for only once
                last = results[-1][1] if results else None
                results.append((one, last if (last or "").startswith("TimeoutError") else tried(one)))
        results.sort(key=lambda pair: "\nThis " not in (pair[1] or ""))  # a slip with a name comes first
        for one, problem in results:
            say(f"{'✗' if problem else '✓'} {target}: {one.expects}")
            returns = answers[target][0].returns
            if problem and "\nin the test" in problem and returns:
                problem += f"\nThe signature says what it should return: {ast.unparse(returns)}"
            if problem and before.get(target) == problem:
                say("      The same error as above.")
            elif problem:
                before[target] = problem
                say(textwrap.indent(f'{problem}\nThe page explains it under "{one.section}".', "      "))
            else:
                good.append(one)
    if chosen and len(good) == len(chosen):
        with planted(chapter, answers, others):
            together = [(one, problem) for one in chosen if (problem := tried(one))]
        for one, problem in together:
            good.remove(one)
            say(f"✗ {one.target}, together with your other functions: {one.expects}")
            say(textwrap.indent(problem, "      "))
        if not together:
            say("Together, they pass, too.")
    return len(good), len(chosen)


def grade(chapter: str, *names: str) -> None:
    """Test what this notebook has written of a chapter, all of it or some functions and classes.

    ✓ passes, ✗ does not, · is not written yet, ! can't be read.
    """
    try:
        passed, total = report(chapter, get_ipython().user_ns["In"], names)
    except ValueError as error:
        print(error)
        return
    print(f"{passed} of {total}")


def unknown(chapter: str, name: str) -> ValueError:
    """The error of a name for which a chapter has no test."""
    return ValueError(f"{name!r} is none of {', '.join(dict.fromkeys(one.target for one in checks(chapter)))}")


def source(chapter: str, name: str) -> str:
    """The library's own text of a function or method."""
    first, _, method = name.partition(".")
    module = next((one.module for one in checks(chapter) if one.target == name), None)
    if module is None:
        raise unknown(chapter, name)
    found = vars(import_module(module))[first]
    function = inspect.unwrap(vars(found)[method] if method else found)
    assert isinstance(function, FunctionType)
    return textwrap.dedent(inspect.getsource(function))


def take(chapter: str, name: str) -> None:
    """Show the library's own text of a function, and use it in this notebook from now on."""
    try:
        text, scope = source(chapter, name), get_ipython().user_ns
    except ValueError as error:
        print(error)
        return
    print(f"{text}\n# This is used from now on. grade tests only what stands in your own cells.")
    first, _, method = name.partition(".")
    node = ast.parse(text).body[0]
    assert isinstance(node, ast.FunctionDef)
    function = build(node, f"the library's {name}", scope.get(first), scope)
    if method:
        setattr(scope[first], method, function)
    else:
        scope[first] = function
