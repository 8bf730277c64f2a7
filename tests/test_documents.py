"""What the documents at the root promise: the example runs, links lead somewhere, versions and licences agree."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")
PROJECT = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
DOCUMENTS = ("README.md", "CONTRIBUTING.md", "CHANGELOG.md")


def blocks(text: str, language: str) -> list[str]:
    """The code blocks of a document in one language."""
    return re.findall(rf"^ *```{language}\n(.*?)^ *```$", text, re.M | re.S)


@pytest.mark.slow
@pytest.mark.parametrize("number", [0, 1])
def test_the_examples_of_the_readme_print_what_stands_below_them(number: int, tmp_path: Path) -> None:
    pairs = re.findall(r"```python\n(.*?)```\n\n```text\n(.*?)```", README, re.S)
    assert len(pairs) == len(blocks(README, "python")) == 2
    example, shown = pairs[number]
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", example], cwd=tmp_path, capture_output=True, text=True, timeout=120
    )
    assert done.stdout == shown, done.stderr


ECHO = (
    r"""```bash\necho "([^\n]*)" \| transformer-lib translate (\S+)\n(?:# ([^\n]*)\n)?```(?:\n\n```text\n(.*?)```)?"""
)


@pytest.mark.slow
def test_translations_that_documents_show_are_those_of_the_shipped_translators() -> None:
    texts = [path.read_text(encoding="utf-8") for path in (ROOT / "README.md", *(ROOT / "book").rglob("*.md"))]
    examples = {example for text in texts for example in re.findall(ECHO, text, re.S) if any(example[2:])}
    assert len(examples) >= 3
    for typed, name, comment, below in examples:
        command = [sys.executable, "-m", "transformer_lib", "translate", name]
        done = subprocess.run(command, input=f"{typed}\n", capture_output=True, text=True, timeout=120)
        assert done.stdout + done.stderr == (below or f"{comment}\n"), typed


def test_the_readme_is_short_and_has_no_address_that_leads_nowhere() -> None:
    assert len(README.splitlines()) <= 130 and len(README.split()) <= 1450
    assert "OWNER" not in README
    for path in [*ROOT.glob("*.md"), *(ROOT / "book").rglob("*.[mi][dp]*"), *(ROOT / "transformer_lib").rglob("*.py")]:
        text = path.read_text(encoding="utf-8")  # until the first release, anybody could register the package's name
        assert not re.search(r"pip install (?:-q )?\\?['\"]?attention-step-by-step(?!\[[a-z,]+\] @ git)", text), path


def test_the_list_of_chapters_is_that_of_the_notebooks() -> None:
    import readme

    assert readme.renewed(README) == README, "make export"


@pytest.mark.parametrize("name", DOCUMENTS)
def test_links_lead_to_files(name: str) -> None:
    text = (ROOT / name).read_text(encoding="utf-8")
    targets = re.findall(r"\]\(([^)\s]+)\)", text) + re.findall(r'(?:src|srcset)="([^"]+)"', text)
    local = {target.split("#")[0] for target in targets if "://" not in target and not target.startswith("#")}
    local |= set(re.findall(r"/blob/main/([^)\s]+)", text))
    assert [target for target in sorted(local) if target and not (ROOT / target).exists()] == []


@pytest.mark.parametrize("name", ["README.md", "CONTRIBUTING.md"])
def test_every_make_command_exists(name: str) -> None:
    targets = set(re.findall(r"^(\w+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.M))
    code = "\n".join(re.findall(r"`[^`\n]+`|^make .*$", (ROOT / name).read_text(encoding="utf-8"), re.M))
    named = set(re.findall(r"\bmake (\w+)", code))
    assert named and named <= targets


def declared(field: str, text: str = PROJECT) -> str:
    """The value of a one-line field of pyproject.toml (``field = "value"``) or CITATION.cff (``field: value``)."""
    (value,) = re.findall(rf'^{field}(?: = |: )"?([^"\n]*)"?$', text, re.M)
    return value


def author() -> str:
    """Who is named as author in pyproject.toml."""
    (name,) = re.findall(r'^authors = \[\{ name = "([^"]+)" \}\]$', PROJECT, re.M)
    return name


def test_citation_changelog_and_package_agree() -> None:
    citation = (ROOT / "CITATION.cff").read_text(encoding="utf-8")
    assert declared("version", citation) == declared("version")
    assert declared("repository-code", citation) == declared("Homepage")
    assert re.findall(r"^  - name: (.*)$", citation, re.M) == [author()]
    assert all(re.search(rf"^{field}:", citation, re.M) for field in ("cff-version", "title", "message", "authors"))
    released = re.findall(r"^## ([\d.]+)", (ROOT / "CHANGELOG.md").read_text(encoding="utf-8"), re.M)
    assert released[0] == declared("version")


def test_licences_are_complete() -> None:
    code = (ROOT / "LICENSE").read_text(encoding="utf-8")
    assert code.startswith("MIT License") and author() in code
    prose = (ROOT / "LICENSE-PROSE").read_text(encoding="utf-8")
    assert prose.startswith("Attribution 4.0 International\n") and "ShareAlike" not in prose
    assert re.findall(r"^Section (\d) --", prose, re.M) == list("12345678")


def test_the_first_page_says_what_the_record_says() -> None:
    page = (ROOT / "book" / "index.md").read_text(encoding="utf-8")
    assert "Three words at a time are nearly enough" in page
    assert "if it has to look at all words equally, hardly anything is left." in page
    record = json.loads((ROOT / "transformer_lib/results/how_many_words.json").read_text())
    bleu = {row["arm"].removeprefix("Bahdanau, "): row["bleu"] for row in record["rows"]}
    assert bleu["3 words"] > 0.95 * bleu["all words"] and bleu["all equally"] < 0.25 * bleu["all words"]


def test_the_nonsense_that_sampling_opens_with_was_drawn_on_its_page() -> None:
    cells = json.loads((ROOT / "book/translation/sampling.ipynb").read_text(encoding="utf-8"))["cells"]
    (quoted,) = re.findall(r"^> (Ein junges Mädchen .+)$", "".join(cells[3]["source"]), re.M)
    assert any(quoted in "".join(out.get("text", "")) for cell in cells for out in cell.get("outputs", []))
