"""How much of each page's prose is about its evidence; more than a twentieth is a warning.

    python tools/evidence.py [--show] [PAGE ...]

The measure is the share of words that stand in sentences about seeds, intervals, checks, withdrawn results, tuning,
repeated runs, or what we haven't measured. Captions count, and so does whatever stands in an admonition or a table.
Code, formulas, exercises and the box *How sure are we?* don't. A sentence counts as a whole, so joining or splitting
sentences changes little. What helps is telling it in the box: `--show` prints the sentences.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

from chapters import ROOT, Notebook, book

LIMIT = 0.05
N = r"(?:one|two|three|four|five|six|seven|eight|nine|ten|eleven|twelve|twenty|thirty|\d+)"
RUNS = r"(?:training )?(?:runs?|trainings|repetitions)"
NUMBER = r"[−-]?\d[\d.,]*(?:<!--[^>]*-->)?"
SIGNS = {
    "seeds": [
        r"\bseeds?\b(?!, the epoch| and the number of the update)",
        r"\b(?:other|different|fresh) random (?:numbers|weights|starts?|initiali[sz]ations?)",
        r"\bdiffer(?:s|ed)? only in chance",
    ],
    "intervals": [
        r"\b\d\d ?%[- ](?:confidence |bootstrap )?intervals?\b",
        r"\bintervals? (?:of|for|is|was|contain|includ|begin|reach|exclud|lies|just|still|touch|doesn|does not)",
        r"\bconfidence interval|±|\bstandard (?:error|deviation)s? (?:over|across|between)",
        rf"[(\[](?!.*\bfrom )[^()\[\]]*{NUMBER} (?:to|and) {NUMBER}(?: [a-z]+)?[;)\]]",
    ],
    "checks": [
        rf"\b(?:independent|second|later|earlier|another|last|this|that|each|both|first|own|the|our|their|{N}) "
        r"(?:independent |second )?checks?\b(?! (?:mark|whether|that|if|out|how))",
        r"\breplicat|\bclaims? page|\bclaims?-[a-z]|\bhow (?:we|it was) measured",
    ],
    "withdrawn": [
        r"\bwithdr[ae]w|\bdid(?:n't| not) (?:survive|hold up|come out|replicate)",
        r"\b(?:earlier|previous|first|second|third) (?:editions?|versions? of this (?:book|page|chapter))",
        r"\bwe had (?:expected|predicted|claimed)|\bpredictions? (?:failed|held|did)",
    ],
    "tuning": [
        rf"\bbest of (?:the |its |our )?(?:{N}|several|all)?(?: \w+)? ?(?:learning |peak )?rates?\b",
        r"\bat (?:its|their) (?:own|best) (?:learning |peak )?rates?\b",
        r"\b(?:own|tuned|closer|closely spaced|other) (?:learning |peak )rates?\b|\btuned (?:again|anew|on)\b",
        r"\brates? (?:of (?:its|their) own|with the lowest validation loss|(?:that )?we tried)",
    ],
    "runs": [
        rf"\b(?:all|both|most|some|{N})(?: of)?(?: the| our| these)?(?: {N})? {RUNS}\b",
        rf"\b{N} of (?:the |our )?{N} (?:such |trained )?(?:models|networks|translators|runs|times|others)\b",
        rf"\bin (?:every|each|these|our|those|such) (?:short |small )?{RUNS}\b|\b{RUNS} (?:vary|varied|differ)",
        r"\b(?:repeated|re-?ran|ran) (?:it|this|that|the experiment|everything)\b",
        rf"\b{N} (?:models|translators) (?:that differ|with (?:new|other|different))",
    ],
    "limits": [
        r"\b(?:have|has|had)(?:n't| not) (?:measured|tested|tried|checked)\b",
        r"\bcan(?:'t|not) (?:be sure|tell(?! from| us| you))\b",
        r"\btoo few to\b|\b(?:is|was) (?:only |just |merely )?a demonstration|\bstatistically\b",
        r"\bsignificant (?:difference|at)\b|\bno (?:measurable|clear) (?:difference|gain)",
    ],
}
PATTERNS = {name: re.compile("|".join(parts), re.I) for name, parts in SIGNS.items()}
RECORDED = re.compile(r"<!-- [\w-]+/(?:findings|challenges)/")
LEFT_OUT = (
    r"math|exercise|solution|sure|claims|tally|ledger|study|results-index|code-block|code|bibliography|chapter-table"
)
FENCE = re.compile(r"^([`:~]{3,})(\{[\w-]+\})?[^\n]*\n(.*?)^\1[`:~]*[ \t]*$", re.M | re.S)
SOLVED = re.compile(r"^```\{solution-start\}.*?^```\{solution-end\}\n```", re.M | re.S)


def told(text: str) -> str:
    """The prose of some Markdown: no code, formulas, headings, exercises or boxes."""

    def inside(match: re.Match[str]) -> str:
        name = (match[2] or "")[1:-1]
        if not name or re.fullmatch(LEFT_OUT, name):
            return "\n\n"
        options = re.sub(r"^:[\w-]+:.*\n", "", match[3], flags=re.M)
        return f"\n\n{told(options)}\n\n"

    text = FENCE.sub(inside, SOLVED.sub("", text))
    text = re.sub(r"\$\$.*?\$\$", "\n\n", text, flags=re.S)
    return re.sub(r"^#+ .*$|^\(.*\)=$|^```.*$", "", text, flags=re.M)


def sentences(text: str) -> list[str]:
    """The sentences of prose, one string each; a list item or a row of a table ends one."""
    found = []
    for paragraph in re.split(r"\n\s*\n|\n(?=\s*(?:[-*|]|\d+\.) )", told(text)):
        line = " ".join(paragraph.split()).lstrip("-* ")
        found += re.split(r"(?<=[.!?])(?<!e\.g\.)(?<!i\.e\.)(?<!al\.)[)*_\"”]*\s+(?=[(*_\"“`$\[{A-Z\d])", line)
    return [one for one in found if words(one)]


def words(sentence: str) -> int:
    """How many words a sentence has, with a formula or a name in code as one."""
    plain = re.sub(r"<!--.*?-->|<[^>]+>", "", re.sub(r"\$[^$]+\$|`[^`]*`", "x", sentence))
    return len(re.findall(r"[^\W_]+(?:['’.,-][^\W_]+)*", plain))


def signs(sentence: str) -> list[str]:
    """What makes a sentence one about evidence; an empty list if nothing does."""
    names = [name for name, pattern in PATTERNS.items() if pattern.search(sentence)]
    return [*names, *["numbers"] * (len(RECORDED.findall(sentence)) > 1)]


def prose(path: Path) -> str:
    """What a page tells: its Markdown and the captions of its figures."""
    if path.suffix == ".md":
        return path.read_text(encoding="utf-8")
    parts = []
    for cell in Notebook(path, ROOT).cells:
        caption = cell.metadata.get("mystnb", {}).get("figure", {}).get("caption", "")
        parts.append(cell.source if cell.kind == "markdown" else caption)
    return "\n\n".join(parts)


def share(text: str) -> tuple[int, int, list[str]]:
    """The words about evidence, all words, and the sentences that hold the first."""
    every = sentences(text)
    about = [one for one in every if signs(one)]
    return sum(map(words, about)), sum(map(words, every)), about


def main() -> int:
    show, names = "--show" in sys.argv, [name for name in sys.argv[1:] if name != "--show"]
    chapters = [page.path for page in book(ROOT) if page.number] + [ROOT / "book/ending/looking_back.md"]
    over = 0
    for path in map(Path, names or chapters):
        part, whole, about = share(prose(path))
        much = part > LIMIT * whole
        over += much
        print(f"{'warning' if much else 'ok':8}{100 * part / max(1, whole):5.1f} % of {whole:5,} words  {path.stem}")
        for one in about if show else ():
            print(f"           {','.join(signs(one))}: {re.sub('<!--.*?-->', '', one)}")
    print(f"{over} pages tell their evidence in more than {100 * LIMIT:.0f} % of their prose; --show prints it")
    return 0


if __name__ == "__main__":
    sys.exit(main())
