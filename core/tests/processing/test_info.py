"""Tests of limits, option scoping, decoders and identity of a family."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from inset.checkpoint import Checkpoint
from inset.config import MediaConfig
from inset.errors import ConfigError, InvalidRequestError, ItemLimitError
from inset.media.image import ImageIO
from inset.processing.processor import MultiModalProcessor
from inset.processing.tokenizer import Tokenizer

MakeProcessor = Callable[..., MultiModalProcessor]


@pytest.mark.parametrize(
    ("limits", "expected"),
    [
        ({}, {"image": 999, "video": 3}),
        ({"image": 4, "video": 9}, {"image": 4, "video": 3}),
        ({"image": 0, "audio": 0}, {"image": 0, "video": 3}),
    ],
)
def test_limits_are_the_operators_capped_by_the_model(
    make_processor: MakeProcessor, limits: dict[str, int], expected: dict[str, int]
) -> None:
    info = make_processor(limit_mm_per_prompt=limits).info
    info.check_options()
    assert info.get_mm_limits() == expected


@pytest.mark.parametrize(
    ("counts", "message"),
    [
        ({"image": 3}, r"^At most 2 image\(s\) may be provided in one prompt\.$"),
        ({"video": 1}, r"^At most 0 video\(s\) may be provided in one prompt\.$"),
        ({"audio": 1}, "does not take audio input; it takes image, video"),
    ],
)
def test_too_many_items_are_refused_by_their_numbers_alone(make_processor: MakeProcessor, counts: dict[str, int], message: str) -> None:
    info = make_processor(limit_mm_per_prompt={"image": 2, "video": 0}).info
    info.check_mm_counts({"image": 2, "video": 0, "audio": 0})
    with pytest.raises(ItemLimitError, match=message) as caught:
        info.check_mm_counts(counts)
    assert (caught.value.status, caught.value.modality) == (400, next(iter(counts)))


@pytest.mark.parametrize("limits", [{"image": -1}, {"audio": 2}, {"imagee": 0}])
def test_limits_that_make_no_sense_are_refused_at_start(make_processor: MakeProcessor, limits: dict[str, int]) -> None:
    with pytest.raises(ConfigError, match="limit_mm_per_prompt"):
        make_processor(limit_mm_per_prompt=limits).info.check_options()


def test_options_reach_the_modalities_that_know_them(make_processor: MakeProcessor) -> None:
    info = make_processor(mm_processor_kwargs={"rows": 2, "image": {"bright": 1}}).info
    assert info.scope_processor_kwargs({}) == {"image": {"rows": 2, "bright": 1}, "video": {"rows": 2}}
    scoped = info.scope_processor_kwargs({"bright": 3, "video": {"rows": 5}})
    assert scoped == {"image": {"rows": 2, "bright": 3}, "video": {"rows": 5}}


@pytest.mark.parametrize(
    ("kwargs", "message"),
    [
        ({"dark": 1}, r"Unknown processor option\(s\): 'dark'\. Known: bright, rows\."),
        ({"video": {"bright": 1}}, r"option\(s\) for video: 'bright'\. Known: rows\."),
        ({"image": 3}, "must be an object"),
        ({"audio": {"x": 1}}, "audio"),
    ],
)
def test_an_unknown_option_is_refused_with_the_known_ones(make_processor: MakeProcessor, kwargs: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidRequestError, match=message):
        make_processor().info.scope_processor_kwargs(kwargs)
    with pytest.raises(ConfigError):
        make_processor(mm_processor_kwargs=kwargs).info.check_options()


def test_a_decoder_is_made_once_for_options_in_any_order(make_processor: MakeProcessor) -> None:
    info = make_processor(media_config=MediaConfig(media_io_kwargs={"image": {"image_mode": "RGB"}})).info
    first = info.get_media_io("image", {"rgba_background_color": [1, 2, 3]})
    assert isinstance(first, ImageIO)
    assert info.get_media_io("image", {"rgba_background_color": [1, 2, 3], "image_mode": "RGB"}) is first
    assert info.get_media_io("image") is not first
    with pytest.raises(InvalidRequestError):
        info.get_media_io("image", {"no_such_option": 1})
    with pytest.raises(ItemLimitError, match="does not take audio"):
        info.get_media_io("audio", {})


def test_many_different_options_keep_few_decoders(make_processor: MakeProcessor) -> None:
    info = make_processor().info
    for level in range(200):
        info.get_media_io("image", {"rgba_background_color": [level, 0, 0]})
    assert len(info._media_ios) <= 64


def test_the_fingerprint_tells_versions_distributions_and_configs_apart(make_processor: MakeProcessor) -> None:
    base = {"model_type": "tiny", "text_config": {"hidden_size": 4}}
    contexts: list[dict[str, Any]] = [
        {},
        {"version": "2"},
        {"distribution": "other"},
        {"checkpoint": Checkpoint(make_processor().info.checkpoint.folder, {**base, "x": 1})},
        {"checkpoint": Checkpoint(make_processor().info.checkpoint.folder, base, preprocessor_config={"size": 1})},
        {"checkpoint": Checkpoint(make_processor().info.checkpoint.folder, base, processor_config={"size": 1})},
    ]
    names = {make_processor(**context).fingerprint for context in contexts}
    assert len(names) == len(contexts)
    assert make_processor().fingerprint == make_processor().fingerprint


def test_what_hub_configs_leave_out_is_the_default_of_the_text_model(make_processor: MakeProcessor, tokenizer: Tokenizer) -> None:
    """Such as llava-1.5-7b, whose text_config names neither a width nor a number of layers."""
    checkpoint = Checkpoint(Path(), {"model_type": "tiny", "text_config": {"model_type": "llama", "vocab_size": 32064}})
    info = make_processor(checkpoint=checkpoint).info
    assert (info.hidden_size, info.embed_size, info.vocab_size) == (4096, 4096, 32064)
    bare = make_processor(checkpoint=Checkpoint(Path(), {"model_type": "tiny"})).info
    assert (bare.hidden_size, bare.vocab_size) == (4096, tokenizer.vocab_size)
