"""What every page needs: its address, its scripts, its description, and marks that only HTML can carry."""

from __future__ import annotations

import html
import json
import os
import re
import subprocess
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from book_chapters import chapters
from docutils import nodes
from sphinx.application import Sphinx
from sphinx.config import Config

ROOT = Path(__file__).resolve().parents[2]
EXPORTED = re.compile(r'class="([^"]*\btag_export\b[^"]*\bmodule-([\w.]+)[^"]*)"')
CHAPTER = re.compile(r'(<h1>)<span class="section-number">(\w+)\. </span>')
EMPTY_HEAD = re.compile(r"<th([^>]*)>(?:\s|<p>|</p>)*</th>")
# Roles and labels that say less than the elements they stand on.
REPLACED = {
    '<div role="list" class="citation-list">': '<div class="citation-list">',
    ' role="doc-biblioentry"': "",
    '<summary aria-label="Toggle hidden content">': "<summary>",
}
THEBE = re.compile(
    r"<script type=\"text/x-thebe-config\">.*?</script>\s*|<script>kernelName = [^<]*</script>",
    re.S,
)
NOT_OURS = ("sphinx-thebe", "THEBE_JS_URL")


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


def pages_url(address: str) -> str:
    """Where the pages of a GitHub repository are served: https://github.com/A/b gives https://a.github.io/b/."""
    owner, name = urlsplit(address).path.strip("/").split("/")[:2]
    return f"https://{owner.lower()}.github.io/{name}/"


def _set_addresses(app: Sphinx, config: Config) -> None:
    """Derive every address from the repository's; without one, leave out what would lead nowhere."""
    options, address = config.html_theme_options, repository()
    options["repository_url"] = address or ""
    for kind in ("repository", "issues", "edit_page"):
        options[f"use_{kind}_button"] = bool(address)
    if address is None:
        options["launch_buttons"] = {}
    config.html_baseurl = config.ogp_site_url = (
        pages_url(address) if address else ""
    )
    config.notfound_urls_prefix = urlsplit(config.html_baseurl).path or "/"


def without_thebe(scripts: list[Any]) -> list[Any]:
    """The page's scripts without those of sphinx-thebe, which the book does not use, and without repetitions."""
    kept: list[Any] = []
    for script in scripts:
        body = dict(getattr(script, "attributes", {})).get("body") or ""
        name = str(getattr(script, "filename", None) or script)
        if any(word in body or word in name for word in NOT_OURS) or script in kept:
            continue
        kept.append(script)
    return kept


def describe(doctree: nodes.document) -> str | None:
    """The line under the title, if the page has one: it says best what the page is about."""
    for section in doctree.findall(nodes.section):
        after_title = [
            node
            for node in section.children
            if not isinstance(node, (nodes.title, nodes.Invisible))
        ]
        if after_title and isinstance(after_title[0], nodes.block_quote):
            return " ".join(after_title[0].astext().split())
        return None
    return None


def _chapter(found: re.Match[str]) -> str:
    kind = "Chapter" if found[2].isdigit() else "Appendix"
    return f'{found[1]}<span class="section-number">{kind} {found[2]} </span>'


def tidy(body: str) -> str:
    """The page's text with what only HTML can carry: names of modules, "Chapter 3", roles that mean something."""
    body = EXPORTED.sub(r'class="\1" data-module="transformer_lib.\2"', body)
    body = THEBE.sub("", body)
    body = CHAPTER.sub(_chapter, body)
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


def _describe_page(
    app: Sphinx,
    name: str,
    template: str,
    context: dict[str, Any],
    doctree: nodes.document | None,
) -> None:
    if body := context.get("body"):
        address = app.config.html_theme_options["repository_url"]
        context["body"] = write_it_yourself(tidy(body), name, address)
    if doctree is not None and (line := describe(doctree)):
        line = html.escape(line)
        context["meta"] = {**(context.get("meta") or {}), "og:description": line}
        context["metatags"] = (
            context.get("metatags", "")
            + f'<meta name="description" content="{line}" />\n'
        )


def _drop_scripts(
    app: Sphinx,
    name: str,
    template: str,
    context: dict[str, Any],
    doctree: nodes.document | None,
) -> None:
    context["script_files"] = without_thebe(context.get("script_files", []))
    context["css_files"] = [
        file for file in context.get("css_files", []) if "thebe" not in str(file)
    ]


def redirect(target: str, head: str = "") -> str:
    """A page that sends the reader on to another address, with its fragment."""
    target = html.escape(target)
    return (
        f'<!DOCTYPE html><html lang="en"><meta charset="utf-8">{head or "<title>Moved</title>"}'
        f'<link rel="canonical" href="{target}"><script>location.replace("{target}" + location.hash)</script>'
        f'<meta http-equiv="refresh" content="0; url={target}"><a href="{target}">This page has moved.</a>'
    )


def lighter(page: str, up: str) -> str:
    """A finished page without what it loads in vain: icons as a script (the font has them), MathJax without formulas."""
    page = re.sub(
        r"\s*<script src=\"[^\"]*fontawesome\.js[^>]*></script>", "", page
    )
    if not re.search(r'class="[^"]*\bmath\b', page):
        page = re.sub(
            r"\s*<script[^>]*>(?:window\.MathJax = [^<]*)?</script>",
            _without_mathjax,
            page,
        )
    page = re.sub(r"<title>(.+?) &#8212; \1</title>", r"<title>\1</title>", page)
    first, *rest = re.split(r'\s*<meta name="viewport"[^>]*>', page)
    page = (
        f'{first}\n    <meta name="viewport" content="width=device-width, initial-scale=1">'
        + "".join(rest)
    )
    if 'rel="preload" as="font"' not in page:
        fonts = "".join(
            f'<link rel="preload" as="font" type="font/woff2" crossorigin href="{up}_static/fonts/{name}-latin-wght-normal.woff2">'
            for name in ("source-serif-4", "source-sans-3")
        )
        page = page.replace(
            "</head>",
            f'{fonts}<link rel="icon" sizes="32x32" href="{up}_static/favicon.ico">\n  </head>',
            1,
        )
    return page


def dated(sitemap: str, base: str) -> str:
    """A sitemap with the day on which git last saw each page change."""

    def last(found: re.Match[str]) -> str:
        page = found[1].removeprefix(base).removesuffix(".html")
        command = [
            "git",
            "log",
            "-1",
            "--format=%cs",
            "--",
            f"{page}.md",
            f"{page}.ipynb",
        ]
        day = subprocess.run(
            command, cwd=ROOT, capture_output=True, text=True, check=False
        ).stdout.strip()
        return f"{found[0]}<lastmod>{day}</lastmod>" if day else found[0]

    return re.sub(r"<loc>([^<]*)</loc>", last, sitemap)


def _without_mathjax(script: re.Match[str]) -> str:
    return "" if "mathjax" in script[0].lower() else script[0]


LOST = """<script>
  const name = decodeURIComponent(location.pathname).split("/").pop().toLowerCase().replace(/\\.html?$|^\\d+_/g, "");
  const pages = {pages};
  const far = (a, b) => {
    let row = [...Array(b.length + 1).keys()];
    for (let i = 1; i <= a.length; i++)
      row = row.reduce((next, _, j) => [...next, j ? Math.min(row[j] + 1, next[j - 1] + 1, row[j - 1] + (a[i - 1] !== b[j - 1])) : i], []);
    return row[b.length];
  };
  const [near] = pages.map((page) => [far(name, page.split("/").pop()), page]).sort((a, b) => a[0] - b[0]);
  if (near && near[0] < 6)
    document.getElementById("near").innerHTML = `Did you mean <a href="{prefix}book/${near[1]}.html">${near[1]}</a>?`;
</script>"""


def _finish(app: Sphinx, exception: Exception | None) -> None:
    """Old addresses lead to the new ones, the root says what it is, and pages load only what they use."""
    if exception or app.builder.format != "html":
        return
    out = Path(app.outdir)
    for path in out.rglob("*.html"):
        text = path.read_text(encoding="utf-8")
        if "</head>" in text:
            up = "../" * (len(path.relative_to(out).parts) - 1)
            if path.name == "404.html":
                prefix = app.config.notfound_urls_prefix
                pages = [
                    name.removeprefix("book/")
                    for name in sorted(app.env.found_docs)
                    if name.startswith("book/")
                ]
                up, script = (
                    prefix,
                    LOST.replace("{pages}", json.dumps(pages)).replace(
                        "{prefix}", prefix
                    ),
                )
                text = text.replace('href="@', f'href="{prefix}').replace(
                    '<p id="near"></p>', f'<p id="near"></p>{script}'
                )
            path.write_text(lighter(text, up), encoding="utf-8")
    if (sitemap := out / "sitemap.xml").exists():
        sitemap.write_text(
            dated(sitemap.read_text(encoding="utf-8"), app.config.html_baseurl),
            encoding="utf-8",
        )
    for old, new in app.config.book_redirects.items():
        path = out / "book" / f"{old}.html"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(
            redirect(f"{'../' * (old.count('/'))}{new}.html"), encoding="utf-8"
        )
    root = f"{app.config.root_doc}.html"
    title, line = (
        html.escape(app.config.html_title),
        html.escape(app.config.book_description),
    )
    card = f"{app.config.html_baseurl}{app.config.ogp_image}"
    head = f'<title>{title}</title><meta name="description" content="{line}"><meta name="twitter:card" content="summary_large_image">'
    for name, value in {
        "title": title,
        "description": line,
        "image": card,
        "type": "website",
    }.items():
        head += f'<meta property="og:{name}" content="{value}">'
    (out / "index.html").write_text(
        redirect(root, head).replace("This page has moved.", title),
        encoding="utf-8",
    )


def setup(app: Sphinx) -> dict[str, Any]:
    app.add_config_value("book_redirects", {}, "html")
    app.add_config_value("book_description", "", "html")
    app.connect("config-inited", _set_addresses)
    if repository():
        app.setup_extension("sphinx_sitemap")  # needs the site's address
    else:
        for name in ("url_scheme", "excludes"):
            app.add_config_value(f"sitemap_{name}", None, "")
    app.connect("build-finished", _finish, priority=900)
    app.connect(
        "html-page-context", _describe_page, priority=400
    )  # before the description is asked for
    app.connect(
        "html-page-context", _drop_scripts, priority=900
    )  # after every script was added
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
