"""Set the address of the repository everywhere, or check that every place agrees.

    python tools/set_repository.py https://github.com/me/my-book [--branch main]
    python tools/set_repository.py --check

The address is declared once, as ``[project.urls] Homepage`` of pyproject.toml (the branch as ``branch`` of
``[tool.transformer-lib]``). Everything else follows: the book's configuration, the Colab cell of every notebook, badges
and links, the citation, the library's own mentions.
"""

from __future__ import annotations

import argparse
import re
import sys
import tomllib
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
from chapters import ROOT, book

ADDRESS = re.compile(r"https://github\.com/([A-Za-z0-9][A-Za-z0-9-]*)/([A-Za-z0-9._-]+?)(?:\.git)?/?")
BRANCH = re.compile(r"[A-Za-z0-9][A-Za-z0-9._/-]*")
COLAB_CELL = """import sys

if "google.colab" in sys.modules:
    %pip install -q "attention-step-by-step[viz] @ git+{url}@{branch}\""""
EXAMPLE = "me/my-book"  # what the documentation of this command writes
FOLDERS = (".github", "benchmarks", "book", "results", "tests", "tools", "transformer_lib")
SUFFIXES = {".bib", ".cff", ".css", ".html", ".ipynb", ".js", ".json", ".md", ".mjs", ".py", ".rst", ".svg", ".toml"}
SUFFIXES |= {".txt", ".xml", ".yaml", ".yml"}


@dataclass(frozen=True)
class Repository:
    """Where the project lives."""

    owner: str
    name: str
    branch: str = "main"

    @classmethod
    def parse(cls, address: str, branch: str = "main") -> Repository:
        found = ADDRESS.fullmatch(address)
        if not found:
            raise ValueError(f"{address!r} is not an address such as https://github.com/me/my-book")
        if not BRANCH.fullmatch(branch):
            raise ValueError(f"{branch!r} is not the name of a branch")
        return cls(found[1], found[2], branch)

    @classmethod
    def declared(cls, root: Path = ROOT) -> Repository:
        """What pyproject.toml says."""
        declared = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))
        branch = declared.get("tool", {}).get("transformer-lib", {}).get("branch", "main")
        return cls.parse(declared["project"]["urls"]["Homepage"], branch)

    @property
    def slug(self) -> str:
        return f"{self.owner}/{self.name}"

    @property
    def url(self) -> str:
        return f"https://github.com/{self.slug}"

    @property
    def pages(self) -> str:
        return f"{self.owner.lower()}.github.io/{self.name}"

    @property
    def colab_cell(self) -> str:
        """The source of every notebook's install cell."""
        return COLAB_CELL.format(url=self.url, branch=self.branch)


def text_files(root: Path) -> list[Path]:
    """The files that may mention the address: at the root, and below the project's own folders."""
    found = [path for path in root.iterdir() if path.is_file()]
    for folder in FOLDERS:
        found += [path for path in (root / folder).rglob("*") if path.is_file()]
    ignored = {"__pycache__", ".ipynb_checkpoints", "mathjax", "fonts"}
    return sorted(path for path in found if path.suffix in SUFFIXES and not ignored & set(path.parts))


def whole(words: str) -> str:
    """A pattern for these words, not as part of longer ones."""
    return rf"(?<![\w.-]){re.escape(words)}(?![\w-]|\.(?!git\b)\w)"


def replace(text: str, old: Repository, new: Repository) -> str:
    """The text with every mention of one repository turned into the other."""
    slug, pages = whole(old.slug), rf"(?<![\w-])(?i:{re.escape(old.pages)})(?![\w-]|\.\w)"
    text = re.sub(rf"({slug}(?:\.git)?(?:/(?:blob|tree|raw|edit)/|@)){re.escape(old.branch)}(?![\w-])",
                  lambda found: found[1] + new.branch, text)  # fmt: skip
    text = re.sub(slug, new.slug, text)
    text = re.sub(pages, new.pages, text)
    return re.sub(rf"(?m)((?:^|[^\w])cd ){re.escape(old.name)}(?![\w.-])", lambda found: found[1] + new.name, text)


def declare(text: str, new: Repository) -> str:
    """pyproject.toml with the address and branch of the new repository."""
    text, done = re.subn(r'(?m)^Homepage = ".*"$', f'Homepage = "{new.url}"', text)
    if done != 1:
        raise ValueError("pyproject.toml must hold exactly one line 'Homepage = \"...\"'")
    line = f'branch = "{new.branch}"'
    if "[tool.transformer-lib]" not in text:
        return f"{text.rstrip()}\n\n[tool.transformer-lib]\n{line}\n"
    return re.sub(r'(?m)(^\[tool\.transformer-lib\]\n(?:[^\[\n]*\n)*?)branch = "[^"]*"', lambda m: m[1] + line, text)


def configure(text: str, new: Repository) -> str:
    """_config.yml with the address and branch of the new repository in its ``repository`` section."""
    section = re.search(r"(?m)^repository:[^\n]*\n(?:[ \t]+[^\n]*\n|[ \t]*\n)*", text)
    if not section:
        return text
    changed = re.sub(r"(?m)^([ \t]+url:[ \t]*)\S+", lambda m: m[1] + new.url, section[0])
    changed = re.sub(r"(?m)^([ \t]+branch:[ \t]*)\S+", lambda m: m[1] + new.branch, changed)
    return text[: section.start()] + changed + text[section.end() :]


def set_everywhere(new: Repository, root: Path = ROOT) -> list[Path]:
    """Turn every mention of the declared repository into the new one; the files that changed."""
    old = Repository.declared(root)
    changed = []
    declaration = root / "pyproject.toml"
    for path in [path for path in text_files(root) if path != declaration] + [declaration]:  # the declaration last
        before = path.read_bytes().decode("utf-8")
        after = replace(before, old, new)
        if path.name == "_config.yml" and path.parent == root:
            after = configure(after, new)
        if path == declaration:
            after = declare(after, new)
        if after != before:
            path.write_bytes(after.encode("utf-8"))
            changed.append(path)
    return changed


def disagreements(root: Path = ROOT) -> list[str]:
    """Every place that names another repository, or does not name the declared one where it must."""
    here = Repository.declared(root)
    found = []
    for name, field in {
        "_config.yml": rf"(?m)^[ \t]+url:[ \t]*['\"]?{re.escape(here.url)}['\"]?\s*$",
        "README.md": whole(here.slug),
        "CITATION.cff": rf"(?m)^repository-code:[ \t]*['\"]?{re.escape(here.url)}['\"]?\s*$",
    }.items():
        path = root / name
        if path.exists() and not re.search(field, path.read_text(encoding="utf-8")):
            found.append(f"{name} does not name {here.url}")
    config = root / "_config.yml"
    if config.exists():
        branch = re.search(r"(?m)^[ \t]+branch:[ \t]*['\"]?([^'\"\s]+)", config.read_text(encoding="utf-8"))
        if branch and branch[1] != here.branch:
            found.append(f"_config.yml: branch {branch[1]}, declared is {here.branch}")
    for chapter in book(root):
        if len(chapter.cells) < 2 or chapter.cells[1].source != here.colab_cell:
            found.append(f"{chapter.name}: the second cell is not the Colab cell of {here.url}@{here.branch}")
    same_name = re.compile(rf"([A-Za-z0-9-]+)(/{re.escape(here.name)}|\.github\.io/{re.escape(here.name)})(?![\w-])")
    reference = re.compile(rf"{whole(here.slug)}(?:\.git)?(?:/(?:blob|tree|raw|edit)/|@)([\w.-]+)")
    placeholder = re.compile(r"(?<![\w.-])OWNER/[\w-]{3,}")
    for path in text_files(root):
        if path.relative_to(root).parts[0] in ("tests", "tools"):  # they hold examples of other addresses
            continue
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
            if here.name not in line and "OWNER/" not in line:  # most lines, and the very long ones of pictures
                continue
            where = f"{path.relative_to(root).as_posix()}:{number}"
            for owner, rest in same_name.findall(line):
                address = owner + rest
                if "github.io" in rest and address.lower() == here.pages:
                    continue
                if ("github.io" in rest or f"github.com/{address}" in line) and address not in (here.slug, EXAMPLE):
                    found.append(f"{where}: {address} is not {here.slug}")
            for branch in reference.findall(line):
                if branch != here.branch and not re.fullmatch(r"v?\d+(\.\d+)*|[0-9a-f]{40}", branch):
                    found.append(f"{where}: branch {branch}, declared is {here.branch}")
            for mention in placeholder.findall(line):
                if mention != here.slug:
                    found.append(f"{where}: {mention} was left behind")
    return found


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("address", nargs="?", help="such as https://github.com/me/my-book")
    parser.add_argument("--branch", help="the branch that readers get (default: the declared one)")
    parser.add_argument("--check", action="store_true", help="only look, and fail if two places disagree")
    options = parser.parse_args(arguments)
    if bool(options.address) == options.check:
        parser.error("give an address, or --check")
    try:
        if options.address:
            new = Repository.parse(options.address, options.branch or Repository.declared().branch)
            for path in set_everywhere(new):
                print(f"changed {path.relative_to(ROOT).as_posix()}")
        problems = disagreements()
    except ValueError as error:
        print(error, file=sys.stderr)
        return 1
    here = Repository.declared()
    print("\n".join(problems) or f"every place names {here.url}, branch {here.branch}")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
