"""Tokens that are planned from a header, held against transformers and against the encoder, for sizes of all kinds."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
import torch

from inset.errors import InvalidRequestError
from inset.testing.family import FamilyBench
from inset.testing.headers import image_header, video_header
from inset_qwen_vl import plugin
from inset_qwen_vl.config import PixelConfig
from inset_qwen_vl.largest import QwenVLDummyInputs
from inset_qwen_vl.resizing import bound_squares, resize_image, resize_video

if TYPE_CHECKING:
    from inset.processing.processor import MultiModalProcessor


MakeProcessor = Callable[..., "MultiModalProcessor"]
FAMILIES = ["qwen2_vl", "qwen2_5_vl", "qwen3_vl"]


def random_sizes(count: int, seed: int) -> list[tuple[int, int]]:
    """Sizes of every order, every fifth of them thin."""
    rng = random.Random(seed)
    sizes = []
    for index in range(count):
        high = (60, 600, 5000)[index % 3]
        size = (rng.randint(1, high), rng.randint(1, high))
        if index % 5 == 0:
            short = rng.randint(1, 40)
            size = (short, rng.randint(short, 210 * short))
        sizes.append(size if rng.random() < 0.5 else size[::-1])
    return sizes


@pytest.mark.parametrize(("low", "high"), [(3136, 1003520), (3136, 12845056), (1, 784 * 9), (50176, 50176), (400_000, 12845056)])
@pytest.mark.parametrize("family", ["qwen2_vl", "qwen3_vl"])
def test_planned_counts_equal_transformers_for_random_sizes(make_processor: MakeProcessor, family: str, low: int, high: int) -> None:
    from transformers.models.qwen2_vl.image_processing_pil_qwen2_vl import Qwen2VLImageProcessorPil

    size = {"shortest_edge": low, "longest_edge": high}
    patch_size = 16 if family == "qwen3_vl" else 14
    theirs = Qwen2VLImageProcessorPil(patch_size=patch_size, size=size)
    ours = make_processor(family, image={"size": size})
    most = ours.info.max_tokens_per_item("image")
    for height, width in random_sizes(4000, seed=low % 97):
        if max(height, width) > 200 * min(height, width):
            with pytest.raises(InvalidRequestError, match="too thin"):
                ours.plan("image", image_header(height, width), options={})
            continue
        plan = ours.plan("image", image_header(height, width), options={})
        assert plan.num_tokens * 4 == theirs.get_number_of_image_patches(height, width, {}), (height, width)
        assert plan.num_tokens == plan.num_embeds
        assert plan.num_tokens <= most
        assert plan.is_exact


@pytest.mark.parametrize("capped", [False, True])
@pytest.mark.parametrize("family", ["qwen2_vl", "qwen3_vl"])
def test_planned_video_counts_equal_transformers_for_random_sizes(
    make_processor: MakeProcessor, take_function: Callable[[str, str], Any], family: str, capped: bool
) -> None:
    kind = "Qwen3VLVideoProcessor" if family == "qwen3_vl" else "Qwen2VLVideoProcessor"
    third = family == "qwen3_vl"
    smart_resize, count_patches = take_function(kind, "smart_resize"), take_function(kind, "get_num_of_video_patches")
    count_patches.__globals__["smart_resize"] = smart_resize
    size = {"shortest_edge": 4096, "longest_edge": 25165824} if third else {"shortest_edge": 100352, "longest_edge": 602112}
    theirs = SimpleNamespace(
        size=size,
        patch_size=16 if third else 14,
        merge_size=2,
        temporal_patch_size=2,
        cap_pixels_per_frame=capped,
        max_video_tokens=768 if third else 128000,
    )
    video = {"size": size, "cap_pixels_per_frame": capped, "patch_size": theirs.patch_size}
    ours = make_processor(family, video=video)
    rng = random.Random(3)
    for height, width in random_sizes(1000, seed=5):
        num_frames = rng.choice([2, 3, 4, 5, 7, 8, 32, 61, 100, 768])
        options: dict[str, Any] = {}
        if capped and not third:  # their count for Qwen2-VL forgets the cap that their resizing applies
            most = max(min(602112, int(128000 * 784 * 0.9) * 2 // num_frames), int(100352 * 1.05))
            options = {"size": {"shortest_edge": 100352, "longest_edge": most}}
        try:
            expected = count_patches(theirs, num_frames, height, width, options)
        except ValueError:
            with pytest.raises(InvalidRequestError, match="too thin"):
                ours.plan("video", video_header(num_frames, height, width), options={})
            continue
        plan = ours.plan("video", video_header(num_frames, height, width), options={})
        assert plan.num_embeds * 4 == expected, (num_frames, height, width)
        assert not plan.is_exact


@pytest.mark.parametrize("family", FAMILIES)
def test_rows_of_the_encoder_equal_the_planned_number_for_200_small_sizes(
    make_processor: MakeProcessor, tiny_checkpoint: Callable[..., Path], reference: Callable[..., Any], family: str
) -> None:
    processor = make_processor(family, folder=tiny_checkpoint(family))
    tower = reference(family).model.model.visual
    rng = random.Random(9)
    with torch.inference_mode():
        for _ in range(67):
            height, width = rng.randint(1, 120), rng.randint(1, 120)
            if max(height, width) > 200 * min(height, width):
                continue
            plan = processor.plan("image", image_header(height, width), options={})
            assert plan.grid is not None
            values = torch.zeros(plan.grid[1] * plan.grid[2], 3 * 2 * tower.config.patch_size**2)
            assert len(tower(values, torch.tensor([plan.grid])).pooler_output) == plan.num_embeds


@pytest.mark.parametrize("family", FAMILIES)
def test_the_largest_dummy_image_fills_the_most_tokens(make_processor: MakeProcessor, family: str) -> None:
    processor = make_processor(family)
    dummy_inputs = QwenVLDummyInputs(processor.info)
    item = dummy_inputs.make_largest_item(processor, "image")
    assert item.plan == dummy_inputs.get_largest_plan(processor, "image")
    assert item.plan.num_tokens == processor.info.max_tokens_per_item("image")
    assert sum(array.nbytes for array in item.tensors.values()) == item.plan.tensor_bytes


@pytest.mark.parametrize("family", FAMILIES)
def test_the_largest_dummy_video_fits_the_context(make_processor: MakeProcessor, family: str) -> None:
    video = {"size": {"shortest_edge": 1024, "longest_edge": 65536}, "max_frames": 64, "patch_size": 16 if family == "qwen3_vl" else 14}
    processor = make_processor(family, video=video, config={"text_config": {"hidden_size": 8, "max_position_embeddings": 1000}})
    item = QwenVLDummyInputs(processor.info).make_largest_item(processor, "video")
    assert 500 < item.plan.num_tokens <= 1000 or processor.info.max_tokens_per_item("video") < 1000
    assert sum(array.nbytes for array in item.tensors.values()) == item.plan.tensor_bytes


PIXELS = 5_000_000


def sizes_that_gain_from_rounding(squares: float, rng: random.Random) -> Iterator[tuple[int, int]]:
    """Sizes that become a little more than a few whole merged squares high when they are grown or shrunk to so many."""
    for _ in range(40):
        height, rows = rng.randint(1, 200), rng.randint(1, math.isqrt(int(squares)) + 2)
        yield height, min(200 * height, max(height, int(height * squares / rows**2) - rng.choice((0, 0, 1, -1))))
        yield height, 200 * height
    yield from random_sizes(40, seed=rng.randrange(100))


@pytest.mark.parametrize("shared", [False, True], ids=["each", "all frames share"])
def test_no_size_makes_more_squares_than_the_bound(shared: bool) -> None:
    rng = random.Random(4)
    for number in range(300):
        most = int(784 * 10 ** rng.uniform(0, 5))
        config = PixelConfig(
            patch_size=14,
            merge_size=2,
            temporal_patch_size=rng.choice((1, 2, 2, 3)),
            min_pixels=max(1, int(most * rng.choice((1, 1, 0.99, 0.9, 0.01)))),
            max_pixels=most,
            counts_all_frames=shared,
            cap_pixels_per_frame=number % 3 == 0,
            max_video_tokens=rng.choice((20, 768, 128000)),
            mean=(0.5,) * 3,
            std=(0.5,) * 3,
            scale=1 / 255,
        )
        num_frames = rng.choice((1, 2, 3, 5, 7, rng.randint(1, 768)))
        image, video = bound_squares(config), bound_squares(config, num_frames=num_frames)
        for pixels in (config.min_pixels, config.max_pixels):
            for size in sizes_that_gain_from_rounding(pixels / 784 / (num_frames if shared else 1), rng):
                if max(size) <= 200 * min(size):
                    assert math.prod(resize_image(size, config)) <= 784 * image, (size, config)
                    assert math.prod(resize_video(num_frames, size, config)) <= 784 * video, (size, num_frames, config)


@pytest.mark.parametrize("max_frames", [5, 8, 64, 768])
@pytest.mark.parametrize(
    "options",
    [{}, {"video": {"min_pixels": 100_000, "max_pixels": PIXELS}}, {"min_pixels": PIXELS - 123_456, "max_pixels": PIXELS}],
    ids=["plain", "operator's options", "hardly a choice"],
)
@pytest.mark.parametrize("family", ["qwen2_vl", "qwen3_vl"])
def test_no_video_takes_more_tokens_than_the_largest_whatever_its_number_of_frames(
    make_checkpoint: Callable[..., Any], family: str, options: dict[str, Any], max_frames: int
) -> None:
    """Where all frames share the pixels, 5 frames are resized as 4 and cut as 6."""
    patch_size = 16 if family == "qwen3_vl" else 14
    folder = make_checkpoint(family, video={"max_frames": max_frames, "patch_size": patch_size}).folder
    rng = random.Random(6)
    with FamilyBench(plugin, folder) as bench:
        built = bench.build(mm_processor_kwargs=options)
        processor, scoped = built.processor, built.processor.info.scope_processor_kwargs({})["video"]
        most = processor.info.max_tokens_per_item("video")
        for height, width in [
            (2050, 2932),
            *random_sizes(200, seed=8),
            *((short, 200 * short - rng.randint(0, 9)) for short in range(1, 60)),
        ]:
            if max(height, width) > 200 * min(height, width):
                continue
            for num_frames in {rng.randint(1, max_frames), rng.randint(1, 5)}:
                header = replace(video_header(num_frames, height, width), fps=rng.choice((0.02, 1.0, 24.0)))
                plan = processor.plan("video", header, options=scoped)
                assert plan.num_tokens <= most, (num_frames, height, width)
        assert built.dummy_inputs.get_largest_plan(processor, "video").num_tokens >= 0.75 * min(most, 32768)


@pytest.mark.parametrize("family", FAMILIES)
def test_the_largest_item_goes_by_the_options_of_the_operator(make_checkpoint: Callable[..., Any], family: str) -> None:
    with FamilyBench(plugin, make_checkpoint(family).folder) as bench:
        info, raised = bench.build().processor.info, bench.build(mm_processor_kwargs={"max_pixels": PIXELS}).processor.info
        for modality in ("image", "video"):
            side = 16 * 2 if family == "qwen3_vl" else 14 * 2
            assert raised.max_tokens_per_item(modality) > info.max_tokens_per_item(modality)
            assert raised.max_tokens_per_item(modality) >= PIXELS // side**2 * 0.99
        few = bench.build(media_io_kwargs={"video": {"fps": 1, "max_frames": 8}}).processor.info
        fixed = bench.build(media_io_kwargs={"video": {"num_frames": 8}}).processor.info
        assert few.max_tokens_per_item("video") == fixed.max_tokens_per_item("video") < info.max_tokens_per_item("video")
        assert few.max_tokens_per_item("image") == info.max_tokens_per_item("image")


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("modality", ["image", "video"])
def test_a_dummy_under_large_options_of_the_operator_still_fits_the_context(
    make_checkpoint: Callable[..., Any], family: str, modality: str
) -> None:
    checkpoint = make_checkpoint(family, config={"text_config": {"hidden_size": 8, "max_position_embeddings": 1000}})
    with FamilyBench(plugin, checkpoint.folder) as bench:
        built = bench.build(mm_processor_kwargs={"max_pixels": 2**32})
        plan = built.dummy_inputs.get_largest_plan(built.processor, modality)
    assert 500 < plan.num_tokens <= 1000
