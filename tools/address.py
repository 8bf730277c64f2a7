"""Give the project its address on GitHub and its edition, the tag of its version: python tools/address.py ME/NAME."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib

from chapters import ROOT, pages_url, repository


def main(argument: str) -> int:
    """Replace the address and the edition that pyproject.toml declares, which begin as a placeholder and a branch."""
    if not re.fullmatch(r"[\w.-]+/[\w.-]+", argument):
        print(f"{argument!r} is not the name of a repository, such as me/attention-step-by-step")
        return 2
    settings = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    tag = f"v{tomllib.loads(settings)['project']['version']}"
    (old, edition), new = repository(ROOT), f"https://github.com/{argument}"
    listed = subprocess.run(["git", "grep", "-lIF", old], cwd=ROOT, capture_output=True, text=True, check=True)
    for name in listed.stdout.split():
        path = ROOT / name
        text = path.read_text(encoding="utf-8")
        text = text.replace(f"{old}@{edition}", f"{old}@{tag}").replace(f'edition = "{edition}"', f'edition = "{tag}"')
        path.write_text(text.replace(old, new).replace(pages_url(old), pages_url(new)), encoding="utf-8")
    subprocess.run([sys.executable, ROOT / "tools/export.py"], check=True)  # the README's links, too
    print(f"{len(listed.stdout.split())} files say {new}, and Colab installs {tag}: commit, and then git tag {tag}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1] if len(sys.argv) == 2 else ""))
