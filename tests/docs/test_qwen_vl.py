"""The page about Qwen-VL says what the plugin does."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import torch

from inset_qwen_vl.config import PixelConfig, SamplingConfig
from inset_qwen_vl.info import Qwen2VLProcessingInfo
from inset_qwen_vl.resizing import resize_image

PAGE = (Path(__file__).parent.parent.parent / "docs" / "how-to" / "qwen-vl.md").read_text("utf-8")
ROWS = re.findall(r"^\| (\d+)x(\d+) \| ([\d,]+) \| ([\d,]+) \|$", PAGE, re.MULTILINE)


@pytest.mark.parametrize(("width", "height", "second", "third"), ROWS)
def test_the_table_counts_tokens_as_real_checkpoints_do(width: str, height: str, second: str, third: str) -> None:
    for told, patch_size, limits in ((second, 14, (3136, 12845056)), (third, 16, (65536, 16777216))):
        config = PixelConfig(
            patch_size=patch_size,
            merge_size=2,
            temporal_patch_size=2,
            min_pixels=limits[0],
            max_pixels=limits[1],
            mean=(0.5,) * 3,
            std=(0.5,) * 3,
            scale=1 / 255,
        )
        rows, columns = resize_image((int(height), int(width)), config)
        assert int(told.replace(",", "")) == rows * columns // config.factor**2


def test_every_option_is_on_the_page() -> None:
    assert len(ROWS) == 3
    options = Qwen2VLProcessingInfo.processor_options(object.__new__(Qwen2VLProcessingInfo), "video")
    for name in (*options, "fps", "num_frames", "min_frames", "max_frames"):
        assert re.search(rf"^\|.*`{name}`.*\|", PAGE, re.MULTILINE), name


def test_the_defaults_of_sampling_are_those_that_the_page_tells() -> None:
    config = SamplingConfig()
    assert (config.fps, config.min_frames, config.max_frames) == (2.0, 4, 768)
    assert "Two a second, at least 4 and at most 768" in PAGE


def test_question_about_a_clip_is_answered_as_the_page_says(capsys: pytest.CaptureFixture[str]) -> None:
    torch.set_num_threads(1)
    [example] = re.findall(r"```python\n(from [^`]*LLM\(\"shapes-qwen-vl\"\).*?)```", PAGE, re.DOTALL)
    exec(example, {})  # noqa: S102 - the page's own code
    [said] = re.findall(r"print\(.*\)  # (\w+)", example)
    assert capsys.readouterr().out.strip() == said
