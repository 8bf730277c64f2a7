"""No part of the house grows unnoticed."""

import json
from pathlib import Path

import pytest
import size

TEXT = '"""Doc."""\n\nX = [\n    1,\n]  # one line\n# a comment\n\n\ndef f():\n    """Doc."""\n    return X\n'


def test_a_part_that_grows_is_refused_until_it_is_recorded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    for place in (*size.PARTS.values(), "book/_ext/deeper"):
        (tmp_path / place).mkdir(parents=True, exist_ok=True)
        (tmp_path / place / "one.py").write_text(TEXT, encoding="utf-8")
    counted = size.measure(tmp_path)
    assert counted == dict.fromkeys(size.PARTS, 3) | {"site": 6}
    monkeypatch.setattr(size, "measure", lambda: counted)
    monkeypatch.setattr(size, "MARKS", tmp_path / "size.json")
    assert size.main([]) == 1 and size.main(["--write"]) == 0 and size.main([]) == 0
    counted["plain"] += 1
    assert size.main([]) == 1 and "size: plain grew" in capsys.readouterr().out
    counted["plain"] -= 2
    assert size.main(["--write"]) == 0 and json.loads(size.MARKS.read_text())["plain"] == 2
