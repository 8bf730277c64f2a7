"""The pipeline's own tests: the book passes the export gate and the notebook guard, and each rule names its culprit."""

from __future__ import annotations

import ast
import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Callable
from pathlib import Path

import pytest

pytest.importorskip("nbformat")

import chapters
import colab
import compare
import export
import gate
import guard
import nbformat
import notebooks
from nbformat.v4 import new_code_cell, new_markdown_cell, new_output
from tiny_project import TinyProject

ROOT = chapters.ROOT


# The book itself ------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_the_library_is_what_the_notebooks_export() -> None:
    assert gate.check() == []


@pytest.mark.slow
def test_every_notebook_was_executed_and_holds_nothing_of_one_machine() -> None:
    assert guard.check() == []


def test_every_place_names_the_same_repository() -> None:
    address, edition = chapters.repository()
    declared = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    branch = declared["tool"]["transformer-lib"]["branch"]
    assert edition in (branch, f"v{declared['project']['version']}")
    slug = address.removeprefix("https://github.com/")
    owner, name = slug.split("/")
    known = {slug, f"{owner.lower()}.github.io/{name}"}
    places = rf"(github(\.com)?/[A-Za-z0-9.-]+|[A-Za-z0-9-]+\.github\.io)/{name}\b"
    command = ["git", "grep", "-hoIE", places, "--", ".", ":!tests", ":!tools"]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    if listed.returncode:
        pytest.skip("not a git repository")
    assert {re.sub(r"^github(\.com)?/", "", line) for line in listed.stdout.split()} <= known
    assert f"branch: {branch}\n" in (ROOT / "_config.yml").read_text(encoding="utf-8")
    assert address in (ROOT / "CITATION.cff").read_text(encoding="utf-8")


def test_one_command_gives_the_project_its_address(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import address

    old, settings = "https://github.com/OWNER/a-book", tmp_path / "pyproject.toml"
    declared = '[project]\nversion = "{}"\nurls.Homepage = "{}"\n[tool.transformer-lib]\nedition = "{}" # installed\n'
    settings.write_text(declared.format("1.2.0", old, "main"), encoding="utf-8")
    (tmp_path / "a.ipynb").write_text(f"git+{old}@main {old}/issues", encoding="utf-8")
    subprocess.run(["git", "init", "-q"], cwd=tmp_path, check=True)
    subprocess.run(["git", "add", "."], cwd=tmp_path, check=True)
    (tmp_path / "tools").mkdir()
    (tmp_path / "tools" / "export.py").write_text("", encoding="utf-8")
    monkeypatch.setattr(address, "ROOT", tmp_path)
    assert address.main("me/book") == 0
    new = "https://github.com/me/book"
    assert settings.read_text(encoding="utf-8") == declared.format("1.2.0", new, "v1.2.0")
    assert (tmp_path / "a.ipynb").read_text(encoding="utf-8") == f"git+{new}@v1.2.0 {new}/issues"
    settings.write_text(declared.format("1.3.0", new, "v1.2.0"), encoding="utf-8")  # the next version, the same address
    assert address.main("me/book") == 0 and chapters.tag(tmp_path) == "v1.3.0"
    assert (tmp_path / "a.ipynb").read_text(encoding="utf-8") == f"git+{new}@v1.3.0 {new}/issues"
    assert address.main("no address") == 2


@pytest.mark.slow
def test_the_workflows_publish_once_there_is_an_address(tmp_path: Path) -> None:
    colab.clone(tmp_path)
    steps = [
        re.findall(r'run: "(! grep.*OWNER.*)"', (ROOT / ".github/workflows" / name).read_text(encoding="utf-8"))
        for name in ("pages.yml", "release.yml")
    ]
    assert [len(found) for found in steps] == [1, 1]

    def published() -> set[bool]:
        return {
            not subprocess.run(["bash", "-c", step], cwd=tmp_path, capture_output=True).returncode for (step,) in steps
        }

    assert published() == {chapters.address() is not None}
    run = [sys.executable, "tools/address.py", "me/book"]
    assert subprocess.run(run, cwd=tmp_path, env=os.environ | {"PYTHONPATH": ""}, capture_output=True).returncode == 0
    assert published() == {True}


def test_the_readme_links_to_pages_once_there_is_an_address(monkeypatch: pytest.MonkeyPatch) -> None:
    import readme

    if chapters.address():  # README was written with it: no link is left to change
        return
    without = readme.chapters()
    assert "](book/transformer/masks.ipynb)" in without
    monkeypatch.setattr(readme, "address", lambda root: "https://github.com/Me/book")
    linked = readme.chapters()
    assert "](https://me.github.io/book/book/transformer/masks.html)" in linked
    first = readme.renewed((ROOT / "README.md").read_text(encoding="utf-8"))
    assert first.count("(https://me.github.io/book/)") == 2 and '<a href="https://me.github.io/book/">' in first
    assert 'src="https://github.com/Me/book/raw/main/book/_static/opening-light.webp"' in first
    assert "](https://github.com/Me/book/blob/main/LICENSE)" in first and readme.renewed(first) == first
    assert not re.findall(r'(?:\]\(|(?:src|srcset|href)=")(?!https:)', first)
    clone = f"git clone --branch {chapters.repository()[1]} https://github.com/Me/book\ncd book\npip install "
    assert clone in readme.install()


# The export gate ------------------------------------------------------------------------------------------------------


def test_a_sound_project_passes(project: TinyProject) -> None:
    assert project.gate() == []
    assert project.guard() == []


def test_export_is_repeatable_and_names_the_page(project: TinyProject) -> None:
    path = project.module("counting")
    before = path.read_bytes()
    assert b"Pages: counting." in before and b"# page: counting" in before
    assert b"from transformer_lib.data.grammar import Word" in before
    path.unlink()
    export.export(project.root)
    assert path.read_bytes() == before


def alter_module(project: TinyProject) -> None:
    path = project.module("counting")
    path.write_text(path.read_text().replace("LIMIT = 3", "LIMIT = 4"))


def add_line_end(project: TinyProject) -> None:
    path = project.module("counting")
    path.write_bytes(path.read_bytes() + b"\n")


def add_foreign_file(project: TinyProject) -> None:
    (project.package / "helpers").mkdir()
    (project.package / "helpers" / "extra.py").write_text(f"{chapters.GENERATED}\n")


def export_without_cells(project: TinyProject) -> None:
    title = new_markdown_cell("# GPT\n\n> Nothing yet.")
    project.write("descendants/gpt", [title, new_code_cell("#| default_exp gpt"), new_code_cell("1")])


def append(*cells: nbformat.NotebookNode | str) -> Callable[[TinyProject], None]:
    """Add cells to the counting chapter, of code if they are text."""
    added = [new_code_cell(each) if isinstance(each, str) else each for each in cells]
    for number, each in enumerate(added):
        each.id = f"added-{number}"
    return lambda project: project.edit("counting", lambda notebook: notebook.cells.extend(added))


magic_in_export = append("#| export\n%time x = 1")


def replacing(module: str, old: str, new: str, cell: int = 4) -> Callable[[TinyProject], None]:
    return lambda project: project.replace(module, old, new, cell)


def adding(module: str, code: str) -> Callable[[TinyProject], None]:
    """Add code at the end of a module's last exported cell."""

    def change(project: TinyProject) -> None:
        project.edit(module, lambda read: read.cells[4].update(source=f"{read.cells[4].source}\n\n\n{code}"))
        export.export(project.root)

    return change


OTHER_COUNT = 'def count(words: int) -> int:\n    """Another."""\n    return words'

GATE_CASES = {
    "a line of a module altered": (alter_module, "counting.py differs from a fresh export of .*/counting.ipynb"),
    "a byte added at the end": (add_line_end, "counting.py differs from a fresh export"),
    "a module missing": (
        lambda project: project.module("doubling").unlink(),
        "doubling.py is missing: book/history/doubling.ipynb exports it",
    ),
    "a module without notebook": (
        lambda project: project.path("doubling").unlink(),
        "transformer_lib/models/doubling.py has no notebook",
    ),
    "a foreign file": (add_foreign_file, "transformer_lib/helpers/extra.py has no notebook"),
    "a chapter with a name and no cells": (export_without_cells, "book/descendants/gpt.ipynb: default_exp gpt, but"),
    "two modules": (
        append("#| default_exp other"),
        r"counting.ipynb: more than one default_exp \(models.counting, other\)",
    ),
    "an export to no possible place": (
        append("#| export a.b.c\nx = 1"),
        "counting.ipynb, cell 6: 'a.b.c' cannot be the name",
    ),
    "another directive of the exporter": (append("#| exports\nx = 1"), "cell 6: a page only uses '#| export' and"),
    "a magic in an exported cell": (magic_in_export, "counting.ipynb, cell 6: .* '%time x = 1'"),
    "a name exported twice": (
        adding("doubling", OTHER_COUNT),
        "count is exported by transformer_lib/models/counting.py and transformer_lib/models/doubling.py",
    ),
    "an import from a later chapter": (
        replacing("counting", "import Word", "import Word\nfrom transformer_lib.models.doubling import double", cell=3),
        "counting.py:.*: imports models.doubling of chapter 2, but belongs to chapter 1",
    ),
    "a hidden import from a later chapter": (
        adding("counting", "def _late() -> None:\n    import transformer_lib.models.doubling"),
        "counting.py:.*: imports models.doubling of chapter 2, but belongs to chapter 1",
    ),
    "an import from a later folder": (
        replacing(
            "grammar", "import dataclass", "import dataclass\nfrom transformer_lib.models.counting import LIMIT", 3
        ),
        "grammar.py:.*: imports models.counting, but models comes after data",
    ),
    "a circle": (
        replacing("counting", "import Word", "import Word\nfrom transformer_lib.models.doubling import double", cell=3),
        "modules import each other in a circle: .*counting <- models.doubling",
    ),
    "an import from the package": (
        adding("doubling", "def _round() -> None:\n    from transformer_lib import count"),
        "doubling.py:.*: imports transformer_lib, which is not a module",
    ),
    "an import of nothing": (
        adding("doubling", "def _nothing() -> None:\n    from transformer_lib.models.counted import count"),
        "doubling.py:.*: imports transformer_lib.models.counted, which is not a module",
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
    before = (project.module("counting")).read_bytes()
    magic_in_export(project)
    with pytest.raises(ValueError, match=r"counting\.ipynb, cell 6"):
        export.export(project.root)
    assert (project.module("counting")).read_bytes() == before
    assert not list(project.package.rglob(".*"))


def test_export_removes_a_module_whose_notebook_is_gone(project: TinyProject) -> None:
    project.path("doubling").unlink()
    export.export(project.root)
    assert not project.module("doubling").exists()
    assert (project.package / "__init__.py").exists()


def test_a_page_can_export_several_modules_and_a_module_can_grow_over_several_pages(project: TinyProject) -> None:
    cells = [new_code_cell("#| export models.more\nx = 1", execution_count=6, id="a")]
    cells.append(new_code_cell("#| doc models.more: One more.\ny = 2", execution_count=7, id="b"))
    project.edit("counting", lambda notebook: notebook.cells.extend(cells))
    later = new_code_cell("#| export models.more\ny = 3", execution_count=6, id="c")
    project.edit("doubling", lambda notebook: notebook.cells.append(later))
    export.export(project.root)
    text = project.module("more").read_text()
    assert text.startswith('"""One more.\n\nPages: counting, doubling.\n"""') and "LIMIT" not in text
    assert text.index("# page: counting") < text.index("x = 1") < text.index("# page: doubling") < text.index("y = 3")
    assert '__all__ = ["x", "y"]' in text and "y = 2" not in text
    assert project.gate() == []


def test_plain_modules_are_left_alone(project: TinyProject) -> None:
    plain = project.package / "models" / "plain.py"
    plain.write_text('"""Plain."""\n\nfrom transformer_lib.models.counting import count\n')
    export.export(project.root)
    assert plain.exists() and project.gate() == []
    beside = project.package / "plain" / "counting.py"  # complete, so it may define what others define, too
    beside.parent.mkdir()
    beside.write_text('"""Plain."""\n\n__all__ = ["count"]\n\n\ndef count():\n    return 1\n')
    assert project.gate() == []
    plain.write_text('"""Plain."""\n\nfrom transformer_lib.translation.cli import main\n')
    assert any("translation.cli, which is not a module" in problem for problem in project.gate())


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


def ignored(count: int, reason: str = "# output ignored: it is a time\n") -> Callable[[TinyProject], None]:
    made = [new_code_cell(f"{reason}{n}", execution_count=6 + n) for n in range(count)]
    for each in made:
        each.metadata["tags"] = ["nbval-ignore-output"]
    return append(*made)


def metadata(key: str, value: object) -> Callable[[TinyProject], None]:
    return lambda project: project.edit("counting", lambda notebook: notebook.metadata.update({key: value}))


GUARD_CASES = {
    "no count": (set_count(3, None), "no execution count, .* in cell 3"),
    "an empty cell": (cell(5, source=" \n"), "cell 5: an empty code cell"),
    "a cell run again": (set_count(5, 9), "execution count 9, expected"),
    "the tag nbval-skip": (tags(5, "nbval-skip"), "cell 5: tagged nbval-skip"),
    "the tag skip-execution": (tags(5, "skip-execution"), "cell 5: tagged skip-execution"),
    "a comment that skips": (cell(5, source="# NBVAL_SKIP\n6"), "cell 5: the comment NBVAL_SKIP"),
    "a comment that ignores": (
        cell(5, source="  # PYTEST_VALIDATE_IGNORE_OUTPUT\n6"),
        "cell 5: the comment PYTEST_VALIDATE_IGNORE_OUTPUT",
    ),
    "three ignored outputs": (ignored(3), "3 ignored outputs, at most 2"),
    "an ignored output without reason": (
        ignored(1, "# output ignored:\n"),
        "cell 6: nbval-ignore-output without a comment",
    ),
    "an error": (fails("ValueError"), "cell 5: the committed output is an error, ValueError"),
    "an expected error that is missing": (
        tags(5, "raises-exception"),
        "cell 5: tagged raises-exception, but",
    ),
    **{
        f"a path below {text.split('/')[1]}": (
            prints(f"saved {text}.\n"),
            f"cell 5: .*path: '{text}",
        )
        for text in ("/home/me/x.pt", "/tmp/abc", "/root/.cache/x", "/Users/me/x", "/content/x.pt")
    },
    "a path in quotes": (shows("text/plain", "PosixPath('/tmp')"), "cell 5: .* a path: .*/tmp"),
    "a Windows path": (prints("C:\\Users\\me\\x"), "cell 5: .* a Windows path"),
    "an escaped Windows path": (shows("text/plain", r"'C:\\Users\\me'"), "cell 5: .* a Windows path"),
    "an address": (
        shows("text/plain", "<built-in method f at 0x7f0a1c2d3e40>"),
        "cell 5: the output holds an address: '(0x7f0a1c2d3e40'|at 0x7f0a)",
    ),
    "an address in HTML": (shows("text/html", "<b>0x7f0a1c2d3e40</b>"), "cell 5: .* an address"),
    "a warning": (prints("x.py:3: UserWarning: no\n"), "cell 5: .* a warning: 'UserWarning'"),
    "stderr": (prints("careful\n", "stderr"), "cell 5: writes to stderr: 'careful'"),
    "no title": (cell(0, source="> What it builds."), "cell 0: must be '# Title'"),
    "no line below the title": (cell(0, source="# Counting words"), "cell 0: must be '# Title'"),
    "more than one line": (cell(0, source="# Counting words\n\n> One.\n> Two."), "cell 0: must be '# Title'"),
    "a second title": (append(new_markdown_cell("Text\n\n# Again")), "cell 6: a second title, '# Again'"),
    "no Colab cell": (cell(1, source="import sys"), "cell 1: must be the standard Colab cell"),
    "another kernel": (
        metadata("kernelspec", {"name": "mine", "display_name": "Mine"}),
        "metadata is not the standard one: kernelspec",
    ),
    "no Colab metadata": (metadata("colab", {}), "metadata is not the standard one: colab"),
    "editor's metadata": (metadata("vscode", {"x": 1}), "metadata is not the standard one: vscode"),
    "not a notebook": (
        cell(5, outputs=[nbformat.from_dict({"output_type": "strange"})]),
        "not a valid notebook",
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("case", GUARD_CASES)
def test_the_guard_names_the_culprit(project: TinyProject, case: str) -> None:
    break_it, culprit = GUARD_CASES[case]
    break_it(project)
    problems = project.guard()
    assert any(re.search(rf"counting\.ipynb(, |: ){culprit}", problem) for problem in problems), problems


ALLOWED = {
    "two ignored outputs with a reason": ignored(2),
    "an error that the cell announces": lambda project: (
        fails("ValueError")(project),
        tags(5, "raises-exception")(project),
    ),
    "a fraction and a short number": prints("and/or 3/4, 0x41, https://example.org/home/page, the word warning\n"),
    "a comment in fenced code": append(new_markdown_cell("```python\n# not a title\n```")),
}


@pytest.mark.parametrize("case", ALLOWED)
def test_the_guard_lets_pass(project: TinyProject, case: str) -> None:
    ALLOWED[case](project)
    assert project.guard() == []


# Notebooks ------------------------------------------------------------------------------------------------------------


def test_cleaning_keeps_what_is_shown_and_drops_the_rest(project: TinyProject) -> None:
    notebook = nbformat.read(project.path("counting"), as_version=4)
    notebook.metadata["jupytext"] = {"x": 1}
    notebook.cells[1].source = 'import sys\n\nif "google.colab" in sys.modules:\n    # %pip install old'
    last = notebook.cells[5]
    last.metadata = nbformat.from_dict({"tags": ["raises-exception"], "mystnb": {"image": {"alt": "x"}}, "lines": 1})
    notebooks.clean(notebook)
    assert notebook.metadata == notebooks.METADATA
    assert notebook.cells[1].source == chapters.colab_cell()
    assert last.metadata == {"tags": ["raises-exception"], "mystnb": {"image": {"alt": "x"}}}
    assert last.execution_count == 5
    last.source = f"#| fold: A label\n{last.source}"
    notebooks.clean(notebook)
    assert last.metadata["jupyter"] == {"source_hidden": True} and last.metadata["cellView"] == "form"
    last.source = last.source.removeprefix("#| fold: A label\n")
    notebooks.clean(notebook)
    assert last.metadata == {"tags": ["raises-exception"], "mystnb": {"image": {"alt": "x"}}}


def test_the_first_cell_installs_what_the_page_imports() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    brought = {re.match(r"\w+", line)[0] for line in project["dependencies"]} | {"transformer_lib", "matplotlib"}
    brought |= set(sys.stdlib_module_names) | {"IPython", "google"}  # a notebook's own, and Colab's
    brought |= {"triton", "flash_kernel", "wrapped"}  # torch brings the first to GPUs, and pages write the others
    asking = {}
    for path in chapters.notebooks():
        code = [cell.source for cell in nbformat.read(path, as_version=4).cells if cell.cell_type == "code"]
        tree = ast.walk(ast.parse(re.sub(r"^( *)[%!].*$", r"\1pass", "\n".join(code), flags=re.M)))
        whole = [[node.module] if isinstance(node, ast.ImportFrom) else [one.name for one in node.names]
                 for node in tree if isinstance(node, ast.Import | ast.ImportFrom)]  # fmt: skip
        named = {name.split(".")[0] for names in whole for name in names} - brought
        assert named <= chapters.EXTRAS.keys(), path
        asking[path.stem] = re.search(r"\[([\w,]+)\]", code[0])[1]
        assert asking[path.stem] == ",".join(["viz", *sorted((chapters.EXTRAS[name] for name in named), reverse=True)])
    assert (asking["llama"], asking["masks"]) == ("viz,hf", "viz")
    assert set(chapters.EXTRAS.values()) <= project["optional-dependencies"].keys()


def test_reading_order() -> None:
    order = [(notebook.number or 0, notebook.part == "appendix") for notebook in chapters.book() if notebook.module]
    numbers = [number for number, appendix in order if not appendix]
    assert numbers == sorted(numbers)
    assert [appendix for _, appendix in order] == sorted((appendix for _, appendix in order), reverse=True)


def test_nothing_is_rewritten_before_it_is_compared() -> None:
    text = compare.SANITIZE.read_text(encoding="utf-8")
    assert re.findall(r"^regex:", text, re.M) == []


def test_the_notebooks_that_changed_are_compared_again(project: TinyProject) -> None:
    assert compare.changed(project.root) == chapters.notebooks(project.root)  # there is nothing to compare with
    for command in (
        "init",
        "add .",
        "-c user.name=a -c user.email=b commit -m c",
        "update-ref refs/remotes/origin/main HEAD",
    ):
        subprocess.run(["git", *command.split()], cwd=project.root, check=True, capture_output=True)
    assert compare.changed(project.root) == []
    project.replace("doubling", "return 2", "return 3")
    assert compare.changed(project.root) == [project.path("doubling")]


CELLS = [  # Masks, in miniature
    "import torch\nfrom x import Model, draw",
    "def mask(tokens):\n    return tokens != 0",
    "torch.manual_seed(1)",
    "tokens = torch.tensor([1, 0])\nmask(tokens)",
    "model = Model(mask)\nfor step in range(9):\n    model.train(tokens)",
    "draw(model)",
    "print(tokens)",
]


@pytest.mark.parametrize(
    ("changed", "stale", "run"),
    [
        ({6}, {6}, {0, 1, 2, 3, 4, 6}),  # what altered the tokens, perhaps
        ({3}, {3, 4, 5, 6}, {0, 1, 2, 3, 4, 5, 6}),
        ({1}, {1, 3, 4, 5, 6}, {0, 1, 2, 3, 4, 5, 6}),
        ({4}, {4, 5, 6}, {0, 1, 2, 3, 4, 5, 6}),  # training may alter the tokens, too
        ({5}, {5}, {0, 1, 2, 3, 4, 5}),
        (set(), set(), set()),
    ],
)
def test_only_what_a_change_can_reach_runs_again(changed: set[int], stale: set[int], run: set[int]) -> None:
    assert notebooks.affected([*map(notebooks.names_of, CELLS)], changed) == (stale, run)
    more = [
        *CELLS[:4],
        "def prefix(n):\n    tokens = n\n    return tokens",
        "print(prefix(3))",
        *CELLS[4:],
    ]  # a newcomer's change
    assert notebooks.affected([*map(notebooks.names_of, more)], {4, 5}) == ({4, 5}, {0, 2, 4, 5})


@pytest.mark.slow
def test_a_changed_cell_runs_and_the_others_keep_their_outputs(
    project: TinyProject, capsys: pytest.CaptureFixture
) -> None:
    for command in ("init -q", "add .", "-c user.name=a -c user.email=b commit -qm c"):
        subprocess.run(["git", *command.split()], cwd=project.root, check=True, capture_output=True)
    path = project.path("counting")
    page = nbformat.read(path, as_version=4)
    first = next(cell for cell in page.cells if cell.cell_type == "code" and cell.outputs)
    first.outputs = [nbformat.v4.new_output("stream", text="kept")]  # as only an earlier run could have written it
    page.cells.append(nbformat.v4.new_code_cell("twice = 2 * 21\nprint(twice)"))
    nbformat.write(page, path)
    notebooks.execute(path, only_changed=True)
    page = nbformat.read(path, as_version=4)
    code = [cell for cell in page.cells if cell.cell_type == "code"]
    assert code[-1].outputs[0].text == "42\n" and any("kept" in str(cell.outputs) for cell in code)
    assert [cell.execution_count for cell in code] == [*range(1, len(code) + 1)]
    assert "  cell 1 of " in capsys.readouterr().out


# Commands and services ------------------------------------------------------------------------------------------------


def test_every_command_is_listed() -> None:
    listed = subprocess.run(["make", "-s"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    found = set(re.findall(r"^make (\w+)", listed, re.M))
    commands = "help book test check lint export notebooks student grade pins serve colab address clean epub pdf"
    assert found == set(commands.split())


def test_a_python_that_is_too_old_is_refused_in_one_line(tmp_path: Path) -> None:
    for name in ("Makefile", "requirements.txt", "pyproject.toml"):
        shutil.copy(ROOT / name, tmp_path)
    done = subprocess.run(["make", "check", "PYTHON=false"], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode != 0
    assert "The book needs Python 3.11 or newer with its venv module; false is not" in done.stderr
    assert not (tmp_path / ".venv").exists()


def test_pins_are_exact_and_hold_what_is_asked_for() -> None:
    from packaging.requirements import Requirement
    from packaging.utils import canonicalize_name

    pins = [
        Requirement(line) for line in (ROOT / "requirements.txt").read_text().splitlines() if line and line[0] != "#"
    ]
    assert all(re.fullmatch(r"==[0-9][0-9a-z.]*", str(pin.specifier)) for pin in pins), "exact, without labels or hosts"
    pinned = {canonicalize_name(pin.name): str(pin.specifier).removeprefix("==") for pin in pins}
    assert len(pinned) == len(pins)
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = {name: lines for name, lines in project["optional-dependencies"].items() if name != "talk"}
    for line in sum(extras.values(), project["dependencies"]):  # no test and no page needs that one
        asked = Requirement(line)
        if asked.name != project["name"]:
            assert asked.specifier.contains(pinned[canonicalize_name(asked.name)]), f"{asked} has no fitting pin"


def test_the_pins_can_be_installed_on_the_first_python_3_11() -> None:
    from importlib.metadata import PackageNotFoundError, metadata

    from packaging.requirements import Requirement
    from packaging.specifiers import SpecifierSet

    seen = 0
    for line in (ROOT / "requirements.txt").read_text().splitlines():
        if line.startswith("#") or not line:
            continue
        pin = Requirement(line)
        try:
            found = metadata(pin.name)
        except PackageNotFoundError:
            continue
        if pin.specifier.contains(found["Version"], prereleases=True):
            asked, seen = found.get("Requires-Python") or "", seen + 1
            assert SpecifierSet(asked).contains("3.11.0"), f"{line} asks for Python {asked}"
    assert seen > 20


def test_no_weights_are_kept_but_those_that_are_shipped() -> None:
    found = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True).stdout.splitlines()
    weights = [name for name in found if name.endswith(".safetensors")]
    assert all(name.startswith("transformer_lib/pretrained/") for name in weights)


@pytest.mark.parametrize("path", sorted((ROOT / ".github").rglob("*.yml")), ids=lambda path: path.name)
def test_workflows_are_valid_yaml(path: Path) -> None:
    yaml = pytest.importorskip("yaml")
    read = yaml.safe_load(path.read_text(encoding="utf-8"))
    if path.parent.name != "workflows":
        return
    assert {"name", "jobs"} <= read.keys()
    assert True in read or "on" in read  # YAML 1.1 takes the word on for true
    for name, job in read["jobs"].items():
        if "uses" in job:  # a workflow of our own
            assert (ROOT / job["uses"]).is_file(), name
            continue
        assert "runs-on" in job and "timeout-minutes" in job, name
        for step in job["steps"]:
            assert ("uses" in step) != ("run" in step), f"{name}: {json.dumps(step)}"
            if "uses" in step:
                assert re.fullmatch(r"[\w./-]+@[0-9a-f]{40}", step["uses"]), f"{step['uses']} is not pinned"
