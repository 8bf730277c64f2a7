"""Files: written whole or not at all, and fetched only as they were published."""

import hashlib
import json
import os
import stat
import uuid
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any

__all__ = ["DataFile", "check_empty", "checksum", "fetch", "write_atomically", "write_json"]

Folder = str | os.PathLike[str] | None


def read_table(name: str) -> dict[str, list[list[str]]]:
    """The rows below each ``[heading]`` of a text file of this folder, without comments; bars part the columns."""
    tables: dict[str, list[list[str]]] = {}
    rows = tables.setdefault("", [])
    text = (files("transformer_lib") / "data" / f"{name}.txt").read_text(encoding="utf-8")
    for line in text.splitlines():
        if line.startswith("["):
            rows = tables.setdefault(line.strip("[]"), [])
        elif line and not line.startswith("#"):
            rows.append([column.strip() for column in line.split("|")])
    return tables


def check_empty(folder: Path | str, *own: str) -> None:
    """Refuse a folder that contains files other than ``own``, because they could be overwritten or deleted.

    Raises:
        ValueError: if there are such files; the message names one.
    """
    if others := sorted(path.name for path in Path(folder).glob("*") if path.name not in own):
        raise ValueError(f"{folder} is not empty: {others[0][:80]!r} is in it; choose an empty folder")


def checksum(path: Path | str) -> str:
    """SHA-256 of a file, read piece by piece: 0.3 seconds for 600 MB on a processor of today."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def write_atomically(path: Path | str, content: bytes) -> None:
    """Write a file completely or not at all.

    A file that exists keeps its mode. A link is replaced: the file behind it may be anybody's. What is
    no file, such as a pipe or ``/dev/stdout``, is written to directly.
    """
    path = Path(path)
    if (path.exists() and not path.is_file()) or path.parent == Path("/dev"):
        path.write_bytes(content)
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f"{path.name}.{uuid.uuid4().hex}.part")
    try:
        with part.open("wb") as file:
            if path.is_file() and not path.is_symlink():
                part.chmod(stat.S_IMODE(path.stat().st_mode))
            file.write(content)
            file.flush()
            os.fsync(file.fileno())  # on the disk before the name changes
        part.replace(path)
    except OSError as error:
        if error.filename is None and error.errno:  # the error for a full disk names no file
            raise OSError(error.errno, error.strerror, str(path)) from error
        raise
    finally:
        part.unlink(missing_ok=True)


def write_json(path: Path | str, content: dict[str, Any]) -> None:
    """Write a JSON file completely or not at all."""
    text = json.dumps(content, indent=2, ensure_ascii=False) + "\n"
    write_atomically(path, text.encode())


@dataclass(frozen=True)
class DataFile:
    """A published file: its data set and name, its address, and its checksum."""

    dataset: str
    name: str
    url: str
    sha256: str


def fetch(file: DataFile, directory: Folder = None) -> Path:
    """Get a published file: from a local folder, from the cache, or from the network.

    Its SHA-256 is checked before it is used. Several processes may fetch at the same time.

    Args:
        directory: a folder that has ``dataset/name``. If None, the folder named by the environment
            variable ``TRANSFORMER_LIB_DATA`` is tried, then the cache, then the network.

    Raises:
        FileNotFoundError: the file is not in the given directory, or TRANSFORMER_LIB_DATA names no folder.
        OSError: the download failed; the message says what to do.
        ValueError: the content is not what was published.
    """
    inside = Path(file.dataset, file.name)
    refused = (
        f"is not the published {file.name} of {file.dataset}: it is truncated, altered or another "
        f"file, because its SHA-256 is not {file.sha256}; it is not used"
    )
    if folder := directory or os.environ.get("TRANSFORMER_LIB_DATA"):
        path = Path(folder).expanduser() / inside
        if path.exists():
            if checksum(path) != file.sha256:
                raise ValueError(f"{path} {refused}")
            return path
        if directory or not path.parents[1].is_dir():
            name = "directory" if directory else "TRANSFORMER_LIB_DATA"
            raise FileNotFoundError(f"{name}={os.fspath(folder)!r} has no file {inside}")
    import pooch  # slow to import, and few callers need it

    cache = Path(os.environ.get("TRANSFORMER_LIB_CACHE") or "~/.cache/transformer_lib")
    path = cache.expanduser() / inside
    # without streaming, it closes the connection after an error, too
    get = pooch.HTTPDownloader(timeout=30, stream=False)
    try:
        pooch.retrieve(file.url, f"sha256:{file.sha256}", path.name, path.parent, downloader=get)
    except OSError as error:  # first, because some of these are ValueErrors, too
        raise OSError(
            f"{file.name} of {file.dataset} could not be downloaded from {file.url}: {error}. Without a network, get "
            f"the file on another machine, put it into a folder as {file.dataset}/{file.name}, and name that folder "
            "in the environment variable TRANSFORMER_LIB_DATA"
        ) from error
    except ValueError as error:
        raise ValueError(f"{file.url} {refused}") from error
    return path
