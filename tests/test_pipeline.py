"""The pipeline's own tests: the book passes the export gate and the notebook guard, and each rule names its culprit."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

pytest.importorskip("tomllib", reason="the book needs Python 3.11; only the library supports 3.10")
pytest.importorskip("nbdev", reason="the pipeline's tests need the book's environment")

import chapters
import colab
import compare
import export
import gate
import guard
import nbformat
import notebooks
import set_repository
from nbformat.v4 import new_code_cell, new_markdown_cell, new_output
from set_repository import Repository
from tiny_project import TinyProject

ROOT = chapters.ROOT


# The book itself ------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_the_library_is_what_the_notebooks_export() -> None:
    assert gate.check() == []


@pytest.mark.slow
def test_every_notebook_was_executed_and_holds_nothing_of_one_machine() -> None:
    assert guard.check() == []


@pytest.mark.slow
def test_every_place_names_the_same_repository() -> None:
    assert set_repository.disagreements() == []


def test_the_address_is_declared_in_one_place() -> None:
    text = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    assert text.count(Repository.declared().slug) == 1


# The export gate ------------------------------------------------------------------------------------------------------


def test_a_sound_project_passes(project: TinyProject) -> None:
    assert project.gate() == []
    assert project.guard() == []


def test_export_is_repeatable_and_marks_the_chapter(project: TinyProject) -> None:
    path = project.package / "counting.py"
    before = path.read_bytes()
    assert b"Chapter: Counting words (book/history/01_counting.ipynb)." in before
    assert b"from .grammar import Word" in before
    path.unlink()
    export.export_all(project.root)
    assert path.read_bytes() == before


def alter_module(project: TinyProject) -> None:
    path = project.package / "counting.py"
    path.write_text(path.read_text().replace("LIMIT = 3", "LIMIT = 4"))


def add_line_end(project: TinyProject) -> None:
    path = project.package / "counting.py"
    path.write_bytes(path.read_bytes() + b"\n")


def delete_module(project: TinyProject) -> None:
    (project.package / "doubling.py").unlink()


def delete_notebook(project: TinyProject) -> None:
    project.path("doubling").unlink()


def add_foreign_file(project: TinyProject) -> None:
    (project.package / "helpers").mkdir()
    (project.package / "helpers" / "extra.py").write_text('"""Extra."""\n')


def export_nothing(project: TinyProject) -> None:
    project.write("translation/15_training", [new_markdown_cell("# Training\n\n> Nothing yet."), new_code_cell("1")])


def export_without_cells(project: TinyProject) -> None:
    project.write(
        "descendants/19_gpt",
        [new_markdown_cell("# GPT\n\n> Nothing yet."), new_code_cell("#| default_exp gpt"), new_code_cell("1")],
    )


def share_module(project: TinyProject) -> None:
    shutil.copy(project.path("counting"), project.path("counting").with_name("03_counting_again.ipynb"))


def name_two_modules(project: TinyProject) -> None:
    project.edit("counting", lambda notebook: notebook.cells.append(new_code_cell("#| default_exp other")))


def export_elsewhere(project: TinyProject) -> None:
    project.edit("counting", lambda notebook: notebook.cells.append(new_code_cell("#| export doubling\nx = 1")))


def magic_in_export(project: TinyProject) -> None:
    project.edit("counting", lambda notebook: notebook.cells.append(new_code_cell("#| export\n%time x = 1")))


def drop_summary(project: TinyProject) -> None:
    def change(notebook: nbformat.NotebookNode) -> None:
        notebook.cells[0].source = "# Counting words"

    project.edit("counting", change)


def without_number(project: TinyProject) -> None:
    project.path("doubling").rename(project.path("doubling").with_name("doubling.ipynb"))
    export.export_all(project.root)


def same_number(project: TinyProject) -> None:
    project.path("doubling").rename(project.path("doubling").with_name("01_doubling.ipynb"))
    export.export_all(project.root)


def replacing(module: str, old: str, new: str, cell: int = 4) -> Callable[[TinyProject], None]:
    return lambda project: project.replace(module, old, new, cell)


def init(old: str, new: str) -> Callable[[TinyProject], None]:
    def change(project: TinyProject) -> None:
        path = project.package / "__init__.py"
        assert old in path.read_text()
        path.write_text(path.read_text().replace(old, new))

    return change


def adding(module: str, code: str) -> Callable[[TinyProject], None]:
    """Add code at the end of a module's last exported cell."""
    last = {"grammar": "return self.text\n", "counting": "[*words, *others])", "doubling": "number // 2"}[module]
    kept = last.rstrip("\n")

    def change(project: TinyProject) -> None:
        notebook = nbformat.read(project.path(module), as_version=4)
        assert notebook.cells[4].source.endswith(kept)
        project.edit(module, lambda read: read.cells[4].update(source=f"{read.cells[4].source}\n\n\n{code}"))
        export.export(project.path(module), project.root)

    return change


OTHER_COUNT = 'def count(words: int) -> int:\n    """Another.\n\n    Chapter: {}.\n    """\n    return words'

GATE_CASES = {
    "a line of a module altered": (alter_module, "counting.py differs from line .*/01_counting.ipynb"),
    "a byte added at the end": (
        add_line_end,
        "counting.py differs at its end .*/01_counting.ipynb|differs from line .*/01_counting.ipynb",
    ),
    "a module missing": (delete_module, "doubling.py is missing: book/history/02_doubling.ipynb"),
    "a module without notebook": (delete_notebook, "transformer_lib/doubling.py has no notebook"),
    "a foreign file": (add_foreign_file, "transformer_lib/helpers/extra.py has no notebook"),
    "a chapter that exports nothing": (export_nothing, "book/translation/15_training.ipynb exports nothing"),
    "a chapter with a name and no cells": (export_without_cells, "book/descendants/19_gpt.ipynb: default_exp gpt, but"),
    "a shared module": (share_module, "counting.py is exported by .*01_counting.ipynb and .*03_counting_again.ipynb"),
    "two modules": (name_two_modules, r"01_counting.ipynb: more than one default_exp \(counting, other\)"),
    "an export into another module": (export_elsewhere, "01_counting.ipynb, cell 6: '#| export doubling'"),
    "a magic in an exported cell": (magic_in_export, "01_counting.ipynb, cell 6: .* '%time x = 1'"),
    "no line under the title": (drop_summary, "01_counting.ipynb: the title cell needs a line"),
    "a chapter without number": (without_number, "doubling.ipynb: the name of a chapter begins with its number"),
    "a number twice": (same_number, "01_counting.ipynb and .*01_doubling.ipynb have the same number 1"),
    "a name exported twice": (
        adding("doubling", OTHER_COUNT.format("Doubling")),
        "count is exported by transformer_lib/counting.py and transformer_lib/doubling.py",
    ),
    "a name defined again": (
        lambda project: (project.package / "__init__.py").write_text(
            (project.package / "__init__.py").read_text() + "\n\ndef double() -> None:\n    return None\n"
        ),
        "__init__.py:10: double is defined again; transformer_lib/doubling.py exports it",
    ),
    "a name assigned again below a condition": (
        adding("counting", "if LIMIT:\n    _all_ = []\n    double = None"),
        "counting.py:.*: double is defined again; transformer_lib/doubling.py exports it",
    ),
    "a name defined twice in a module": (
        adding("counting", OTHER_COUNT.format("Counting words")),
        "counting.py:.*: count is defined twice",
    ),
    "a name that hides a module": (
        adding("doubling", "grammar = 3"),
        "grammar, exported by transformer_lib/doubling.py, has the name of a module",
    ),
    "an import from a later chapter": (
        replacing("counting", "import Word", "import Word\nfrom transformer_lib.doubling import double", cell=3),
        "counting.py:.*: imports doubling of chapter 2, but belongs to chapter 1",
    ),
    "a hidden import from a later chapter": (
        adding("counting", "def _late() -> None:\n    import transformer_lib.doubling"),
        "counting.py:.*: imports doubling of chapter 2, but belongs to chapter 1",
    ),
    "an import by name from a later chapter": (
        adding("counting", 'def _late() -> None:\n    __import__("transformer_lib.doubling")'),
        "counting.py:.*: imports doubling of chapter 2, but belongs to chapter 1",
    ),
    "an import of a later module itself": (
        adding("counting", "def _late() -> None:\n    from transformer_lib import doubling"),
        "counting.py:.*: imports doubling of chapter 2, but belongs to chapter 1",
    ),
    "an import from the package": (
        adding("doubling", "def _round() -> None:\n    from transformer_lib import count"),
        "doubling.py:.*: imports from transformer_lib itself",
    ),
    "an import of nothing": (
        adding("doubling", "def _nothing() -> None:\n    from transformer_lib.counted import count"),
        "doubling.py:.*: imports counted, which is not a module",
    ),
    "an appendix that imports": (
        replacing("grammar", "import dataclass", "import dataclass\nfrom transformer_lib.counting import LIMIT", 3),
        "grammar.py:.*: imports counting; an appendix module imports nothing",
    ),
    "a function without docstring": (
        adding("counting", "def third(number: int) -> int:\n    return number // 3"),
        "counting.py:.*: third: no docstring",
    ),
    "a class without docstring": (adding("counting", "class Third:\n    pass"), "counting.py:.*: Third: no docstring"),
    "a method without docstring": (
        replacing("grammar", '        """The word in capitals."""\n', ""),
        r"grammar.py:.*: Word.shout: no docstring",
    ),
    "a property without docstring": (
        replacing("grammar", '        """The number of letters."""\n', ""),
        r"grammar.py:.*: Word.length: no docstring",
    ),
    "an argument without type": (
        replacing("counting", "least: int = 0", "least=0"),
        "counting.py:.*: count: no type for least",
    ),
    "further arguments without type": (
        replacing("counting", "*others: Word", "*others"),
        "counting.py:.*: count: no type for others",
    ),
    "no return type": (replacing("counting", ") -> int:", "):"), "counting.py:.*: count: no return type"),
    "a method without return type": (
        replacing("grammar", "shout(self) -> str", "shout(self)"),
        "grammar.py:.*: Word.shout: no return type",
    ),
    "a special method without type": (
        adding("grammar", "    def __eq__(self, other) -> bool:\n        return False"),
        "grammar.py:.*: Word.__eq__: no type for other",
    ),
    "no chapter line": (
        replacing("counting", " Chapter: Counting words.", ""),
        "counting.py:.*: count: its docstring lacks 'Chapter: Counting words.'",
    ),
    "a class without chapter line": (
        replacing("grammar", "    Chapter: A small grammar.\n", ""),
        "grammar.py:.*: Word: its docstring lacks 'Chapter: A small grammar.'",
    ),
    "the wrong chapter": (
        replacing("counting", "Chapter: Counting words.", "Chapter: Counting words and more."),
        "counting.py:.*: count: its docstring says 'Chapter: Counting words and more.'",
    ),
    "a bare assert": (
        replacing("doubling", "    return 2", "    assert words\n    return 2"),
        "doubling.py:.*: a bare assert",
    ),
    "a public name that the package lacks": (
        init('"count", "double"', '"count"'),
        "__init__.py: __all__ lacks double, which transformer_lib/doubling.py exports",
    ),
    "a public name that nobody exports": (
        init('"count", "double"', '"count", "double", "triple"'),
        "__init__.py: __all__ lists triple, which no module exports",
    ),
    "a public name that is not imported": (
        init("from .doubling import double\n", ""),
        "__init__.py: __all__ lists double, but it is not imported",
    ),
    "a public name from the wrong module": (
        init("from .grammar import Word", "from .counting import Word"),
        "__init__.py: imports Word from counting; transformer_lib/grammar.py exports it",
    ),
    "public names that cannot be read": (
        init('["LIMIT", "Word", "count", "double"]', "sorted(globals())"),
        "__init__.py: no __all__ that is a plain list",
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("case", GATE_CASES)
def test_the_gate_names_the_culprit(project: TinyProject, case: str) -> None:
    break_it, culprit = GATE_CASES[case]
    break_it(project)
    problems = project.gate()
    assert any(re.search(culprit, problem) for problem in problems), problems


def test_export_leaves_the_module_alone_when_a_cell_cannot_be_exported(project: TinyProject) -> None:
    before = (project.package / "counting.py").read_bytes()
    magic_in_export(project)
    with pytest.raises(ValueError, match=r"01_counting\.ipynb, cell 6"):
        export.export(project.path("counting"), project.root)
    assert (project.package / "counting.py").read_bytes() == before
    assert {path.name for path in project.package.iterdir()} >= {"counting.py", "py.typed"}
    assert not list(project.package.glob(".*"))


def test_export_removes_a_module_whose_notebook_is_gone(project: TinyProject) -> None:
    project.path("doubling").unlink()
    export.export_all(project.root)
    assert not (project.package / "doubling.py").exists()
    assert (project.package / "__init__.py").exists()


@pytest.mark.slow
@pytest.mark.parametrize("script", ["gate", "guard"])
def test_the_scripts_fail_when_they_find_something(project: TinyProject, script: str) -> None:
    shutil.copytree(ROOT / "tools", project.root / "tools", ignore=shutil.ignore_patterns("__pycache__"))
    command = [sys.executable, project.root / "tools" / f"{script}.py"]
    sound = subprocess.run(command, capture_output=True, text=True)
    assert sound.returncode == 0, sound.stdout + sound.stderr
    (alter_module if script == "gate" else set_count(3, None))(project)
    broken = subprocess.run(command, capture_output=True, text=True)
    assert broken.returncode == 1
    assert "counting" in broken.stdout


# The notebook guard ---------------------------------------------------------------------------------------------------


def cell(index: int, **changes: object) -> Callable[[TinyProject], None]:
    """Change fields of one cell of the counting chapter."""
    return lambda project: project.edit("counting", lambda notebook: notebook.cells[index].update(changes))


def set_count(index: int, count: int | None) -> Callable[[TinyProject], None]:
    return cell(index, execution_count=count)


def tags(index: int, *names: str) -> Callable[[TinyProject], None]:
    return cell(index, metadata=nbformat.from_dict({"tags": list(names)}))


def prints(text: str, name: str = "stdout") -> Callable[[TinyProject], None]:
    return cell(5, outputs=[new_output("stream", name=name, text=text)])


def shows(kind: str, value: str) -> Callable[[TinyProject], None]:
    return cell(5, outputs=[new_output("display_data", data={kind: value})])


def fails(name: str) -> Callable[[TinyProject], None]:
    return cell(5, outputs=[new_output("error", ename=name, evalue="no", traceback=["no"])])


def append(*cells: nbformat.NotebookNode) -> Callable[[TinyProject], None]:
    def change(project: TinyProject) -> None:
        for number, added in enumerate(cells):
            added.id = f"added-{number}"
        project.edit("counting", lambda notebook: notebook.cells.extend(cells))

    return change


def ignored(count: int, reason: str = "# output ignored: it is a time\n") -> Callable[[TinyProject], None]:
    made = [new_code_cell(f"{reason}{n}", execution_count=6 + n) for n in range(count)]
    for each in made:
        each.metadata["tags"] = ["nbval-ignore-output"]
    return append(*made)


def metadata(key: str, value: object) -> Callable[[TinyProject], None]:
    return lambda project: project.edit("counting", lambda notebook: notebook.metadata.update({key: value}))


GUARD_CASES = {
    "no count": (set_count(3, None), "01_counting.ipynb: no execution count, .* in cell 3"),
    "an empty cell": (cell(5, source=" \n"), "01_counting.ipynb, cell 5: an empty code cell"),
    "a cell run again": (set_count(5, 9), "01_counting.ipynb, cell 5: execution count 9, expected 5"),
    "the tag nbval-skip": (tags(5, "nbval-skip"), "01_counting.ipynb, cell 5: tagged nbval-skip"),
    "the tag skip-execution": (tags(5, "skip-execution"), "01_counting.ipynb, cell 5: tagged skip-execution"),
    "a tag nobody reads": (tags(5, "NBVAL_IGNORE_OUTPUT"), "01_counting.ipynb, cell 5: tag 'NBVAL_IGNORE_OUTPUT'"),
    "a comment that skips": (cell(5, source="# NBVAL_SKIP\n6"), "01_counting.ipynb, cell 5: the comment NBVAL_SKIP"),
    "a comment that ignores": (
        cell(5, source="  # PYTEST_VALIDATE_IGNORE_OUTPUT\n6"),
        "01_counting.ipynb, cell 5: the comment PYTEST_VALIDATE_IGNORE_OUTPUT",
    ),
    "three ignored outputs": (ignored(3), "01_counting.ipynb: 3 ignored outputs, at most 2"),
    "an ignored output without reason": (
        ignored(1, "# output ignored:\n"),
        "01_counting.ipynb, cell 6: nbval-ignore-output without a comment",
    ),
    "an error": (fails("ValueError"), "01_counting.ipynb, cell 5: the committed output is an error, ValueError"),
    "an expected error that is missing": (
        tags(5, "raises-exception"),
        "01_counting.ipynb, cell 5: tagged raises-exception, but",
    ),
    **{
        f"a path below {text.split('/')[1]}": (
            prints(f"saved {text}.\n"),
            f"01_counting.ipynb, cell 5: .*path: '{text}",
        )
        for text in ("/home/me/x.pt", "/tmp/abc", "/root/.cache/x", "/Users/me/x", "/content/x.pt")
    },
    "a path in quotes": (shows("text/plain", "PosixPath('/tmp')"), "01_counting.ipynb, cell 5: .* a path: .*/tmp"),
    "a Windows path": (prints("C:\\Users\\me\\x"), "01_counting.ipynb, cell 5: .* a Windows path"),
    "an escaped Windows path": (shows("text/plain", r"'C:\\Users\\me'"), "cell 5: .* a Windows path"),
    "an address": (
        shows("text/plain", "<built-in method f at 0x7f0a1c2d3e40>"),
        "01_counting.ipynb, cell 5: the output holds an address: '0x7f0a1c2d3e40'|an address: 'at 0x7f0a",
    ),
    "an address in HTML": (shows("text/html", "<b>0x7f0a1c2d3e40</b>"), "cell 5: .* an address"),
    "a warning": (prints("x.py:3: UserWarning: no\n"), "01_counting.ipynb, cell 5: .* a warning: 'UserWarning'"),
    "stderr": (prints("careful\n", "stderr"), "01_counting.ipynb, cell 5: writes to stderr: 'careful'"),
    "a semicolon": (cell(5, source="x = 6\nx;"), "01_counting.ipynb, cell 5: a line ends in a semicolon: 'x;'"),
    "a semicolon before a comment": (cell(5, source="x = 6;  # six"), "cell 5: a line ends in a semicolon"),
    "no title": (cell(0, source="> What it builds."), "01_counting.ipynb, cell 0: must be '# Title'"),
    "no line below the title": (cell(0, source="# Counting words"), "01_counting.ipynb, cell 0: must be '# Title'"),
    "more than one line": (cell(0, source="# Counting words\n\n> One.\n> Two."), "cell 0: must be '# Title'"),
    "a second title": (append(new_markdown_cell("Text\n\n# Again")), "cell 6: a second title, '# Again'"),
    "no Colab cell": (cell(1, source="import sys"), "01_counting.ipynb, cell 1: must be the standard Colab cell"),
    "another kernel": (
        metadata("kernelspec", {"name": "mine", "display_name": "Mine"}),
        "01_counting.ipynb: metadata is not the standard one: kernelspec",
    ),
    "no Colab metadata": (metadata("colab", {}), "01_counting.ipynb: metadata is not the standard one: colab"),
    "editor's metadata": (metadata("vscode", {"x": 1}), "01_counting.ipynb: metadata is not the standard one: vscode"),
    "a picture without alt text": (shows("image/png", "iVBORw0KGgo="), "cell 5: a figure without alt text"),
    "not a notebook": (
        cell(5, outputs=[nbformat.from_dict({"output_type": "strange"})]),
        "01_counting.ipynb: not a valid notebook",
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("case", GUARD_CASES)
def test_the_guard_names_the_culprit(project: TinyProject, case: str) -> None:
    break_it, culprit = GUARD_CASES[case]
    break_it(project)
    problems = project.guard()
    assert any(re.search(culprit, problem) for problem in problems), problems


ALLOWED = {
    "two ignored outputs with a reason": ignored(2),
    "an error that the cell announces": lambda project: (
        fails("ValueError")(project),
        tags(5, "raises-exception")(project),
    ),
    "a semicolon inside a string": cell(5, source='style = """\ncolor: red;\n"""\nprint(style)'),
    "a fraction and a short number": prints("and/or 3/4, 0x41, https://example.org/home/page, the word warning\n"),
    "a comment in fenced code": append(new_markdown_cell("```python\n# not a title\n```")),
}


@pytest.mark.parametrize("case", ALLOWED)
def test_the_guard_lets_pass(project: TinyProject, case: str) -> None:
    ALLOWED[case](project)
    assert project.guard() == []


def test_long_exported_cells_are_a_note_not_a_failure(
    project: TinyProject, capsys: pytest.CaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    adding("counting", "\n".join(f"_x{n} = {n}" for n in range(40)))(project)
    assert project.guard() == []
    monkeypatch.setattr(guard, "ROOT", project.root)
    monkeypatch.setattr(guard, "book", lambda: chapters.book(project.root))
    assert guard.main([]) == 0
    note = "note: book/history/01_counting.ipynb: exported cells of more than 25 lines of code: 4 ("
    assert note in capsys.readouterr().out


# Notebooks ------------------------------------------------------------------------------------------------------------


def test_cleaning_keeps_what_is_shown_and_drops_the_rest(project: TinyProject) -> None:
    notebook = nbformat.read(project.path("counting"), as_version=4)
    notebook.metadata["jupytext"] = {"x": 1}
    notebook.cells[1].source = 'import sys\n\nif "google.colab" in sys.modules:\n    # %pip install old'
    last = notebook.cells[5]
    last.metadata = nbformat.from_dict({"tags": ["raises-exception"], "mystnb": {"image": {"alt": "x"}}, "lines": 1})
    last.outputs = [new_output("stream", name="stdout", text=text) for text in ("a", "b\n")]
    notebooks.clean(notebook)
    assert notebook.metadata == notebooks.METADATA
    assert notebook.cells[1].source == Repository.declared().colab_cell
    assert last.metadata == {"tags": ["raises-exception"], "mystnb": {"image": {"alt": "x"}}}
    assert [output.text for output in last.outputs] == ["ab\n"]
    assert last.execution_count == 5
    last.source = f"#| fold: A label\n{last.source}"
    notebooks.clean(notebook)
    assert last.metadata["jupyter"] == {"source_hidden": True} and last.metadata["cellView"] == "form"
    last.source = last.source.removeprefix("#| fold: A label\n")
    notebooks.clean(notebook)
    assert last.metadata == {"tags": ["raises-exception"], "mystnb": {"image": {"alt": "x"}}}


def test_reading_order() -> None:
    order = [(notebook.number or 0, notebook.part == "appendix") for notebook in chapters.book() if notebook.module]
    numbers = [number for number, appendix in order if not appendix]
    assert numbers == sorted(numbers)
    assert [appendix for _, appendix in order] == sorted((appendix for _, appendix in order), reverse=True)


def test_nothing_is_rewritten_before_it_is_compared() -> None:
    text = compare.SANITIZE.read_text(encoding="utf-8")
    assert re.findall(r"^regex:", text, re.M) == []
    assert str(compare.SANITIZE) in " ".join(compare.command([], 1))


# The repository's address ---------------------------------------------------------------------------------------------


def copy_of_the_project(folder: Path) -> Path:
    colab.working_copy(folder, ROOT)
    return folder


@pytest.mark.slow
def test_the_address_can_be_set_everywhere(tmp_path: Path) -> None:
    root = copy_of_the_project(tmp_path)
    old, new = Repository.declared(root), Repository.parse("https://github.com/Some-One/my-book", "stable")
    changed = set_repository.set_everywhere(new, root)
    assert Repository.declared(root) == new
    assert set_repository.disagreements(root) == []
    notebooks_of_the_book = chapters.notebooks(root)
    assert set(notebooks_of_the_book) <= set(changed)
    for path in set_repository.text_files(root):
        text = path.read_text(encoding="utf-8")
        assert old.slug not in text, path
        assert old.pages.lower() not in text.lower(), path
    assert guard.check(root) == guard.check(ROOT)
    assert gate.check(root) == gate.check(ROOT)
    assert set_repository.set_everywhere(new, root) == []  # nothing left to do
    set_repository.set_everywhere(old, root)
    for path in changed:
        assert path.read_bytes() == (ROOT / path.relative_to(root)).read_bytes(), path


def test_what_is_replaced() -> None:
    old = Repository("OWNER", "book", "main")
    new = Repository("Me", "mine", "stable")
    text = (
        "https://github.com/OWNER/book.git git+https://github.com/OWNER/book@main "
        "https://github.com/OWNER/book/blob/main/x.ipynb https://github.com/OWNER/book/blob/mainly/x "
        "https://colab.research.google.com/github/OWNER/book/blob/main/book/x.ipynb "
        "https://OWNER.github.io/book/x.html https://github.com/OWNER/book-two "
        "https://github.com/karpathy/book\ncd book\ncd book-two"
    )
    assert set_repository.replace(text, old, new) == (
        "https://github.com/Me/mine.git git+https://github.com/Me/mine@stable "
        "https://github.com/Me/mine/blob/stable/x.ipynb https://github.com/Me/mine/blob/mainly/x "
        "https://colab.research.google.com/github/Me/mine/blob/stable/book/x.ipynb "
        "https://me.github.io/mine/x.html https://github.com/OWNER/book-two "
        "https://github.com/karpathy/book\ncd mine\ncd book-two"
    )


DISAGREEMENTS = {
    "_config.yml": ("repository:\n  url: https://github.com/other/one\n  branch: main\n", "_config.yml does not name"),
    "_config.yml, branch": ("repository:\n  url: {url}\n  branch: old\n", "_config.yml: branch old, declared is main"),
    "README.md": ("# Book\n", "README.md does not name"),
    "CITATION.cff": ("repository-code: https://github.com/a/b\n", "CITATION.cff does not name"),
    "CHANGELOG.md": ("[0.1.0]: https://github.com/else/{name}/releases\n", "CHANGELOG.md:1: else/"),
    "book/intro.md": ("See https://else.github.io/{name}/x.html\n", "book/intro.md:1: else.github.io/"),
    "book/links.md": ("{url}/blob/old/x.md\n", "book/links.md:1: branch old, declared is main"),
}


@pytest.mark.slow
@pytest.mark.parametrize("case", DISAGREEMENTS)
def test_a_place_that_disagrees_is_named(project: TinyProject, case: str) -> None:
    assert set_repository.disagreements(project.root) == []
    here = Repository.declared(project.root)
    text, culprit = DISAGREEMENTS[case]
    (project.root / case.split(",")[0]).write_text(text.format(url=here.url, name=here.name))
    problems = set_repository.disagreements(project.root)
    assert any(culprit in problem for problem in problems), problems


def test_an_old_colab_cell_is_named(project: TinyProject) -> None:
    project.replace("counting", "@main", "@old", cell=1)
    assert any("01_counting.ipynb: the second cell" in each for each in set_repository.disagreements(project.root))


@pytest.mark.parametrize("address", ["github.com/me/book", "https://gitlab.com/me/book", "https://github.com/me", ""])
def test_an_address_that_is_none(address: str) -> None:
    with pytest.raises(ValueError, match="is not an address such as"):
        Repository.parse(address)


@pytest.mark.parametrize("address", ["https://github.com/me/book.git", "https://github.com/me/book/"])
def test_an_address_as_people_paste_it(address: str) -> None:
    assert Repository.parse(address).url == "https://github.com/me/book"


# Commands and services ------------------------------------------------------------------------------------------------


def test_every_command_is_listed() -> None:
    listed = subprocess.run(["make", "-s"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    commands = set(re.findall(r"^make (\w+)", listed, re.M))
    assert commands == {"help", "book", "test", "check", "export", "notebooks", "serve", "colab", "clean"}


def test_a_python_that_is_too_old_is_refused_in_one_line(tmp_path: Path) -> None:
    for name in ("Makefile", "requirements.txt", "pyproject.toml"):
        shutil.copy(ROOT / name, tmp_path)
    done = subprocess.run(["make", "check", "PYTHON=false"], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode != 0
    assert "The book needs Python 3.11 or newer with its venv module; false is not" in done.stderr
    assert not (tmp_path / ".venv").exists()


def test_the_whole_run_is_executable() -> None:
    assert os.access(ROOT / ".ci" / "run", os.X_OK)
    subprocess.run(["bash", "-n", ROOT / ".ci" / "run"], check=True)


def test_pins_are_exact_and_hold_what_is_asked_for() -> None:
    import pin
    from packaging.requirements import Requirement
    from packaging.utils import canonicalize_name

    lines = [line for line in (ROOT / "requirements.txt").read_text().splitlines() if line and line[0] != "#"]
    assert all(re.fullmatch(r"[a-z0-9-]+==[0-9][0-9a-z.]*", line) for line in lines), "exact, without labels or hosts"
    pins = {canonicalize_name(asked.name): asked for asked in map(Requirement, lines)}
    assert len(pins) == len(lines)
    for asked in pin.declared():
        version = str(pins[canonicalize_name(asked.name)].specifier).removeprefix("==")
        assert asked.specifier.contains(version), f"{asked} is pinned to {version}"


@pytest.mark.parametrize("path", sorted((ROOT / ".github").rglob("*.yml")), ids=lambda path: path.name)
def test_workflows_are_valid_yaml(path: Path) -> None:
    yaml = pytest.importorskip("yaml")
    read = yaml.safe_load(path.read_text(encoding="utf-8"))
    if path.parent.name != "workflows":
        return
    assert {"name", "jobs"} <= read.keys()
    assert True in read or "on" in read  # YAML 1.1 takes the word on for true
    for name, job in read["jobs"].items():
        assert "runs-on" in job and "timeout-minutes" in job, name
        for step in job["steps"]:
            assert ("uses" in step) != ("run" in step), f"{name}: {json.dumps(step)}"
            if "uses" in step:
                assert re.fullmatch(r"[\w./-]+@v\d+(\.\d+)*", step["uses"]), step["uses"]
