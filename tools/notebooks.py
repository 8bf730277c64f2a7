"""Execute notebooks in place, keeping outputs and counts, and drop metadata that differs between machines.

    python tools/notebooks.py                 every notebook of the book
    python tools/notebooks.py NOTEBOOK ...    only these
    python tools/notebooks.py --clean ...     tidy the metadata without executing

Each notebook runs alone in an empty folder. One that fails is left as it was.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from pathlib import Path

import nbformat
from chapters import ROOT, colab_cell, fold, notebooks

METADATA = {
    "accelerator": "GPU",
    "colab": {"gpuType": "T4", "provenance": []},
    "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
    "language_info": {"name": "python"},
}
CELL_METADATA = ("tags", "mystnb", "jupyter", "cellView")
FOLDED = {"jupyter": {"source_hidden": True}, "cellView": "form"}  # for Jupyter, and for Colab


def clean(notebook: nbformat.NotebookNode) -> None:
    """Leave only metadata that is the same on every machine; keep outputs, counts, tags and captions.

    What folds on the page folds in Jupyter and on Colab too.
    """
    notebook.metadata = nbformat.from_dict(METADATA)
    notebook.nbformat, notebook.nbformat_minor = 4, 5
    if len(notebook.cells) > 1 and '"google.colab" in sys.modules' in notebook.cells[1].source:
        notebook.cells[1].source = colab_cell()
    for cell in notebook.cells:
        kept = {key: cell.metadata[key] for key in CELL_METADATA if cell.metadata.get(key) and key not in FOLDED}
        if cell.cell_type == "code" and fold(cell.source, kept.get("tags", [])) is not None:
            kept |= FOLDED
        cell.metadata = nbformat.from_dict(kept)
        if cell.cell_type == "code":
            for output in cell.outputs:
                if "metadata" in output:
                    output.metadata = nbformat.from_dict({})


def write(notebook: nbformat.NotebookNode, path: Path) -> None:
    """Write a notebook in one step."""
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    nbformat.write(notebook, draft)
    draft.replace(path)


def execute(path: Path) -> float:
    """Run one notebook from top to bottom in an empty folder and write it back; the seconds it took."""
    from nbclient import NotebookClient

    notebook = nbformat.read(path, as_version=4)
    clean(notebook)
    started = time.perf_counter()
    with tempfile.TemporaryDirectory() as folder:
        where = {"metadata": {"path": folder}}
        NotebookClient(notebook, timeout=1800, kernel_name="python3", resources=where, coalesce_streams=True).execute()
    clean(notebook)
    write(notebook, path)
    return time.perf_counter() - started


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("notebooks", nargs="*", type=Path, help="default: all")
    parser.add_argument("--clean", action="store_true", help="tidy the metadata only")
    options = parser.parse_args(arguments)
    failed = 0
    for path in options.notebooks or notebooks():
        name = os.path.relpath(path.resolve(), ROOT) if path.resolve().is_relative_to(ROOT) else str(path)
        if options.clean:
            notebook = nbformat.read(path, as_version=4)
            clean(notebook)
            write(notebook, path)
            continue
        from nbclient.exceptions import CellExecutionError, CellTimeoutError

        try:
            print(f"{name}: {execute(path):.0f} s", flush=True)
        except (CellExecutionError, CellTimeoutError) as error:
            failed += 1
            print(f"{name}: FAILED, the file is unchanged\n{error}", file=sys.stderr, flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
