"""Execute notebooks in place, keeping outputs and counts, and drop metadata that differs between machines.

    python tools/notebooks.py                 every notebook of the book
    python tools/notebooks.py NOTEBOOK ...    only these
    python tools/notebooks.py --clean ...     tidy the metadata without executing
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from pathlib import Path

import nbformat
from nbclient import NotebookClient

sys.path.insert(0, str(Path(__file__).resolve().parent))
from export import ROOT, notebooks

METADATA = {
    "accelerator": "GPU",
    "colab": {"gpuType": "T4", "provenance": []},
    "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
    "language_info": {"name": "python"},
}


def clean(notebook: nbformat.NotebookNode) -> None:
    """Leave only metadata that is the same on every machine; keep outputs, counts, tags and figure captions."""
    notebook.metadata = nbformat.from_dict(METADATA)
    notebook.nbformat, notebook.nbformat_minor = 4, 5
    for cell in notebook.cells:
        kept = {key: cell.metadata[key] for key in ("tags", "mystnb") if cell.metadata.get(key)}
        cell.metadata = nbformat.from_dict(kept)
        for output in cell.get("outputs", []):
            if "metadata" in output:
                output.metadata = nbformat.from_dict({})


def execute(path: Path) -> float:
    """Run one notebook from top to bottom in an empty folder and write it back; the seconds it took."""
    notebook = nbformat.read(path, as_version=4)
    started = time.perf_counter()
    with tempfile.TemporaryDirectory() as folder:
        NotebookClient(notebook, timeout=600, kernel_name="python3", resources={"metadata": {"path": folder}}).execute()
    clean(notebook)
    nbformat.write(notebook, path)
    return time.perf_counter() - started


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("notebooks", nargs="*", type=Path, help="default: all")
    parser.add_argument("--clean", action="store_true", help="tidy the metadata only")
    options = parser.parse_args(arguments)
    for path in options.notebooks or notebooks():
        if options.clean:
            notebook = nbformat.read(path, as_version=4)
            clean(notebook)
            nbformat.write(notebook, path)
            continue
        seconds = execute(path)
        print(f"{path.resolve().relative_to(ROOT)}: {seconds:.0f} s")
    return 0


if __name__ == "__main__":
    sys.exit(main())
