"""`python -m inset_demo`, where it is asked wrongly."""

from __future__ import annotations

import sys

import pytest

from inset_demo import __main__ as demo


def test_picture_that_is_not_there_is_told_in_a_line_before_the_model_loads(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["inset_demo", "no-such.png"])
    with pytest.raises(SystemExit) as ended:
        demo.main()
    assert ended.value.code == 2
    said = capsys.readouterr()
    assert said.err.endswith("error: there is no file no-such.png\n")
    assert said.out == ""
