from __future__ import annotations

import base64
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest
from PIL import Image

from inset import LLM, SamplingParams
from inset.testing.sample_images import encode_image, make_pixels


def test_transformers_answers_as_our_own_engine_does(
    load_example: Callable[[str], ModuleType], tiny_llava_folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    example = load_example("plain_transformers")
    pixels = make_pixels(40, 30)
    url = "data:image/png;base64," + base64.b64encode(encode_image(pixels, "PNG")).decode()
    example.main(str(tiny_llava_folder), "What?", url)
    printed = capsys.readouterr().out.removesuffix("\n")
    with LLM(tiny_llava_folder, engine_threads=1) as llm:
        content = [{"type": "image", "image": Image.fromarray(pixels)}, {"type": "text", "text": "What?"}]
        (output,) = llm.chat([{"role": "user", "content": content}], SamplingParams(temperature=0, max_tokens=32))
    assert printed == output.outputs[0].text
