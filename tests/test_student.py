"""The student's edition: the reference passes every test, every stub fails one, and slips are caught and named."""

from __future__ import annotations

import ast
import json
import re
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import pytest
import student
import torch

from transformer_lib.student import __main__ as command
from transformer_lib.student import grading

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "book" / "_ext"))
FILES = student.pages()
PAGES = {page.path.stem: page for page in FILES.values()}
CELLS = {name: [cell.source if "export" in cell.marks else "" for cell in page.cells] for name, page in PAGES.items()}
KEPT = {  # what learners get, beside constructors, properties, and functions without a docstring
    "perplexity": "evaluate computes it",
    "sequence_log_probability": "log_probability, for other ids and other precisions",
    "_check_corpus": "error messages",
    "exact_match": "a comparison",
    "bleu": "corpus_bleu, by sacreBLEU",
}


class Mutant(NamedTuple):
    """A function, what is written right there, what wrong, and the beginning of the slip that the learner reads."""

    target: str
    right: str
    wrong: str
    slip: str


def mutants() -> dict[str, list[Mutant]]:
    """The table of data/mutants.txt, by chapter."""
    found: dict[str, list[Mutant]] = {}
    for line in (ROOT / "tests/data/mutants.txt").read_text(encoding="utf-8").splitlines():
        depth, text = len(line) - len(line.lstrip()), line.strip().replace(r"\n", "\n")
        if not text or line.startswith("#"):
            continue
        if depth == 0:
            found[chapter := text] = []
        elif depth == 2:
            target = text
        else:
            change, _, slip = text.partition("  # ")
            right, _, wrong = f"{change} ".partition(" => ")
            found[chapter].append(Mutant(target, right, wrong.strip(), slip))
    return found


MUTANTS = mutants()


def problems(chapter: str, target: str, answers: grading.Answers) -> list[str]:
    """What the tests of a function say, with some functions in the place of the library's."""
    with grading.planted(chapter, answers):
        found = [grading.tried(one) for one in grading.checks(chapter) if one.target == target]
    return [problem for problem in found if problem is not None]


def caught(chapter: str, target: str, node: ast.AST, cell: str = "cell 0") -> bool:
    """Whether one of the tests of a function fails with another in its place."""
    with grading.planted(chapter, {target: (node, cell)}):
        return any(grading.tried(one) is not None for one in grading.checks(chapter) if one.target == target)


@pytest.mark.parametrize("chapter", PAGES)
def test_the_reference_passes_and_every_stub_fails(chapter: str) -> None:
    answers, others = grading.read(CELLS[chapter])
    targets = [one.target for one in grading.checks(chapter)]
    assert 3 <= len(targets) <= 20
    with grading.planted(chapter, answers, others):
        wrong = {one.target: problem for one in grading.checks(chapter) if (problem := grading.tried(one))}
    assert wrong == {}
    for target in dict.fromkeys(targets):
        node, cell = answers[target]
        stub = ast.parse(f"def {node.name}(*arguments, **options):\n    raise NotImplementedError").body[0]
        assert caught(chapter, target, stub, cell), target


def test_all_that_chapters_export_is_written_by_learners_or_kept_for_a_reason() -> None:
    kept = set()
    for chapter in PAGES:
        answers, _ = grading.read(CELLS[chapter])
        targets = {one.target for one in grading.checks(chapter)}
        for name, (node, _) in answers.items():
            plain = {ast.unparse(one) for one in node.decorator_list} <= {"torch.no_grad()", "contextmanager"}
            if name not in targets and plain and ast.get_docstring(node):
                kept.add(name)
    new, gone = sorted(kept - set(KEPT)), sorted(set(KEPT) - kept)
    assert not new, f"write a learner's test of {new} in transformer_lib/student/, or say in KEPT why there is none"
    assert not gone, f"{gone} stand in KEPT, but learners write them, or no chapter exports them: take them out"


@pytest.mark.parametrize("chapter", PAGES)
def test_mutants_are_caught_by_the_tests_of_their_function(chapter: str) -> None:
    missing = {one.target for one in grading.checks(chapter)} ^ {one.target for one in MUTANTS[chapter]}
    assert not missing, f"tests/data/mutants.txt: what can go wrong in {missing} of {chapter}?"
    assert len(MUTANTS[chapter]) >= 16
    different = set[str]()
    for one in MUTANTS[chapter]:
        text = grading.source(chapter, one.target)
        assert one.right in text, one
        node = ast.parse(text.replace(one.right, one.wrong)).body[0]
        different.add(one.target + ast.dump(node))
        if one.slip:
            told = "\n".join(problems(chapter, one.target, {one.target: (node, "cell 0")}))
            assert f": {one.slip}" in told.replace('"', ""), (one, told)
        else:
            assert caught(chapter, one.target, node), one
    assert len(different) == len(MUTANTS[chapter]), "two of them are the same"


def test_a_message_names_the_function_of_the_library_that_raised() -> None:
    text = grading.source("decoding", "beam_search").replace("extend(model, source, live", "extend(model, None, live")
    answers, _ = grading.read([text])
    found = "\n".join(problems("decoding", "beam_search", answers))
    assert "in the cell" in found and "The library's own `next_words` raised it" in found


def test_eleven_famous_slips_have_names() -> None:
    assert len({one.slip for chapter in MUTANTS.values() for one in chapter if one.slip[:1].isupper()}) >= 11


def test_messages_name_sections_and_slips_that_exist() -> None:
    page = (ROOT / "book/appendix/slips.md").read_text(encoding="utf-8")
    titles = set(re.findall(r"(?m)^### (.+)", page))
    for chapter, notebook in PAGES.items():
        headings = set(re.findall(r"(?m)^##+ (.+)$", "\n".join(cell.source for cell in notebook.cells)))
        sections = {one.section for one in grading.checks(chapter)}
        assert sections <= headings, (chapter, sections - headings)
        text = (ROOT / f"transformer_lib/student/{chapter}.py").read_text(encoding="utf-8")
        named = set(re.findall(r"[\"'](\"?[A-Z][^'\"\n]*[\w)]\"?)[\"']: ", text.replace("isn't", "isn’t")))
        assert {name.replace("’", "'") for name in named} <= titles, (chapter, named - titles)
        calls = [node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Call)]
        calls = [call for call in calls if getattr(call.func, "id", "") == "equal"]
        both = [key.value for call in calls for key in call.keywords if key.arg == "names"]
        both += [call.args[3] for call in calls if len(call.args) > 3]
        assert all(ast.unparse(one).count(" / ") == 1 for one in both), chapter  # what is wanted / what came


def test_commands_in_the_text_name_chapters_and_functions_that_exist() -> None:
    files = ["README.md", "Makefile", "book/appendix/write_it_yourself.md", "tools/student.py"]
    files += ["transformer_lib/student/__init__.py", "transformer_lib/student/__main__.py"]
    text = {file: (ROOT / file).read_text(encoding="utf-8") for file in files}
    for file, words in text.items():
        named = re.findall(r"(?:CHAPTER=|--chapter )(\w+)", words)
        assert named and set(named) <= set(PAGES), (file, named)
        for chapter, target in re.findall(r"CHAPTER=(\w+) TAKE=([\w.]+)", words):
            assert grading.source(chapter, target)
    chapter, slip = re.search(r'CHAPTER=(\w+)` names your slip \("(.+?)"\)', text["README.md"]).groups()
    assert f'"{slip}": ' in (ROOT / f"transformer_lib/student/{chapter}.py").read_text(encoding="utf-8")


def test_the_edition_has_stubs_and_no_answers() -> None:
    pytest.importorskip("myst_parser")
    for chapter, page in PAGES.items():
        notebook = student.edition(page)
        code = [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]
        answers, _ = grading.read(["".join(cell["source"]) for cell in code])
        assert not answers.keys() & {one.target for one in grading.checks(chapter)}
        assert all(cell["outputs"] == [] and cell["execution_count"] is None for cell in code)
        assert "google.colab" not in code[0]["source"] or "OWNER" not in code[0]["source"]
        assert any(cell["source"] == student.START for cell in code[:2])
        told = "".join("".join(cell["source"]) for cell in notebook["cells"] if cell["cell_type"] == "markdown")
        assert not re.search(r"\{[\w:-]+\}`|^[`:]{3,}\{", told, re.M) and "](../" not in told
        assert all(f"- `{one.target}`: {one.expects}" in told for one in grading.checks(chapter))


def test_a_chapter_links_to_its_notebook_if_the_book_has_an_address() -> None:
    book_pages = pytest.importorskip("book_pages")
    page = "<blockquote>promise</blockquote><p>"
    assert book_pages.write_it_yourself(page, "book/transformer/masks", "") == page
    assert book_pages.write_it_yourself(page, "book/appendix/slips", "https://github.com/me/it") == page
    linked = {
        re.search(r"/github/me/it/blob/student/(\S+?)\"", text)[1]
        for one in PAGES.values()
        if (text := book_pages.write_it_yourself(page, one.name.removesuffix(".ipynb"), "https://github.com/me/it"))
    }
    assert linked == set(FILES)


def test_a_folder_is_graded_and_never_overwritten(
    tmp_path: Path, capsys: pytest.CaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("myst_parser")
    two = {name: page for name, page in FILES.items() if name[3:-6] in ("scaled_dot_product_attention", "masks")}
    monkeypatch.setattr(student, "pages", lambda: two)
    student.main(tmp_path)
    path = tmp_path / "08_masks.ipynb"
    fresh = path.read_text(encoding="utf-8")
    text = fresh.replace('raise NotImplementedError"', 'return (tokens != pad)[:, None, None]"', 1)
    path.write_text(text, encoding="utf-8")
    student.main(tmp_path)
    assert path.read_text(encoding="utf-8") == text != fresh
    capsys.readouterr()
    assert command.main([str(tmp_path), "--chapter", "8", "--mine"]) == 1
    shown = capsys.readouterr().out
    assert shown.count("✓") == 2 and shown.count("·") == 8 and shown.endswith("2 of 10\n")
    command.main([str(tmp_path), "--chapter", "masks", "--take", "causal_mask"])
    assert "tril(past)" in capsys.readouterr().out
    broken = json.loads(text)
    broken["cells"][-1]["source"] = "def causal_mask(length, past=0):\n    return 1 / 0"
    path.write_text(json.dumps(broken), encoding="utf-8")
    command.main([str(tmp_path), "--chapter", "8"])
    shown = capsys.readouterr().out
    assert "ZeroDivisionError" in shown and "line 2: return 1 / 0" in shown and 'under "The axes of a mask"' in shown
    assert shown.count("The same error as above.") == 2
    broken["cells"][-1]["source"] = "def causal_mask(length, past=0):\n    return (1"
    path.write_text(json.dumps(broken), encoding="utf-8")
    command.main([str(tmp_path), "--chapter", "masks"])
    shown = capsys.readouterr().out
    assert 'the cell "def causal_mask(length, past=0):" is left out' in shown and "! causal_mask: its cell" in shown
    broken["cells"][-1]["source"] = "def causal_mask(length, past=0):\n    length + past"
    path.write_text(json.dumps(broken), encoding="utf-8")
    command.main([str(tmp_path), "--chapter", "08_masks"])
    assert "None: is a return missing?" in capsys.readouterr().out
    monkeypatch.setattr(grading, "LIMIT", 1)
    broken["cells"][-1]["source"] = "def causal_mask(length, past=0):\n    while True:\n        pass"
    path.write_text(json.dumps(broken), encoding="utf-8")
    command.main([str(tmp_path), "--chapter", "8"])
    assert "still running after 1 seconds" in capsys.readouterr().out
    for words, said in (
        ([str(path)], "give the folder"),
        ([str(tmp_path), "--chapter", "mask"], "there is in 6 scaled_dot_product_attention, 8 masks"),
        ([str(tmp_path), "--chapter", "masks", "--take", "mask"], "'mask' is none of"),
        ([str(tmp_path), "--take", "causal_mask"], "name it after --chapter"),
    ):
        with pytest.raises(SystemExit):
            command.main(words)
        assert said in capsys.readouterr().err


def test_a_notebook_grades_and_takes(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture) -> None:
    """Of two attempts the later one counts, and what is taken works in the notebook."""
    cells = [cell.source for cell in PAGES["multi_head_attention"].cells if "export" in cell.marks]
    cells = [student.stubs(cell, {"Attention.split", "Attention.forward"})[0] for cell in cells]
    cells += [
        "class Attention:\n    def split(self, x):\n        return one(x), x",
        "%pip install x\none = 1\ndef one(x): return [x]",
    ]
    scope: dict = {"In": cells}
    for cell in cells[:-2]:
        exec(cell, scope)
    monkeypatch.setattr("builtins.get_ipython", lambda: SimpleNamespace(user_ns=scope), raising=False)
    grading.grade("multi_head_attention", "Attention.split", "Attention.forward")
    shown = capsys.readouterr().out
    assert shown.count("·") == 5 and shown.count("✗") == 2 and shown.endswith("0 of 7\n") and "2 results" in shown
    for name in ("Attention.split", "Attention.forward"):
        grading.take("multi_head_attention", name)
    assert "unflatten(2, (self.n_heads, -1))" in capsys.readouterr().out
    x = torch.randn(2, 5, 12)
    layer, theirs = scope["Attention"](12, 3), torch.nn.MultiheadAttention(12, 3, batch_first=True)
    theirs.load_state_dict(layer.state_dict())
    assert torch.allclose(layer(x, x, torch.tensor(True)), theirs(x, x, x)[0], atol=1e-6)
    grading.take("multi_head_attention", "Attention.join")
    grading.grade("multi_head")
    shown = capsys.readouterr().out
    assert "none of" in shown and "Attention.split" in shown and "'multi_head'" in shown


def test_grading_leaves_the_library_as_it_was() -> None:
    from transformer_lib.models import attention, masks
    from transformer_lib.plain.self_attention import SelfAttention

    def now() -> tuple:
        return masks.causal_mask, vars(SelfAttention)["forward"]

    before = now()
    for chapter, changed in (("masks", 0), ("self_attention", 1)):
        with grading.planted(chapter, grading.read(CELLS[chapter])[0]):
            assert now()[changed] != before[changed] and attention.causal_mask is masks.causal_mask
    assert now() == before


def shown(chapter: str, cells: list[str], capsys: pytest.CaptureFixture, *names: str) -> str:
    """What is printed of these cells."""
    grading.report(chapter, cells, names)
    return capsys.readouterr().out


def test_constants_made_by_a_call_are_seen_and_an_answer_that_cannot_be_built_fails(
    capsys: pytest.CaptureFixture,
) -> None:
    constants = 'import math\nNEG = float("-inf")\nSIZE: int = 3\nEPS = math.sqrt(torch.ones(SIZE).sum().item())'
    constants += '\nAXES = "one two".split()\nlarger = lambda a, b: max(a, b) == b'
    text = "def padding_mask(tokens, pad=0, low=NEG):\n    assert larger(low, EPS) and len(AXES) < SIZE\n"
    text += "    return (tokens != pad)[:, None, None]"
    assert shown("masks", [constants, text], capsys, "padding_mask").count("✓") == 2
    told = shown("masks", ["def make(): return 1\nNEG = make()", text], capsys, "padding_mask")
    assert told.count("✗") == 2 and "NameError: name 'NEG' is not defined\n      in the cell" in told


@pytest.mark.parametrize("magic", ["", "%time 1\n", "!ls\n"])
def test_lines_that_go_on_with_an_operator_are_no_commands(magic: str) -> None:
    cell = "def padding_mask(source, pad=0):\n    return (\n        source\n        != pad\n        % n\n    )"
    assert grading.read([magic + cell])[0].keys() == {"padding_mask"}


def test_a_helper_may_call_one_of_a_later_cell(capsys: pytest.CaptureFixture) -> None:
    cells = ["def padding_mask(tokens, pad=0):\n    return first(tokens != pad)"]
    cells += ["def first(x):\n    return second(x)", "outer = 1\ndef second(x):\n    return x[:, None, None][::outer]"]
    assert "✗" not in shown("masks", cells, capsys, "padding_mask")


def test_an_error_outside_cells_is_told_wherever_the_library_lies(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails() -> None:
        raise KeyError("it")

    check = grading.Check("masks", "it", "A section", fails)
    read = grading.traceback.extract_tb

    def moved(trace: Any) -> list:
        return [SimpleNamespace(filename=f"/pytorch/{f.filename}", name=f.name, line=f.line) for f in read(trace)]

    monkeypatch.setattr(grading.traceback, "extract_tb", moved)
    assert 'raise KeyError("it")' in grading.attempt(check)


def test_of_infinities_the_row_that_differs_is_shown() -> None:
    from transformer_lib.student.checks import show

    got, want = torch.tensor([[-torch.inf], [0.0]]), torch.tensor([[-torch.inf], [-torch.inf]])
    assert show(want, got) == "shape (2, 1), row [1]: -inf" and show(got, want) == "shape (2, 1), row [1]: 0"


def test_what_is_taken_leaves_other_names_alone_and_typing_errors_are_told(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    scope: dict = {"In": [], "outer": 5, "Int": {}, "Bool": {}, "PAD": 0}
    monkeypatch.setattr("builtins.get_ipython", lambda: SimpleNamespace(user_ns=scope), raising=False)
    grading.take("masks", "padding_mask")
    assert scope["outer"] == 5 and scope["padding_mask"](torch.tensor([[0]])).shape == (1, 1, 1, 1)
    capsys.readouterr()
    grading.grade("masks", "typo")
    assert "'typo' is none of padding_mask" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("chapter", "target", "old", "new"),
    [
        ("from_prediction_to_assistant", "distil", "adam.step()", "adam.step()\n        adam.zero_grad()"),
        (
            "hard_attention",
            "straight_through",
            "scores - torch.empty_like(scores).exponential_().log()",
            "scores - (-torch.rand_like(scores).log()).log()",
        ),
    ],
)
def test_other_right_solutions_pass(chapter: str, target: str, old: str, new: str) -> None:
    text = grading.source(chapter, target)
    assert old in text
    assert problems(chapter, target, grading.read([text.replace(old, new)])[0]) == []
