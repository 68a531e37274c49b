"""The code of the page on embedding the core runs, from top to bottom, with a tiny checkpoint and a picture that needs no network."""

from __future__ import annotations

import base64
import re
from pathlib import Path
from typing import Any

import pytest

from inset.testing.sample_images import encode_image, make_pixels
from inset.testing.tiny_checkpoints import build_tiny_llava

PAGE = (Path(__file__).parents[2] / "docs" / "how-to" / "embed-the-core.md").read_text("utf-8")


def test_code_of_the_page_runs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    url = "data:image/png;base64," + base64.b64encode(encode_image(make_pixels(40, 30), "PNG")).decode()
    code = "\n".join(re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL))
    code = code.replace('"shapes-llava"', repr(str(build_tiny_llava(tmp_path)))).replace('"llava", "demo"', '"llava"')
    code = code.replace("https://example.org/cat.png", url)
    names: dict[str, Any] = {}
    exec(compile(code, "embed-the-core.md", "exec"), names)  # noqa: S102  # our own page
    assert list(names["planned"].prompt_token_ids) == list(names["prompt"].prompt_token_ids)
    assert set(names["inputs"]) == {"input_ids", "attention_mask", "pixel_values"}
    printed = capsys.readouterr().out
    assert "image " in printed
    assert "400 media_not_allowed messages[0].content[0]" in printed
