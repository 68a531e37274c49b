"""What every request would be refused for is refused when a processor is built."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from inset.config import MediaConfig
from inset.errors import ConfigError
from inset.processing.operator_options import check_operator_options
from inset.processing.processor import MultiModalProcessor

MakeProcessor = Callable[..., MultiModalProcessor]


@pytest.mark.parametrize(
    ("context", "message"),
    [
        ({"mm_processor_kwargs": {"rows": 0}}, "mm_processor_kwargs for images: .*rows must be at least 1"),
        ({"mm_processor_kwargs": {"video": {"rows": "many"}}}, "mm_processor_kwargs for videos: .*rows must be at least 1"),
        ({"mm_processor_kwargs": {"dark": 1}}, "Unknown processor option"),
        ({"media_config": MediaConfig(media_io_kwargs={"image": {"zoom": 2}})}, "media_io_kwargs: .*zoom"),
        ({"media_config": MediaConfig(media_io_kwargs={"image": {"image_mode": 7}})}, "media_io_kwargs: .*image_mode"),
        (
            {"media_config": MediaConfig(media_io_kwargs={"movie": {}})},
            "media_io_kwargs names 'movie'; the modalities are image, video, audio",
        ),
        ({"limit_mm_per_prompt": {"imagee": 0}}, "limit_mm_per_prompt names 'imagee'"),
    ],
)
def test_an_option_that_every_item_would_be_refused_for_is_refused_at_start(
    make_processor: MakeProcessor, context: dict[str, Any], message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        check_operator_options(make_processor(**context))


def test_options_of_a_modality_that_is_disabled_or_not_decoded_here_are_let_be(make_processor: MakeProcessor) -> None:
    options = {"image": {"zoom": 2}, "video": {"no decoder": 1}, "audio": {"rate": 1}}
    context: dict[str, Any] = {"media_config": MediaConfig(media_io_kwargs=options), "mm_processor_kwargs": {"image": {"rows": 0}}}
    check_operator_options(make_processor(limit_mm_per_prompt={"image": 0}, **context))
    with pytest.raises(ConfigError):
        check_operator_options(make_processor(**context))


def test_options_that_make_a_small_item_larger_than_the_context_are_refused_at_start(make_processor: MakeProcessor) -> None:
    kwargs = {"image": {"rows": 10}}
    check_operator_options(make_processor(mm_processor_kwargs=kwargs, max_model_len=90))
    with pytest.raises(ConfigError, match="a small image of 64x64 pixels take 90 tokens, and the context holds 89"):
        check_operator_options(make_processor(mm_processor_kwargs=kwargs, max_model_len=89))
