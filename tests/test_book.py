"""The shell of the book: its contents, extensions, references, pictures and static files."""

from __future__ import annotations

import itertools
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from importlib import import_module
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

yaml = pytest.importorskip("yaml")
pytest.importorskip("sphinx")

ROOT = Path(__file__).resolve().parents[1]
BOOK, STATIC, EXT = ROOT / "book", ROOT / "book" / "_static", ROOT / "book" / "_ext"
sys.path[:0] = [str(EXT), str(ROOT / "tools")]

import book_api  # noqa: E402
import book_cells  # noqa: E402
import book_chapters  # noqa: E402
import book_notebooks  # noqa: E402
import book_pages  # noqa: E402
import book_results  # noqa: E402
import book_styles  # noqa: E402
import book_translator  # noqa: E402
import chapters  # noqa: E402
from browser import NARROW, serve  # noqa: E402
from docutils import nodes  # noqa: E402
from docutils.utils import new_document  # noqa: E402
from torch import nn  # noqa: E402

import transformer_lib.models  # noqa: E402
from transformer_lib import results  # noqa: E402

CONFIG = yaml.safe_load((ROOT / "_config.yml").read_text(encoding="utf-8"))
TOC = yaml.safe_load((ROOT / "_toc.yml").read_text(encoding="utf-8"))
CSS = (STATIC / "book.css").read_text(encoding="utf-8")
NOTEBOOKS = sorted(path for path in BOOK.rglob("*.ipynb") if ".ipynb_checkpoints" not in path.parts)
PAGES = sorted(BOOK.rglob("*.md"))


def toc_files() -> list[str]:
    """Every file named in the table of contents."""
    found = [TOC["root"]]

    def walk(entries: list[dict]) -> None:
        for entry in entries:
            found.append(entry["file"])
            walk(entry.get("sections", []))

    for part in TOC["parts"]:
        walk(part["chapters"])
    return found


def markdown() -> dict[Path, str]:
    """The prose of every page and notebook."""
    texts = {path: path.read_text(encoding="utf-8") for path in PAGES}
    for path in NOTEBOOKS:
        cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
        texts[path] = "\n\n".join("".join(cell["source"]) for cell in cells if cell["cell_type"] == "markdown")
    return texts


# ---- contents and configuration ----


def test_every_file_of_the_contents_exists_once_and_every_file_is_in_the_contents() -> None:
    files = toc_files()
    assert len(files) == len(set(files))
    present = {path.relative_to(ROOT).with_suffix("").as_posix() for path in [*PAGES, *NOTEBOOKS]}
    assert set(files) == present


def test_the_map_agrees_with_the_contents() -> None:
    found = book_chapters.chapters()
    assert {one.docname for one in found} == {entry["file"] for part in TOC["parts"] for entry in part["chapters"]}
    numbers = [int(one.number) for one in found if one.number]
    assert numbers == list(range(1, len(numbers) + 1)) and all(one.builds for one in found if one.number)


def test_the_configuration() -> None:
    assert CONFIG["execute"]["execute_notebooks"] == "off"
    assert CONFIG["only_build_toc_files"] is True
    assert CONFIG["repository"]["path_to_book"] == ""
    assert "thebe" not in CONFIG["launch_buttons"] and "binderhub_url" not in CONFIG["launch_buttons"]
    settings = CONFIG["sphinx"]["config"]
    for file in [*settings["html_css_files"], *settings["html_js_files"], settings["katex_css_path"]]:
        assert (STATIC / file).exists()
    ours = {name for name in settings["extensions"] if name.startswith("book_")}
    assert ours == {path.stem for path in EXT.glob("*.py")}


# ---- cells ----


@pytest.mark.parametrize(
    ("source", "found", "shown"),
    [
        ("#| export\nx = 1", {"export": ""}, "x = 1"),
        ("#| default_exp models.gru", {"default_exp": "models.gru"}, ""),
        ("#| export data.batching\nx = 1", {"export": "data.batching"}, "x = 1"),
        ("#|hide\nx = 1", {"hide": ""}, "x = 1"),
        ("x = 1  # a comment\n# | not one", {}, "x = 1  # a comment\n# | not one"),
        ("#| fold: The plot: two curves\nx = 1", {"fold": "The plot: two curves"}, "x = 1"),
        ("#| export\n#| open\ndef f():\n    pass\n", {"export": "", "open": ""}, "def f():\n    pass"),
        ("text = '#| export'", {}, "text = '#| export'"),
    ],
)
def test_directives_are_read_and_taken_off(source: str, found: dict[str, str], shown: str) -> None:
    assert chapters.directives(source) == found
    assert chapters.shown(source) == shown


@pytest.mark.parametrize(
    ("source", "tags", "label"),
    [
        ("#| fold: The library's version\nx = 1", [], "The library's version"),
        ("#| fold:\nx = 1", [], "Code"),
        ("x = 1", ["hide-input"], "Code"),
        ("x = 1", ["hide-output"], None),
        ("#| export\ndef f():\n" + "    x = 1\n" * 50, [], None),
    ],
)
def test_only_what_is_marked_folds(source: str, tags: list[str], label: str | None) -> None:
    assert chapters.fold(source, tags) == label


def code_cell(source: str, tags: list[str] | None = None) -> nodes.container:
    """A code cell as myst-nb puts it into the document."""
    block = nodes.literal_block(source, source, language="ipython3")
    part = nodes.container("", block, nb_element="cell_code_source", classes=["cell_input"])
    output = nodes.container("", nodes.literal_block("1", "1"), nb_element="cell_code_output", classes=["cell_output"])
    data = {"cell_metadata": {"tags": tags or []}}
    return nodes.container("", part, output, nb_element="cell_code", classes=["cell"], **data)


def test_cells_that_serve_the_exporter_disappear_and_exported_ones_are_marked() -> None:
    document = new_document("chapter")
    sources = [
        'import sys\n\nif "google.colab" in sys.modules:\n    %pip install -q "transformer-lib"',
        "#| default_exp metrics",
        "#| hide\nsecret = 1",
        "#| export\ndef bleu():\n    pass",
        "bleu()",
        "#| export models.gru\nA, B = 1, 2",
        "#| export",
        "#| fold: A label\nfolded = 1",
    ]
    document += [code_cell(source) for source in sources]
    book_cells.TidyCells(document).apply()
    exported, plain, elsewhere, folded = document.findall(book_cells.is_element("cell_code"))
    assert exported["classes"] == ["cell", "tag_export", "module-metrics"]
    assert plain["classes"] == ["cell"] and "hide_mode" not in plain
    assert "module-models.gru" in elsewhere["classes"]
    assert (folded["hide_mode"], folded["prompt_show"]) == ("input", "A label")
    block = next(exported.findall(nodes.literal_block))
    assert block.astext() == block.rawsource == "def bleu():\n    pass"  # they must agree, or colours are lost
    assert "secret" not in document.astext() and "colab" not in document.astext() and "#|" not in document.astext()


def test_a_cell_that_only_speaks_of_colab_stays() -> None:
    assert not book_cells.installs_on_colab("import sys\nprint('google.colab' in sys.modules)")
    assert not book_cells.installs_on_colab("%pip install x")


def test_labels_are_text_and_code() -> None:
    assert book_cells.label_html("Class `A<B>` & more") == "Class <code>A&lt;B&gt;</code> &amp; more"


# ---- pages ----

SLUG = "some-one/a-book"  # an address as a service gives it


def test_addresses_follow_from_the_repository() -> None:
    assert chapters.pages_url("https://github.com/Some-One/my-book") == "https://some-one.github.io/my-book/"
    assert chapters.pages_url("https://github.com/a/b/") == "https://a.github.io/b/"


def test_what_only_html_can_carry() -> None:
    cell = '<div class="cell tag_export module-multi_head docutils container">'
    assert 'data-module="transformer_lib.multi_head"' in book_pages.tidy(cell)
    assert "data-module" not in book_pages.tidy('<div class="cell docutils container">')
    heading = '<h1><span class="section-number">17. </span>Translating</h1>'
    assert book_pages.tidy(heading) == '<h1><span class="section-number">Chapter 17 </span>Translating</h1>'
    assert book_pages.tidy('<th class="head"><p></p></th>') == '<td class="head"></td>'
    assert book_pages.tidy('<th class="head"><p>a</p></th>') == '<th class="head"><p>a</p></th>'


def test_the_line_under_the_title_describes_the_page() -> None:
    document = new_document("page")
    section = nodes.section(
        "", nodes.title("", "Title"), nodes.block_quote("", nodes.paragraph("", "What it\nbuilds."))
    )
    document += section
    assert book_pages.describe(document) == "What it builds."
    section.pop()
    section += nodes.paragraph("", "Prose.")
    assert book_pages.describe(document) is None


# ---- chapters ----


def test_chapter_numbers_come_from_the_contents() -> None:
    first = next(part for part in TOC["parts"] if part.get("numbered"))["chapters"][0]["file"]
    assert chapters.numbers()[f"{first}.ipynb"] == 1
    for key in ("decoding", "plain.beam_search"):
        assert book_chapters.spoken(book_chapters.chapter(key)).startswith("chapter ")
    assert book_chapters.spoken(book_chapters.chapter("caption_grammar")) == "The caption grammar"
    with pytest.raises(KeyError, match="no chapter '99'"):
        book_chapters.chapter("99")


def test_chapters_are_named_by_file_not_by_number() -> None:
    for path, text in markdown().items():
        prose = re.sub(r"`[^`]*`|^```.*?^```", "", text, flags=re.M | re.S)
        assert not re.search(r"\b[Cc]hapters? \d+\b(?!\])", prose), f"{path.name}: write {{chapter}}`file_name`"


def test_what_is_meant_by_a_query_is_the_title_of_a_page() -> None:
    table = re.search(r"const MEANT = (.*?)\];\n", (STATIC / "scorer.js").read_text(encoding="utf-8"), re.S)[1]
    texts = [page.title for page in chapters.book()] + [path.read_text("utf-8") for path in BOOK.rglob("*.md")]
    titles = [" ".join(re.findall(r"\w+", text.lower())) for text in texts if text]
    meant = re.findall(r', "([^"]+)"\]', table)
    assert len(meant) > 9 and [one for one in meant if not any(one in title for title in titles)] == []


def test_old_addresses_lead_to_pages_that_exist() -> None:
    redirects = CONFIG["sphinx"]["config"]["book_redirects"]
    assert set(redirects.values()) <= {name.removeprefix("book/") for name in toc_files()}
    assert not {f"book/{old}" for old in redirects} & set(toc_files())
    assert 'url=../a/b.html"' in book_pages.redirect("../a/b.html")


def test_every_chapter_that_the_pages_name_is_on_the_map() -> None:
    for path, text in markdown().items():
        for words in re.findall(r"\{[cC]hapter\}`([^`]+)`", text):
            key = found[1] if (found := re.search(r"<([\w.]+)>$", words)) else words
            assert book_chapters.chapter(key), path


def test_every_slip_shows_the_wrong_line_and_the_right_one() -> None:
    text = (BOOK / "appendix" / "slips.md").read_text(encoding="utf-8")
    slips = re.findall(r"^### (.+?)(?=^##|\Z)", text, re.M | re.S)
    assert len(slips) > 50 and len({slip.splitlines()[0] for slip in slips}) == len(slips)
    for slip in slips:
        code = re.search(r"^```python\n(.+?)^```$", slip, re.M | re.S)[1]
        assert [line.rsplit("# ", 1)[1] for line in code.splitlines() if "# " in line] == ["wrong", "right"], slip
        assert "\n**The check:** " in slip


# ---- the library's pages ----


def test_the_table_of_lost_details_quotes_the_translations_above_it() -> None:
    cells = json.loads((BOOK / "translation/translating_real_sentences.ipynb").read_text(encoding="utf-8"))["cells"]
    printed = "".join(text for cell in cells for out in cell.get("outputs", []) for text in out.get("text", []))
    printed = re.sub(r"\n {19}", " ", printed)  # long lines are wrapped
    columns = ("one vector, 2014", "Bahdanau, 2015", "Luong, 2015", "Transformer, 2017")
    said = {name: " ".join(re.findall(rf"^{name} +(.*)", printed, re.M)).lower() for name in columns}
    (table,) = re.findall(r"\| the German says .*?\n\n", "\n".join("".join(c["source"]) for c in cells), re.S)
    rows = [[one.strip() for one in row.split("|")[2:6]] for row in table.strip().split("\n")[2:]]
    assert len(rows) == 10
    for row in rows:
        for name, quoted in zip(columns, row, strict=True):
            assert quoted in "✓–" or quoted in said[name], (name, quoted)


def test_no_output_complains_of_a_package_that_was_not_there() -> None:
    """Cells whose outputs are not compared may have run where something was missing: run them again with it."""
    for path in sorted((ROOT / "book").rglob("*.ipynb")):
        for cell in json.loads(path.read_text(encoding="utf-8"))["cells"]:
            told = "".join("".join(output.get("text", [])) for output in cell.get("outputs", []))
            assert "No module named" not in told, f"{path.name}: {told:.200}"


def test_stored_figures_have_the_scripts_and_styles_of_today() -> None:
    """Whoever changes a figure's script executes again the cells that show it."""
    modules = [import_module(f"transformer_lib.viz.{one.stem}") for one in (ROOT / "transformer_lib/viz").glob("*.py")]
    scripts, styles = ({getattr(one, name, "").strip() for one in modules} - {""} for name in ("SCRIPT", "STYLE"))
    found = 0
    for path in NOTEBOOKS:
        for cell in json.loads(path.read_text(encoding="utf-8"))["cells"]:
            shown = "".join("".join(out.get("data", {}).get("text/html", "")) for out in cell.get("outputs", []))
            stored = [one.strip() for one in re.findall(r"<script>(.*?)</script>", shown, re.DOTALL)]
            assert {*stored} <= scripts, f"{path.name}: an old script: make notebooks NB={path.name} CHANGED=1"
            for style in re.findall(r"<style>(.*?)</style>", shown, re.DOTALL):
                assert style.strip().startswith(tuple(styles)), f"{path.name}: an old style"
            found += len(stored)
    assert found > 60


def test_shapes_are_shown_as_they_are_written() -> None:
    from jaxtyping import Bool, Float, Int
    from torch import Tensor

    from transformer_lib import TransformerConfig

    assert book_api.show_annotation(Float[Tensor, "B T D"], None) == '``Float[Tensor, "B T D"]``'
    assert book_api.show_annotation(Bool[Tensor, "B #T S"], None) == '``Bool[Tensor, "B #T S"]``'
    assert book_api.show_annotation(Int[Tensor, " B"], None) == '``Int[Tensor, "B"]``'
    assert book_api.show_annotation(int, None) is None
    signatures = ("(*args, **kwargs)", "(*args: ~typing.Any, **kwargs: ~typing.Any)", "(a, b=1)")
    shown = [book_api._signature(None, "class", "x", None, None, one, None) for one in signatures]
    assert shown == [("", None), ("", None), None]
    made = book_api._signature(None, "class", "x", TransformerConfig, None, "(*args, **kwargs)", None)[0]
    assert made.startswith("(source_vocab_size: int = 37000, ") and "Annotated" not in made


def test_a_method_is_described_in_our_words_or_in_none(monkeypatch: pytest.MonkeyPatch) -> None:
    class Ours(nn.Module):
        def extra_repr(self) -> str:
            """Our words."""

    class Late(Ours):
        def forward(self) -> None:
            pass

        def extra_repr(self) -> str:
            pass

        def step(self) -> None:
            pass

    place = ModuleType("transformer_lib.models.late")
    Ours.__module__, place.Ours, place.Late = place.__name__, Ours, Late
    monkeypatch.setitem(sys.modules, place.__name__, place)
    monkeypatch.setattr(transformer_lib.models, "late", place, raising=False)
    shown = {}
    for name in ("Ours.extra_repr", "Late.extra_repr", "Late.forward", "Late.step"):
        shown[name] = ["words"]
        book_api._docstring(None, "method", f"{place.__name__}.{name}", None, None, shown[name])
    assert [name for name, lines in shown.items() if not lines] == ["Late.forward"]


def test_a_signature_over_several_lines_is_a_term_of_its_list(tmp_path: Path) -> None:
    from sphinx.application import Sphinx

    (tmp_path / "index.rst").write_text(".. py:function:: f(one: int, two: int) -> int\n\n   Adds.\n", encoding="utf-8")
    (tmp_path / "conf.py").write_text("", encoding="utf-8")
    settings = {"extensions": ["sphinx.ext.autodoc", "sphinx_autodoc_typehints", "book_api"]}
    places = [tmp_path, None, tmp_path / "out", tmp_path / "trees", "html"]
    settings |= {"maximum_signature_line_length": 9}
    Sphinx(*places, confoverrides=settings, status=None, warning=None).build()
    page = (tmp_path / "out" / "index.html").read_text(encoding="utf-8")
    assert re.findall(r"<dl[^>]*>\s*<(\w+)", page) == ["dt"] and re.search('<dt class="[^"]*sig-lines', page)


def test_a_printed_table_that_a_phone_can_show_in_smaller_type_is_known() -> None:
    rows = f"{'loss':>53}\n{'2014  1.54':<53}\n2017  1.50"
    assert book_cells.is_wide_table(rows) and not book_cells.is_wide_table(rows.replace(" " * 9, ""))
    assert not book_cells.is_wide_table(rows + " " * 70 + "|") and not book_cells.is_wide_table("word " * 11)


@pytest.mark.slow
@pytest.mark.xdist_group("small book")
def test_how_sure_we_are_is_told_in_a_box_and_on_the_page_of_claims(small_book: Path) -> None:
    page = (small_book / "book" / "translation" / "translating_real_sentences.html").read_text(encoding="utf-8")
    box = page[page.index('<details class="sure') :].partition("</details>")[0]
    assert box.index("How sure are we?") < box.index("held in 1 check") < box.index("</summary>")
    for told in (
        "The gap is wide.",
        "2 (1.50 to 2.50)",
        "Twice the updates",
        "at the edge",
        "One seed.",
        '>tiny</span> <span class="pre">--folder</span> <span class="pre">again</span></code>',
    ):
        assert told in box, told
    assert 'href="../appendix/claims.html#claim-tiny-gap"' in box and box.count("<svg") == 3
    claims = (small_book / "book" / "appendix" / "claims.html").read_text(encoding="utf-8")
    assert claims.index('<ol class="claims">') < claims.index('type="radio"') < claims.index('id="claim-tiny-gap"')
    assert 'href="#claim-tiny-gap"' in claims and "One in two: 2 of 4." in claims
    assert "The gap is narrow." in claims and "It was one seed." in claims


def test_every_module_has_a_page() -> None:
    named = re.findall(r"\{library-modules\} (.+)", "".join(path.read_text() for path in BOOK.glob("api/**/*.md")))
    listed = [module for names in named for name in names.split() for module in book_api.modules(name)]
    public = [name for name in book_api.modules() if book_api.public(name)]
    assert len(listed) == len(set(listed)) and set(public) <= set(listed)
    assert ("make_captions", "Write distinct English captions with German translations and gold alignments.") in (
        book_api.public("data.captions")
    )


# ---- the records of long runs ----


def test_every_record_has_a_table_and_a_command_that_can_be_copied() -> None:
    for path in (ROOT / "transformer_lib" / "results").glob("*.json"):
        record = json.loads(path.read_text(encoding="utf-8"))
        heads, cells = book_results.rows_of(record)
        assert cells and all(len(row) == len(heads) for row in cells), path.name
        assert shlex.split((record["runs"][-1] if "runs" in record else record)["command"])


def test_a_study_is_shown_with_the_mean_and_range_of_each_variant_at_its_own_rate() -> None:
    row = {"arm": "a", "rate": 0.1, "seed": 0, "budget": 5, "tuning": False, "run": 0, "seconds": 1, "loss": 1.0}
    other = [row | {"seed": 1, "loss": 2.0}, row | {"rate": 0.2, "loss": 9}, row | {"tuning": True, "loss": 9}]
    record = {"findings": {}, "tuned": {"a": {"rate": 0.1}}, "budget": 5, "rows": [row, *other]}
    assert book_results.rows_of(record) == (["Variant", "Rate", "loss"], [["a", "0.1", "1.50 (1 to 2)"]])


def test_the_chart_of_speeds_is_drawn_from_the_findings() -> None:
    page = (BOOK / "appendix" / "how_fast.md").read_text(encoding="utf-8")
    groups = yaml.safe_load(re.search(r"```\{ratios\}\n(.*?)```", page, re.S)[1])
    found = {}
    for group in groups.values():
        record = results.load(group["record"])
        for ours, theirs in group["rows"].values():
            mean, low, high = book_results.compared(record, ours, theirs)
            assert book_results.LEFT < low <= mean <= high < book_results.RIGHT, theirs  # on the axis
            found[f"{theirs} divided by {ours}"] = mean
    known = [one for name in ("speed", "decoding_speed") for one in results.load(name)["findings"].values()]
    shared = {one["how"].rpartition(",")[0]: one["value"] for one in known if one["how"].rpartition(",")[0] in found}
    assert len(shared) == 2 and {how: found[how] for how in shared} == pytest.approx(shared)
    places = [float(book_results.along(value)[:-1]) for value in (book_results.LEFT, 0.5, 1, book_results.RIGHT)]
    assert places[0] == 0 and places[-1] == 100 and places[1] == pytest.approx(50, abs=0.1) and places[2] > 71


# ---- references, figures ----


def test_every_cited_work_is_in_the_bibliography() -> None:
    entries = re.findall(r"^@\w+\{(\w+),", (BOOK / "references.bib").read_text(encoding="utf-8"), re.M)
    assert len(entries) == len(set(entries))
    for path, text in markdown().items():
        for keys in re.findall(r"\{cite(?::\w+)?\}`([^`]+)`", text):
            for key in keys.split(","):
                assert key.strip() in entries, f"{path.name} cites {key}"


def test_every_work_is_described() -> None:
    text = (BOOK / "references.bib").read_text(encoding="utf-8")
    for entry in re.split(r"^@", text, flags=re.M)[1:]:
        key = re.match(r"\w+\{(\w+)", entry)
        for field in ("author", "title", "year"):
            assert re.search(rf"^  {field} = \{{.+\}},$", entry, re.M), f"{key and key[1]} lacks {field}"
        year = re.search(r"year = \{(\d{4}[a-z]?)\}", entry)
        assert key and year and year[1][:4] in key[1]


def test_every_work_is_cited_and_no_two_are_cited_by_the_same_words() -> None:
    entries = re.split(r"^@", (BOOK / "references.bib").read_text(encoding="utf-8"), flags=re.M)[1:]
    places = [*BOOK.rglob("*.md"), *NOTEBOOKS, *(ROOT / "transformer_lib").rglob("*.toml"), ROOT / "paper" / "paper.md"]
    named = {word for path in places for word in re.findall(r"\w+", path.read_text(encoding="utf-8"))}
    keys, words = [], []
    for entry in entries:
        key, authors, year = (
            re.search(rf"{field}(.*?)[,}}]+$", entry, re.M)[1] for field in (r"\w+\{", "author = {", "year = {")
        )
        names = [re.split(", ", name)[0].strip("{}") for name in authors.split(" and ")]
        keys, words = [*keys, key], [*words, (names[: 2 if len(names) == 2 else 1], len(names) > 2, year)]
    assert [key for key in keys if key not in named] == []
    assert [key for key, one in zip(keys, words, strict=True) if words.count(one) > 1] == []


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_every_figure_has_a_caption_a_name_and_words_for_who_cannot_see_it(path: Path) -> None:
    names, ids = [], []
    for i, cell in enumerate(json.loads(path.read_text(encoding="utf-8"))["cells"]):
        outputs = cell.get("outputs", [])
        shown_as = [output.get("data", {}) for output in outputs]
        plots = ["".join(data[kind]) for data in shown_as for kind in data if kind.startswith("image/")]
        touched = "".join("".join(data.get("text/html", "")) for data in shown_as)
        if '<div class="touch ' in touched:
            assert re.search(r"</style><p><strong>[^<]+</strong></p>", touched), f"{path.name}, cell {i}: no title"
        elif not plots:
            continue
        for plot in plots:
            assert "</text>" in plot and "DejaVu" not in plot, f"{path.name}, cell {i}: call viz.use_style() before it"
            ids += re.findall(r' id="([^"]+)"', plot)
        shown = cell["metadata"].get("mystnb", {})
        figure, alt = shown.get("figure", {}), shown.get("image", {}).get("alt", "")
        assert figure.get("caption") and figure.get("name"), f"{path.name}, cell {i}: no caption or no name"
        assert len(alt) > 20 and alt != figure["caption"], f"{path.name}, cell {i}: say in words what the figure shows"
        names.append(figure["name"])
    assert len(names) == len(set(names)) and len(ids) == len(set(ids))


def test_a_plot_is_drawn_in_the_page_and_in_an_epub_a_file(tmp_path: Path) -> None:
    (tmp_path / "plot.svg").write_text('<svg viewBox="0 0 9 9"><text>words</text></svg>', encoding="utf-8")
    for builder in ("html", "epub"):
        document = new_document("chapter")
        document += code_cell("plot()")
        (output,) = document.findall(book_cells.is_element("cell_code_output"))
        output += nodes.figure("", nodes.image(uri="plot.svg", alt='Two "bars"'))
        app = SimpleNamespace(builder=SimpleNamespace(name=builder), srcdir=tmp_path)
        book_cells.draw_in_page(app, document, "chapter")
        page = (
            '<svg class="plot" role="img" aria-label="Two &quot;bars&quot;" viewBox="0 0 9 9"><text>words</text></svg>'
        )
        assert [one.astext() for one in document.findall(nodes.raw)] == [page] * (builder == "html")
        assert len(list(document.findall(nodes.image))) == (builder == "epub")


def test_an_epub_lists_its_pages_and_says_what_it_is(tmp_path: Path) -> None:
    from sphinx.application import Sphinx

    pages = {"index": "# T\n\n```{toctree}\n:hidden:\n\nfirst\nmore/last\n```\n", "first": "# One\n\n## Part\n"}
    for name, text in (pages | {"more/last": "# Two\n"}).items():
        path = tmp_path / "book" / f"{name}.md"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    (tmp_path / "index.md").write_text("# T\n", encoding="utf-8")
    config = yaml.safe_load((ROOT / "_config.yml").read_text(encoding="utf-8"))["sphinx"]["config"]
    own = {name: value for name, value in config.items() if name.startswith("epub_")}
    own |= {"extensions": ["myst_parser"], "root_doc": "book/index", "version": "1"}
    places = [tmp_path, None, tmp_path / "out", tmp_path / "trees", "epub"]
    Sphinx(*places, confoverrides=own, status=None, warning=None, freshenv=True).build()
    for name in ("nav.xhtml", "toc.ncx"):
        listed = re.findall(r'(?:href|src)="(book/[^"]+)"', (tmp_path / "out" / name).read_text(encoding="utf-8"))
        assert listed == ["book/index.xhtml", "book/first.xhtml", "book/first.xhtml#part", "book/more/last.xhtml"]
    about = (tmp_path / "out" / "content.opf").read_text(encoding="utf-8")
    assert '<dc:identifier id="book-id">attention-step-by-step</dc:identifier>' in about
    assert 'unique-identifier="book-id"' in about and "built step by step" in about


def test_an_epub_has_no_form_and_none_of_the_site_s_files(tmp_path: Path) -> None:
    document = new_document("index")
    document += nodes.raw("", '<link href="x.css"><form hidden>&nbsp;</form><script>1</script>', format="html")
    app = SimpleNamespace(builder=SimpleNamespace(name="epub", format="html"), outdir=tmp_path)
    book_cells.stand_still(app, document, "index")
    assert not list(document.findall(nodes.raw)) and "something to try" in document.astext()
    for finished in (book_pages._redirect, book_styles._trim_all, book_notebooks._write, book_translator._copy_files):
        finished(app, None)
    assert not list(tmp_path.iterdir())


# ---- static files ----


def test_nothing_is_asked_of_another_host() -> None:
    for path in [STATIC / "book.css", STATIC / "book.js", *STATIC.glob("*.svg"), *(EXT / "glyphs").glob("*.svg")]:
        text = path.read_text(encoding="utf-8").replace("http://www.w3.org/2000/svg", "")
        assert "http:" not in text and "https:" not in text and "@import" not in text, path
    for url in re.findall(r'url\("([^"]+)"\)', CSS):
        assert (STATIC / url).exists(), url


def test_what_others_made_has_its_licence_beside_it() -> None:
    assert "MIT License" in (STATIC / "katex" / "LICENSE").read_text(encoding="utf-8")
    assert "SIL Open Font License" in (STATIC / "fonts" / "LICENSE").read_text(encoding="utf-8")
    size = sum(path.stat().st_size for path in STATIC.rglob("*") if path.is_file())
    assert size < 2.5e6


def colours(mode: str) -> dict[str, str]:
    """The colours of one mode, as the style sheet has them."""
    block = re.search(rf'html\[data-theme="{mode}"\] \{{\n((?:  --book-.+\n)+)', CSS)
    assert block
    return dict(re.findall(r"--book-([\w-]+): (#[0-9a-f]{6});", block[1]))


def contrast(one: str, other: str) -> float:
    """The contrast of two colours, from 1 to 21 (WCAG 2)."""

    def light(colour: str) -> float:
        channels = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
        linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]

    high, low = sorted((light(one), light(other)), reverse=True)
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("mode", ["light", "dark"])
def test_text_can_be_read_in_both_modes(mode: str) -> None:
    found = colours(mode)
    assert len(found) > 15
    for name in ("ink", "muted", "link", *(name for name in found if name.endswith("-text"))):
        for ground in ("paper", "panel"):
            assert contrast(found[name], found[ground]) >= 4.5, f"{name} on {ground}"


# ---- notebooks to download ----


def test_downloaded_notebooks_have_no_directive_no_role_and_the_same_code() -> None:
    nbformat = pytest.importorskip("nbformat")
    for page, base in itertools.product(chapters.book(), ("https://me.github.io/book/", "", None)):
        made = book_notebooks.rendered(page, base)
        nbformat.validate(made)
        told = "\n".join(cell["source"] for cell in made["cells"] if cell["cell_type"] == "markdown")
        prose = re.sub(r"(?ms)^```\w+$.*?^```$", "", told)
        pattern = re.compile(r"\{[\w:-]+\}`|^[> ]*[`:]{3,} *\{|:::|^:\w+:|\{\.|^\(\S+\)=$")
        assert not [line for line in prose.splitlines() if pattern.search(line)], (page.name, base)
        assert "OWNER" not in json.dumps(made) and told.count("<details>") == told.count("</details>")
        needed = [extra for source in page.code for extra in re.findall(r"step-by-step(\[.+?\]) @", source.source)]
        said = re.findall(r"first install the library: `pip install \"\.(\[.+?\])\"`", told)
        assert said == needed * (not base and not chapters.address()), page.name
        code = iter(cell for cell in made["cells"] if cell["cell_type"] == "code")
        cell = next(code, None)
        for source in page.code:
            if cell is source.data:
                cell = next(code, None)
            else:  # a solution's cell stands in its fold, and without an address, there is nothing to install
                assert f"```python\n{chapters.shown(source.source)}\n```" in told or "OWNER" in source.source
        assert cell is None


def test_what_readers_download_installs_the_library_and_keeps_nothing_of_our_tools(tmp_path: Path) -> None:
    source = (BOOK / "transformer" / "masks.ipynb").read_text(encoding="utf-8")
    path = tmp_path / "book" / "transformer" / "masks.ipynb"
    path.parent.mkdir(parents=True)
    shutil.copy(ROOT / "_toc.yml", tmp_path)
    path.write_text(source.replace("/OWNER/", "/me/"), encoding="utf-8")  # as when the book has an address
    page = chapters.Notebook(path, tmp_path)
    made = book_notebooks.downloaded(page, "https://me.github.io/book/")
    code = [cell["source"] for cell in made["cells"] if cell["cell_type"] == "code"]
    assert code[0].startswith('from importlib.util import find_spec\n\nif not find_spec("transformer_lib"):\n    %pip')
    assert all(one.strip() and "#|" not in one and "google.colab" not in one for one in code)
    labels = [cell.marks["fold"] for cell in page.cells if "fold" in cell.marks]
    assert labels and all(any(one.startswith(f"# @title {label}\n") for one in code) for label in labels)


def test_a_notebook_refuses_what_it_can_not_show() -> None:
    page = chapters.Notebook(BOOK / "transformer" / "masks.ipynb", ROOT)
    for text in ("```{plot} x\n```", "{sub}`x`"):
        with pytest.raises(ValueError, match="no notebook can show"):
            book_notebooks.Renderer(page, "").markdown(text)


# ---- a small book, built ----

WIDEST = f"{'total = first_of_them + last_of_all':<80}# ok"  # as wide as the formatter allows
EARLIER = [
    ("markdown", "# Decoding\n\n> Finds sentences.\n", []),
    ("code", "#| default_exp decoding.search", []),
    ("code", "#| export\ndef beam_search():\n    return 1", []),
]
APPENDIX = [
    ("markdown", "# Drawing\n\n> Draws.\n", []),
    ("code", "#| default_exp viz\n", []),
    ("code", "#| export\ndef plot():\n    return 1", []),
    ("markdown", "## Lines\n\n### Thin ones\n\n```{math}\n:label: eq-a\nx\n```\n\n## Areas", []),
    (
        "markdown",
        "```{raw} html\n<div class='tl-viewer' role='group' aria-label='A viewer'><fieldset><legend>Beam</legend>"
        "<button>3</button></fieldset></div>\n```\n\n"
        "```{math}\n:label: eq-b\n\\frac{a}{b} = \\sum_{i=1}^n \\text{words}\n```\n\n"
        ":::{dropdown} A script\n```js\nlet x = 1;\n```\n:::",
        [],
    ),
]
SAMPLE = [
    ("markdown", "# Translating\n\n> What this chapter builds, in a line.\n", []),
    ("code", 'import sys\n\nif "google.colab" in sys.modules:\n    %pip install -q "transformer-lib"', []),
    ("code", "#| default_exp translation.translator", []),
    ("code", "#| hide\nhidden_name = 1", []),
    ("markdown", ":::{admonition} Start here\n:class: start-here\nRead {chapter}`decoding` first.\n\n"
     f"```python\n{WIDEST}\n```\n:::\n\n## A section, so that there are contents beside the page", []),
    ("markdown", "A formula $x$ by {cite:t}`bahdanau2015`, in {chapter}`2`. As {chapter}`decoding` said in "
     "{chapter}`pictures`. {Chapter}`decoding` is here, too.\n\n"
     "```{math}\n:label: eq-17-x\nx = 1\n```\n\nSee {eq}`eq-17-x`.\n\n```{sure} tiny/gap\n```", []),
    ("code", "#| fold: Plumbing\nfrom transformer_lib.viz import plot", []),
    ("code", "from transformer_lib.decoding.search import beam_search", []),
    ("code", "#| export\ndef shown_name():\n    \"\"\"The first line.\n\n    The rest.\n    \"\"\"\n    return 1", []),
    ("code", f"#| fold: What `folds` here\nfolded_name = 1\n{WIDEST}", []),
    ("code", WIDEST, ["prints"]),
    ("code", "tagged_name = 1", ["hide-input"]),
    ("markdown", "```{exercise} Write it\n:label: ex-17\nDo.\n```", []),
    ("markdown", "```{solution-start} ex-17\n:class: dropdown\n```", []),
    ("code", f"solution_name = 1\n{WIDEST}", []),
    ("markdown", "```{solution-end}\n```", []),
]  # fmt: skip


def write_notebook(path: Path, sample: list[tuple[str, str, list[str]]]) -> None:
    printed = [{"output_type": "stream", "name": "stdout", "text": "x" * 84}]
    cells = [
        {"cell_type": kind, "id": f"cell{i}", "metadata": {"tags": tags}, "source": source}
        | ({"execution_count": i, "outputs": printed if "prints" in tags else []} if kind == "code" else {})
        for i, (kind, source, tags) in enumerate(sample)
    ]
    metadata = {"kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
                "language_info": {"name": "python"}}  # fmt: skip
    notebook = {"cells": cells, "metadata": metadata, "nbformat": 4, "nbformat_minor": 5}
    path.write_text(json.dumps(notebook), encoding="utf-8")


@pytest.fixture(scope="module")
def small_book(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A book of two chapters, built."""
    pytest.importorskip("jupyter_book")
    tmp_path = tmp_path_factory.mktemp("small")
    (tmp_path / "book" / "translation").mkdir(parents=True)
    shutil.copy(ROOT / "_config.yml", tmp_path)
    shutil.copy(BOOK / "references.bib", tmp_path / "book")
    shutil.copytree(EXT, tmp_path / "book" / "_ext", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copytree(STATIC, tmp_path / "book" / "_static")
    shutil.copytree(BOOK / "_templates", tmp_path / "book" / "_templates")
    (tmp_path / "tools").mkdir()
    shutil.copy(ROOT / "tools" / "chapters.py", tmp_path / "tools")
    declared = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    declared = re.sub('^edition = "[^"]+"', 'edition = "v1.2.0"', declared, flags=re.M)
    (tmp_path / "pyproject.toml").write_text(declared, encoding="utf-8")
    (tmp_path / "transformer_lib" / "results").mkdir(parents=True)
    record = {"command": "run it", "title": "Scores <compared>", "metrics": {"bleu": {"value": 24.312}}}
    (tmp_path / "transformer_lib" / "results" / "first-run.json").write_text(json.dumps(record), encoding="utf-8")
    numbers = {"value": 2.0, "low": 1.5, "high": 2.5, "kind": "difference", "how": "a minus b, 3 seeds, paired"}
    numbers |= {"metric": "loss", "arms": ["a", "b"], "holds": True}
    words = {"text": "The gap is wide.", "line": "Wide.", "earlier": "One seed.", "criterion": [["low", ">", 1]]}
    row = {"arm": "a", "rate": 1, "seed": 0, "budget": 5, "tuning": False, "run": 0, "seconds": 1.0, "loss": 2.0}
    check = {"tried": "twice the updates", "findings": {"gap": numbers | {"asked": True}}}
    fell = {"asked": 3, "broke": 2, "sentences": {"The gap is narrow.": "It was one seed."}}
    tiny = {
        "question": "Is it?",
        "chapter": "translation/decoding",
        "equal": "all",
        "metric": "nats",
        "unit": "updates",
    }
    tiny |= {"budget": 5, "seeds": [0, 1, 2], "tuned": {"a": {"rate": 1, "edge": True}}, "rows": [row], "fell": fell}
    tiny |= {"runs": [{"command": "run"}], "findings": {"gap": numbers | words}, "challenges": [check]}
    (tmp_path / "transformer_lib" / "results" / "tiny.json").write_text(json.dumps(tiny), encoding="utf-8")
    (tmp_path / "book" / "appendix").mkdir()
    (tmp_path / "book" / "appendix" / "claims.md").write_text(
        "# Claims\n\n```{claims} tiny/gap\n```\n\n```{claims}\n```\n\n"
        "```{tally}\nOne in {one_in}: {broke} of {asked}.\n```\n\n"
        "```{ledger}\n```\n\nSee {ref}`there <claims-tiny>`.\n\n"
        "A weight is $\\frac{1}{\\sqrt{width}}$.\n\n```{glossary}\nGumbel noise\n  It is added to *scores*.\n```\n",
        encoding="utf-8",
    )
    write_notebook(tmp_path / "book" / "appendix" / "pictures.ipynb", APPENDIX)
    write_notebook(tmp_path / "book" / "translation" / "decoding.ipynb", EARLIER)
    write_notebook(tmp_path / "book" / "translation" / "translating_real_sentences.ipynb", SAMPLE)
    (tmp_path / "book" / "index.md").write_text(
        "# Book\n\n```{chapter-table}\n```\n\n```{results-index}\n```\n\n```{bibliography}\n```\n",
        encoding="utf-8",
    )
    pages = [{"file": f"book/translation/{name}"} for name in ("decoding", "translating_real_sentences")]
    parts = [{"caption": "Translation", "numbered": True, "chapters": pages}]
    parts.insert(0, {"caption": "Start here", "chapters": [{"file": "book/appendix/pictures"}]})
    parts.append({"caption": "Appendix", "chapters": [{"file": "book/appendix/claims"}]})
    contents = {"format": "jb-book", "root": "book/index", "parts": parts}
    (tmp_path / "_toc.yml").write_text(yaml.safe_dump(contents), encoding="utf-8")
    command = [sys.executable, "-c", "from jupyter_book.cli.main import main; main()"]
    command += ["build", str(tmp_path), "-W", "-n", "--keep-going"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "GITHUB_REPOSITORY": SLUG}
    done = subprocess.run(command, capture_output=True, text=True, env=environment, cwd=tmp_path, check=False)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    return tmp_path / "_build" / "html"


@pytest.mark.slow
@pytest.mark.xdist_group("small book")
def test_search_names_terms_mends_typing_errors_and_shows_no_tex(small_book: Path, browser: Any) -> None:
    with serve(small_book) as address:
        page = browser.new_page(viewport=NARROW)
        page.set_default_timeout(60_000)
        errors: list[str] = []
        page.on("pageerror", lambda error: errors.append(str(error)))

        def ask(query: str) -> str:
            page.goto(f"{address}search.html?q={query}")
            page.wait_for_selector("#search-results li p.context")
            return page.inner_text("#search-results")

        assert "No page has" not in ask("decoding")
        assert "These results are for “decoding”" in ask("how+do+i+decodng")
        assert page.inner_text("#search-results li a").endswith("Decoding")
        assert "Gumbel noise (Glossary)\n" in ask("gumbel+noise")
        shown = ask("weight")
        assert "A weight is …." in shown and "\\" not in shown
        icon, field = (page.locator(f".bd-search-container form {one}").bounding_box() for one in ("i,svg", "input"))
        padding = page.evaluate("parseFloat(getComputedStyle(document.querySelector('form input')).paddingLeft)")
        assert icon["x"] + icon["width"] <= field["x"] + padding
        assert not errors


@pytest.mark.slow
@pytest.mark.xdist_group("small book")
def test_a_small_book_is_built_as_promised(small_book: Path) -> None:
    built = small_book
    page = (built / "book" / "translation" / "translating_real_sentences.html").read_text(encoding="utf-8")
    name = "book/translation/translating_real_sentences.ipynb"
    assert f"https://colab.research.google.com/github/{SLUG}/blob/notebooks/{name}" in page
    text = (built / "_sources" / name).read_text(encoding="utf-8")  # what the download button serves
    assert f"[chapter 1]({chapters.pages_url(f'https://github.com/{SLUG}')}book/translation/decoding.html)" in text
    assert "<summary>Solution to Exercise 2.1 (Write it)</summary>" in text and "[Bahdanau et al. (2015)](http" in text
    assert "html), edition v1.2.0." in text and "<p>Edition v1.2.0</p>" in page
    assert "tag{2.1}" in text and "See (2.1)." in text and ":::" not in text and "}`" not in text
    assert page.count(f"/github/{SLUG}/blob/student/02_translating_real_sentences.ipynb") == 1
    assert '<span class="section-number">Chapter 2 </span>Translating' in page and "(2.1)" in page
    assert 'data-module="transformer_lib.translation.translator"' in page and "shown_name" in page
    assert "hidden_name" not in page and "#|" not in page and "pip install" not in page
    assert ">chapter 2<" in page and re.search(r'<a [^>]*href="decoding.html"[^>]*><[^>]*>chapter 1<', page)
    assert 'class="start-here admonition"' in page
    labels = re.findall(r'<span class="fold-label">(.*?)</span>', page)
    assert labels == ["Plumbing", "What <code>folds</code> here", "Code", "Solution to Exercise 2.1 (Write it)"]
    assert not re.search(r'id="(?:exercise|solution)-content"', page)  # ids that sphinx-exercise repeats
    for name in ("folded_name", "tagged_name", "solution_name"):
        before = page[: page.index(name)]
        assert before.count("<details") > before.count("</details")
    assert '<meta property="og:description" content="What this chapter builds, in a line." />' in page
    assert '<meta name="description" content="What this chapter builds, in a line." />' in page
    assert 'class="katex-html"' in page and page.count("katex/katex.min.css") == 1
    assert re.findall("[cC]hapter 1(?=<)", page).count("Chapter 1") == 1
    loaded = re.findall(r'<(?:script|img|source|iframe)[^>]*\ssrc="([^"]+)"', page)
    loaded += re.findall(r'<link[^>]*rel="(?:stylesheet|preload|icon|shortcut icon)"[^>]*href="([^"]+)"', page)
    assert loaded and not [url for url in loaded if "//" in url]
    assert "thebe" not in page and "fontawesome.js" not in page and page.count("viewport") == 2
    assert "katex.min.css" not in (built / "book" / "translation" / "decoding.html").read_text(encoding="utf-8")

    appendix = (built / "book" / "appendix" / "pictures.html").read_text(encoding="utf-8")
    assert "<h1>Drawing" in appendix and ">Drawing</span></a>" in page

    index = (built / "book" / "index.html").read_text(encoding="utf-8")
    assert 'href="translation/translating_real_sentences.html"' in index
    assert re.search(r'class="right-next"\s+href="translation/decoding.html"', index)  # not to what comes before it
    assert '<details id="run-first-run">' in index and "Scores &lt;compared&gt;" in index and "24.31" in index
    assert "Neural Machine Translation by Jointly Learning to Align and Translate" in index
    found = (built / "searchindex.js").read_text(encoding="utf-8")
    terms = json.loads(found.removeprefix("Search.setIndex(").removesuffix(")"))["terms"]
    assert "width" in terms and not {"frac", "sqrt"} & terms.keys()
    moved = (built / "book" / "translation" / "16_decoding.html").read_text(encoding="utf-8")
    assert 'url=../translation/decoding.html"' in moved
    lost = (built / "404.html").read_text(encoding="utf-8")
    prefix = chapters.pages_url(f"https://github.com/{SLUG}").split("/", 3)[3]
    assert f'href="/{prefix}book/translation/translating_real_sentences.html"' in lost
    assert "translating_real_sentences.html" in (built / "sitemap.xml").read_text(encoding="utf-8")
    root = (built / "index.html").read_text(encoding="utf-8")
    assert "<title>Book" in root and 'property="og:image"' in root
    assert "location.replace" in root


@pytest.mark.slow
@pytest.mark.xdist_group("small book")
def test_the_first_page_is_weighed_as_it_is_sent(
    small_book: Path, browser: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    import weigh

    found = weigh.loads(small_book, browser=browser)
    whole, sent = (sum(column) for column in zip(*found.values(), strict=True))
    for name in ("book/index.html", "_static/book.css", "_static/fonts/source-serif-4-latin-wght-normal.woff2"):
        assert found[name][0] == (small_book / name).stat().st_size
    assert sent < whole and not [name for name in found if "tabs" in name or "searchindex" in name]
    monkeypatch.setattr(weigh, "loads", lambda built: found)  # a busy machine may load a file later
    assert weigh.main(small_book) == 0 and f"{whole:9,} {sent:9,}  {len(found)} files" in capsys.readouterr().out
    monkeypatch.setattr(weigh, "BOUND", sent - 1)
    assert weigh.main(small_book) == 1


@pytest.mark.slow
@pytest.mark.xdist_group("small book")
def test_a_mistyped_address_is_searched_for(small_book: Path, browser: Any) -> None:
    lost = (small_book / "404.html").read_text(encoding="utf-8").replace("/a-book/", "/")
    with serve(small_book) as address:
        page = browser.new_page()
        page.route("**/lost/*", lambda route: route.fulfill(status=404, body=lost, content_type="text/html"))
        for name in ("decodign", "16_Decoding"):
            page.goto(f"{address}book/lost/{name}.html")
            assert page.inner_text("#near a") == name.removeprefix("16_")
            page.click("#near a")
            page.wait_for_selector("#search-results li p.context")
            assert page.inner_text("#search-results li a").endswith("Decoding")
        page.goto(f"{address}book/lost/16.html")
        assert not page.is_visible("#near")


@pytest.mark.slow
def test_an_address_moves_the_page_again_only_where_it_unfolds_something(visit: Any, tmp_path: Path) -> None:
    room = '<p style="height: 3000px"></p>'
    text = f'{room}<h2 id="plain">A</h2>{room}<details><summary>B</summary><p id="folded">C</p></details>{room}'
    script = (STATIC / "book.js").read_text(encoding="utf-8")
    (tmp_path / "page.html").write_text(f"<!doctype html><title>t</title>{text}<script>{script}</script>", "utf-8")
    page = visit(f"{(tmp_path / 'page.html').as_uri()}#plain")
    page.wait_for_function("scrollY > 0")
    page.evaluate("scrollTo(0, 0); dispatchEvent(new Event('load'))")  # the reader was there before the pictures
    assert page.evaluate("scrollY") == 0
    page.evaluate("location.hash = 'folded'")
    page.wait_for_function("document.querySelector('details').open && scrollY > 5000")
