"""Published files, checked and fetched once; Multi30k and Moses; files written completely or not at all."""

import gzip
import hashlib
import http.server
import os
import re
import stat
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import requests
from jaxtyping import TypeCheckError

from transformer_lib.data.batching import Pair
from transformer_lib.data.files import DataFile, fetch, write_atomically
from transformer_lib.data.multi30k import (
    MULTI30K,
    load_multi30k,
    moses_detokenize,
    moses_tokenize,
)

LINES = "ein Hund\u2028 läuft \n\x85eine Katze\n"
CONTENT = gzip.compress(LINES.encode(), mtime=0)


class Handler(http.server.BaseHTTPRequestHandler):
    """Serves the good file, or one that is broken in the way the path says."""

    def do_GET(self):
        self.server.asked.append(self.path)
        if "missing" in self.path:
            self.send_error(404)
            return
        body = {"altered": CONTENT[:-1] + b"!", "page": b"<html>log in</html>"}.get(self.path[1:], CONTENT)
        if "short" in self.path:
            body = CONTENT[:-5]
        self.send_response(200)
        self.send_header("Content-Length", str(len(CONTENT) if "broken" in self.path else len(body)))
        self.end_headers()
        self.wfile.write(body[:10] if "broken" in self.path else body)

    def log_message(self, *_):
        pass


@pytest.fixture
def server(tmp_path, monkeypatch):
    """A server on this machine; the cache is a folder of the test's own."""
    monkeypatch.setenv("TRANSFORMER_LIB_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("TRANSFORMER_LIB_DATA", raising=False)
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as running:
        running.asked = []
        thread = threading.Thread(target=running.serve_forever, args=(0.01,))
        thread.start()
        running.address = f"http://127.0.0.1:{running.server_port}"
        yield running
        running.shutdown()
        thread.join(10)


def published(url: str, content: bytes = CONTENT) -> DataFile:
    """A file as the table describes it."""
    return DataFile("multi30k", "val.en.gz", url, hashlib.sha256(content).hexdigest())


def in_cache(tmp_path: Path) -> list[str]:
    """The names of all files below the cache."""
    return sorted(path.name for path in (tmp_path / "cache").rglob("*") if path.is_file())


def test_fetch_downloads_once(server, tmp_path):
    file = published(server.address + "/good")
    assert fetch(file) == tmp_path / "cache" / "multi30k" / "val.en.gz"
    assert fetch(file).read_bytes() == CONTENT
    assert server.asked == ["/good"]
    assert in_cache(tmp_path) == ["val.en.gz"]


@pytest.mark.parametrize(
    ("path", "error", "message"),
    [
        ("/altered", ValueError, "truncated, altered or another file"),
        ("/page", ValueError, "truncated, altered or another file"),
        ("/short", ValueError, "truncated, altered or another file"),
        ("/broken", OSError, "could not be downloaded"),
        ("/missing", OSError, "404"),
    ],
)
def test_broken_downloads_are_refused_and_not_kept(path, error, message, server, tmp_path):
    with pytest.raises(error, match=message) as caught:
        fetch(published(server.address + path))
    assert server.address + path in str(caught.value)
    assert "val.en.gz" in str(caught.value)
    assert in_cache(tmp_path) == []


def test_a_broken_file_in_the_cache_is_replaced(server, tmp_path):
    path = fetch(published(server.address + "/good"))
    path.write_bytes(CONTENT[:20])
    assert fetch(published(server.address + "/good")).read_bytes() == CONTENT
    path.write_bytes(CONTENT[:20])
    with pytest.raises(OSError, match="could not be downloaded"):
        fetch(published(server.address + "/missing"))
    assert fetch(published(server.address + "/good")).read_bytes() == CONTENT  # what is broken is never used


def test_offline_says_what_to_do(server, tmp_path):
    server.shutdown()
    server.server_close()
    with pytest.raises(OSError, match="could not be downloaded from http:") as caught:
        fetch(published(server.address + "/good"))
    assert "multi30k/val.en.gz" in str(caught.value) and "TRANSFORMER_LIB_DATA" in str(caught.value)
    assert in_cache(tmp_path) == []


def test_a_proxy_that_cannot_be_used_is_no_altered_file(server, monkeypatch):
    def without_socks(*_, **__):
        raise requests.exceptions.InvalidSchema("Missing dependencies for SOCKS support.")  # a ValueError, too

    monkeypatch.setattr("pooch.retrieve", without_socks)
    with pytest.raises(OSError, match=r"could not be downloaded.*SOCKS"):
        fetch(published(server.address + "/good"))


def test_an_interrupted_write_leaves_nothing(server, tmp_path, monkeypatch):
    def interrupt(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr("shutil.move", interrupt)
    with pytest.raises(KeyboardInterrupt):
        fetch(published(server.address + "/good"))
    assert in_cache(tmp_path) == []


def test_many_may_fetch_at_once(server, tmp_path):
    file = published(server.address + "/good")
    with ThreadPoolExecutor(8) as pool:
        paths = list(pool.map(fetch, [file] * 16))
    assert {path.read_bytes() for path in paths} == {CONTENT}
    assert in_cache(tmp_path) == ["val.en.gz"]


@pytest.mark.parametrize("how", ["argument", "environment"])
def test_a_local_folder_is_used_and_checked(how, server, tmp_path, monkeypatch):
    folder = tmp_path / "mine"
    (folder / "multi30k").mkdir(parents=True)
    (folder / "multi30k" / "val.en.gz").write_bytes(CONTENT)
    directory = folder if how == "argument" else None
    if how == "environment":
        monkeypatch.setenv("TRANSFORMER_LIB_DATA", str(folder))
    file = published(server.address + "/good")
    assert fetch(file, directory) == folder / "multi30k" / "val.en.gz"
    (folder / "multi30k" / "val.en.gz").write_bytes(CONTENT[:-1])
    with pytest.raises(ValueError, match="truncated, altered or another file"):
        fetch(file, directory)
    assert (folder / "multi30k" / "val.en.gz").exists()  # the reader's own file is left alone
    assert server.asked == [] and in_cache(tmp_path) == []


def test_a_local_folder_without_the_file(server, tmp_path, monkeypatch):
    file = published(server.address + "/good")
    with pytest.raises(FileNotFoundError, match=r"no file multi30k/val\.en\.gz"):
        fetch(file, tmp_path)
    monkeypatch.setenv("TRANSFORMER_LIB_DATA", str(tmp_path))
    assert fetch(file).parent == tmp_path / "cache" / "multi30k"  # the folder may hold only a part of the data
    monkeypatch.setenv("TRANSFORMER_LIB_DATA", str(tmp_path / "typo"))
    with pytest.raises(FileNotFoundError, match=r"TRANSFORMER_LIB_DATA=.*typo.* has no file"):
        fetch(file)


# ---- Multi30k


def test_load_multi30k_from_a_server(server, monkeypatch):
    french = gzip.compress(b"un chien court\nun chat\n", mtime=0)
    monkeypatch.setitem(MULTI30K, "val.en.gz", published(server.address + "/good"))
    monkeypatch.setitem(MULTI30K, "val.fr.gz", published(server.address + "/good"))
    # Only the newline ends a line; spaces and other separators stay.
    expected = [("ein Hund\u2028 läuft ",) * 2, ("\x85eine Katze",) * 2]
    assert load_multi30k("val", "en", "fr") == [Pair(*pair) for pair in expected]
    monkeypatch.setitem(MULTI30K, "val.fr.gz", published(server.address + "/good", french))
    with pytest.raises(ValueError, match=r"not the published val\.en\.gz"):
        load_multi30k("val", "en", "fr")


def multi30k(split: str) -> list[Pair]:
    """Real pairs from the local folder, or a skip that says why."""
    folder = os.environ.get("TRANSFORMER_LIB_DATA")
    if not folder or not Path(folder, "multi30k", f"{split}.en.gz").exists():
        pytest.skip(f"real data cannot be had: TRANSFORMER_LIB_DATA names no folder with {split} of Multi30k")
    return load_multi30k(split, "de", "en")


@pytest.mark.slow
@pytest.mark.parametrize(("split", "lines"), [("train", 29000), ("val", 1014), ("test_2016_flickr", 1000)])
def test_real_splits(split, lines):
    pairs = multi30k(split)
    assert len(pairs) == lines
    assert all(pair.source.strip() and pair.target.strip() and "\n" not in pair.source for pair in pairs)
    swapped = load_multi30k(split, "en", "de")
    assert [(pair.source, pair.target) for pair in swapped] == [(pair.target, pair.source) for pair in pairs]


@pytest.mark.slow
def test_moses_tokens_of_the_literature():
    pairs = multi30k("test_2016_flickr")
    assert sum(len(moses_tokenize(pair.source, "de").split()) for pair in pairs) == 12103
    assert sum(len(moses_tokenize(pair.target, "en").split()) for pair in pairs) == 12968


def test_moses():
    assert moses_tokenize("A man's dog, (black) isn't here.", "en") == "a man 's dog , ( black ) isn 't here ."
    assert moses_tokenize("Über die Straße!", "de") == "über die straße !"
    assert moses_tokenize("Über die Straße!", "de", lowercase=False) == "Über die Straße !"
    assert (
        moses_tokenize("a & b < c black-and-white", "en") == "a & b < c black-and-white"
    )  # no escapes, no dash splits
    assert moses_tokenize("", "fr") == ""
    assert moses_detokenize("a man 's dog , ( black ) .", "en") == "a man's dog, (black)."
    assert moses_detokenize("&amp; so on", "en") == "&amp; so on"


# ---- bad input


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: load_multi30k("test"), "split='test'.*the splits are test_2016"),
        (lambda: load_multi30k("val", source="nl"), "source='nl'.*languages en, de, fr"),
        (lambda: load_multi30k("val", target="DE"), "target='DE'.*languages en"),
        (lambda: load_multi30k("val", "en", "en"), "two different ones"),
        (lambda: load_multi30k("val", directory="/nowhere"), "has no file multi30k/val.de.gz"),
        (lambda: moses_tokenize("a", "xx"), "language='xx' is unknown"),
        (lambda: moses_detokenize("a", ""), "language='' is unknown"),
    ],
)
def test_bad_input_names_the_thing(call, message):
    with pytest.raises((ValueError, TypeError, FileNotFoundError)) as caught:
        call()
    if not isinstance(caught.value, TypeCheckError) and not isinstance(caught.value.__cause__, TypeCheckError):
        assert re.search(message, str(caught.value))  # test_errors.py asks again, where annotations are not checked


# ---- writing


def test_a_link_is_replaced_and_the_mode_of_a_file_stays(tmp_path):
    real, link = tmp_path / "real.txt", tmp_path / "link.txt"
    real.write_bytes(b"old")
    real.chmod(0o600)
    link.symlink_to(real)
    write_atomically(link, b"new")
    assert not link.is_symlink() and link.read_bytes() == b"new" and real.read_bytes() == b"old"
    write_atomically(real, b"newer")
    assert real.read_bytes() == b"newer" and real.stat().st_mode & 0o777 == 0o600
    write_atomically(tmp_path / "a" / "b.txt", b"x")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a", "link.txt", "real.txt"]


def test_a_pipe_is_written_through(tmp_path):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    read: list[bytes] = []
    reader = threading.Thread(target=lambda: read.append(pipe.read_bytes()))
    reader.start()
    write_atomically(pipe, b"through")
    reader.join(10)
    assert read == [b"through"] and stat.S_ISFIFO(pipe.stat().st_mode)
    write_atomically("/dev/null", b"gone")
    assert stat.S_ISCHR(os.stat("/dev/null").st_mode)


def test_a_full_disk_names_the_file(tmp_path, monkeypatch):
    def full(_):
        raise OSError(28, "No space left on device")

    path = tmp_path / "model.bin"
    path.write_bytes(b"old")
    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match=r"No space left on device: .*model\.bin'"):
        write_atomically(path, b"new")
    assert path.read_bytes() == b"old" and list(tmp_path.iterdir()) == [path]
