"""Tests of Qwen-VL's processing, held against transformers and its reference outputs."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch
from PIL import Image

from inset.errors import ConfigError, InvalidRequestError, ItemTooLargeError, PlaceholderError
from inset.media.decoded import VideoFrames
from inset.processing.inputs import ProcessorInputs
from inset.testing.headers import image_header, video_header
from inset_qwen_vl.config import read_pixel_config
from inset_qwen_vl.info import Qwen3VLProcessingInfo
from inset_qwen_vl.vision import PatchNormalizer

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from inset.processing.processor import MultiModalProcessor

MakeProcessor = Callable[..., "MultiModalProcessor"]
GOLDEN = Path(__file__).parent / "golden"
CASES = sorted(json.loads((GOLDEN / "index.json").read_text())["cases"])
FAMILIES = ["qwen2_vl", "qwen2_5_vl", "qwen3_vl"]
START, END, IMAGE, VIDEO = 3, 4, 5, 6
PROMPT = {"image": "<|vision_start|><|image_pad|><|vision_end|>", "video": "<|vision_start|><|video_pad|><|vision_end|>"}


def picture(height: int, width: int, seed: int = 0) -> NDArray[np.uint8]:
    rng = np.random.default_rng(seed)
    small = rng.integers(0, 256, (max(2, height // 9), max(2, width // 9), 3), dtype=np.uint8)
    return np.array(Image.fromarray(small).resize((width, height), Image.Resampling.BICUBIC))


def clip(num_frames: int, height: int, width: int, *, fps: float = 24.0, every: int = 1) -> VideoFrames:
    indices = tuple(range(0, num_frames * every, every))
    return VideoFrames(
        frames=np.stack([picture(height, width, seed) for seed in range(num_frames)]),
        total_num_frames=num_frames * every,
        fps=fps,
        duration_seconds=num_frames * every / fps,
        frame_indices=indices,
        timestamps_seconds=tuple(index / fps for index in indices),
    )


def materialize(processor: MultiModalProcessor, decoded: Any, **options: Any) -> dict[str, NDArray[Any]]:
    """Plans and materialises one item, and checks the plan against what came out."""
    if isinstance(decoded, VideoFrames):
        num_frames, height, width, _ = decoded.frames.shape
        header = video_header(num_frames, height, width)
    else:
        header = image_header(*decoded.shape[:2])
    plan = processor.plan(header.modality, header, options=options)
    tensors = dict(processor.materialize(header.modality, decoded, plan=plan, options=options))
    assert sum(array.nbytes for array in tensors.values()) == plan.tensor_bytes
    assert all(array.flags["C_CONTIGUOUS"] for array in tensors.values())
    return tensors


@pytest.mark.parametrize("case", CASES)
def test_normalised_patches_equal_the_reference_bit_for_bit(make_processor: MakeProcessor, case: str) -> None:
    golden = np.load(GOLDEN / f"{case}.npz")
    family = "qwen3_vl" if case.startswith("qwen3") else "qwen2_vl"
    processor = make_processor(family)
    options = json.loads(str(golden["options"]))
    modality = "video" if "frames" in golden else "image"
    if modality == "image":
        tensors = materialize(processor, golden["image"], min_pixels=options["min_pixels"], max_pixels=options["max_pixels"])
    else:
        num_frames = len(golden["frames"])
        video = clip(num_frames, 2, 2)
        frames = VideoFrames(
            frames=golden["frames"],
            total_num_frames=num_frames,
            fps=video.fps,
            duration_seconds=video.duration_seconds,
            frame_indices=video.frame_indices,
            timestamps_seconds=video.timestamps_seconds,
        )
        tensors = materialize(processor, frames)
    name, grid = ("pixel_values", "image_grid_thw") if modality == "image" else ("pixel_values_videos", "video_grid_thw")
    assert tensors[name].dtype == np.uint8
    assert tensors[grid].tolist() == golden[grid][0].tolist()
    expected = golden[name]
    assert tensors[name].nbytes * (8 if modality == "image" else 4) == expected.nbytes
    normalizer = PatchNormalizer(read_pixel_config(processor.info.checkpoint, modality), device=torch.device("cpu"), dtype=torch.float32)
    np.testing.assert_array_equal(normalizer.normalize(torch.from_numpy(tensors[name])).numpy(), expected)


def test_a_still_of_fewer_frames_than_a_patch_is_as_large_as_one_repeated(make_processor: MakeProcessor) -> None:
    processor = make_processor("qwen3_vl")
    one, two = (processor.plan("video", video_header(count, 90, 70), options={}) for count in (1, 2))
    assert one.grid == two.grid
    pixels = materialize(processor, clip(1, 90, 70))["pixel_values_videos"]
    np.testing.assert_array_equal(pixels[:, 0], pixels[:, 1])


@pytest.mark.parametrize(("height", "width"), [(480, 640), (640, 479), (97, 71), (20, 900), (1300, 40), (1, 150)])
def test_pixels_are_close_to_those_of_the_installed_processor(make_processor: MakeProcessor, height: int, width: int) -> None:
    """transformers runs on Pillow here, whose filter differs by rounding; patches in another order would differ by far more."""
    from transformers.models.qwen2_vl.image_processing_pil_qwen2_vl import Qwen2VLImageProcessorPil

    theirs = Qwen2VLImageProcessorPil()
    pixels = picture(height, width)
    expected = theirs(images=Image.fromarray(pixels), return_tensors="np")
    processor = make_processor()
    tensors = materialize(processor, pixels)
    config = read_pixel_config(processor.info.checkpoint, "image")
    normalizer = PatchNormalizer(config, device=torch.device("cpu"), dtype=torch.float32)
    ours = normalizer.normalize(torch.from_numpy(tensors["pixel_values"])).numpy()
    assert tensors["image_grid_thw"].tolist() == np.asarray(expected["image_grid_thw"])[0].tolist()
    levels = np.abs(ours - expected["pixel_values"]).reshape(len(ours), 3, -1) * np.array(config.std)[:, None] * 255
    assert levels.max() <= 3.01
    assert levels.mean() < 0.2


@pytest.mark.parametrize("family", FAMILIES)
def test_a_prompt_with_images_expands_each_image_token(make_processor: MakeProcessor, family: str) -> None:
    processor = make_processor(family)
    prompt = processor.apply(
        ProcessorInputs(
            request_id="a",
            prompt=f"{PROMPT['image']}what{PROMPT['image']}?",
            mm_data={"image": [picture(40, 60), Image.fromarray(picture(300, 90))]},
        )
    )
    tokens = [plan.num_tokens for plan in prompt.mm_plans["image"]]
    assert list(prompt.prompt_token_ids).count(IMAGE) == sum(tokens)
    assert [(r.offset, r.length, r.is_embed) for r in prompt.mm_placeholders["image"]] == [
        (1, tokens[0], None),
        (1 + tokens[0] + 1 + 4 + 1, tokens[1], None),
    ]


@pytest.mark.parametrize(("text", "num_images"), [(PROMPT["image"], 0), (PROMPT["image"], 2), ("no marker", 1), (PROMPT["video"], 1)])
def test_other_numbers_of_markers_and_images_are_refused(make_processor: MakeProcessor, text: str, num_images: int) -> None:
    inputs = ProcessorInputs(request_id="a", prompt=text, mm_data={"image": [picture(20, 20)] * num_images})
    with pytest.raises(PlaceholderError):
        make_processor().apply(inputs)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"min_pixels": 0}, "min_pixels must be"),
        ({"max_pixels": "many"}, "max_pixels must be"),
        ({"max_pixels": True}, "max_pixels must be"),
        ({"min_pixels": 5000, "max_pixels": 4000}, "min_pixels is 5000 and max_pixels 4000"),
        ({"max_pixels": 100}, "min_pixels is 3136 and max_pixels 100"),
        ({"size": {"height": 5}}, "size must be"),
        ({"size": 5}, "size must be"),
        ({"resample": 1}, "resample must be"),
        ({"resample": [3]}, "resample must be"),
        ({"min_pixels": 10**300, "max_pixels": 10**301}, "min_pixels must be a whole number from 1 to 4294967296, not 1000"),
        ({"max_pixels": 2**32 + 1}, "max_pixels must be"),
        ({"size": {"shortest_edge": 1, "longest_edge": 10**20}}, "max_pixels must be"),
    ],
)
def test_wrong_options_are_refused_before_anything_is_decoded(make_processor: MakeProcessor, options: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidRequestError, match=message):
        make_processor().plan("image", image_header(90, 90), options=options)


@pytest.mark.parametrize("family", ["qwen2_vl", "qwen3_vl"])
@pytest.mark.parametrize("modality", ["image", "video"])
def test_an_item_that_no_context_holds_is_refused_before_its_tokens_are_made(
    make_processor: MakeProcessor, family: str, modality: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    processor = make_processor(family)
    monkeypatch.setattr(type(processor.info), "make_content", None)  # gigabytes of tokens, were it called
    media = np.zeros((64, 64, 3), np.uint8) if modality == "image" else np.zeros((2, 64, 64, 3), np.uint8)
    inputs = ProcessorInputs(
        request_id="a",
        prompt=PROMPT[modality],
        mm_data={modality: [media]},
        mm_processor_kwargs={modality: {"min_pixels": 2**32, "max_pixels": 2**32}},
    )
    with pytest.raises(ItemTooLargeError, match=r"It takes \d+ tokens .* and the context holds 32768") as caught:
        processor.apply(inputs)
    assert (caught.value.modality, caught.value.item_index, caught.value.stage) == (modality, 0, "plan")


def test_unknown_options_are_refused_by_name(make_processor: MakeProcessor) -> None:
    inputs = ProcessorInputs(request_id="a", prompt="x", mm_processor_kwargs={"max_pixel": 5})
    with pytest.raises(InvalidRequestError, match=r"'max_pixel'.*Known: max_pixels, min_pixels, resample, size"):
        make_processor().apply(inputs)


@pytest.mark.parametrize("family", ["qwen2_vl", "qwen3_vl"])
def test_size_and_pixel_options_mean_the_same(make_processor: MakeProcessor, family: str) -> None:
    processor = make_processor(family)
    header = image_header(700, 500)
    by_size = processor.plan("image", header, options={"size": {"shortest_edge": 1000, "longest_edge": 50176}})
    assert by_size == processor.plan("image", header, options={"min_pixels": 1000, "max_pixels": 50176})
    assert by_size.num_tokens < processor.plan("image", header, options={}).num_tokens


@pytest.mark.parametrize(
    ("parts", "message"),
    [
        ({"image": {"image_processor_type": "CLIPImageProcessor"}}, "'CLIPImageProcessor' is not a processor of images"),
        ({"video": {"video_processor_type": "LlavaVideoProcessor"}}, "is not a processor of videos"),
        ({"image": {"do_resize": False}}, "does not resize"),
        ({"image": {"min_pixels": 5000, "max_pixels": 4000}}, "at least 5000 and at most 4000"),
        ({"image": {"size": 7}}, "size of the preprocessor config"),
        ({"image": {"patch_size": 16}, "config": {"vision_config": {"patch_size": 14}}}, "patch_size 16, and the vision tower"),
        ({"image": {"resample": 1}}, "resample must be"),
        ({"image": {"min_pixels": "few"}}, "preprocessor config for images of the checkpoint .* 'few'"),
        ({"video": {"fps": 0}}, "cannot be sampled"),
        ({"video": {"fps": "slow"}}, "no number: .*'slow'"),
        ({"video": {"num_frames": 65_537}}, "cannot be sampled"),
        ({"video": {"min_frames": 9, "max_frames": 8}}, "cannot be sampled"),
        ({"config": {"image_token_id": "<image>"}}, "no token id"),
    ],
)
def test_a_checkpoint_that_cannot_be_served_is_refused_at_start(make_processor: MakeProcessor, parts: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        make_processor(**parts)


def test_a_checkpoint_without_a_config_for_videos_uses_that_for_images(make_processor: MakeProcessor) -> None:
    processor = make_processor(image={"min_pixels": 3136, "max_pixels": 12845056}, video={})
    plan = processor.plan("video", video_header(2, 2000, 2000), options={})
    assert plan.num_tokens == processor.plan("image", image_header(2000, 2000), options={}).num_tokens > 768


@pytest.mark.parametrize("modality", ["image", "video"])
def test_the_placeholder_text_is_what_the_chat_template_writes(make_processor: MakeProcessor, modality: str) -> None:
    assert make_processor().info.get_placeholder_text(modality, 3) == PROMPT[modality]


# Videos


def test_a_video_keeps_the_seconds_between_its_steps(make_processor: MakeProcessor) -> None:
    processor = make_processor("qwen2_5_vl")
    plan = processor.plan("video", video_header(8, 56, 84, fps=24.0, every=12), options={})
    assert plan.details == {"second_per_grid_ts": pytest.approx(1.0)}
    unknown = processor.plan("video", video_header(8, 56, 84, fps=None), options={})
    assert unknown.details == {"second_per_grid_ts": pytest.approx(2 / 24)}


def test_each_step_of_a_third_generation_video_has_its_time_before_it(make_processor: MakeProcessor) -> None:
    processor = make_processor("qwen3_vl")
    assert isinstance(processor.info, Qwen3VLProcessingInfo)
    plan = processor.plan("video", video_header(5, 96, 128, fps=10.0, every=5), options={})
    assert plan.grid is not None
    per_step = plan.num_embeds // 3
    content = processor.info.make_content("video", plan.num_embeds, plan.details)
    stamps = [processor.info.tokenizer.encode(f"<{seconds} seconds>") for seconds in ("0.2", "1.2", "2.0")]
    expected = [token for stamp in stamps for token in (*stamp, START, *[VIDEO] * per_step, END)]
    assert list(content.token_ids) == expected
    assert plan.num_tokens == len(expected)
    is_embed = np.zeros(len(expected), bool)
    for start, stop in plan.is_embed or ():
        is_embed[start:stop] = True
    assert [token == VIDEO for token in expected] == is_embed.tolist()
    assert plan.grid == (3, plan.grid[1], plan.grid[2])


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("num_frames", [1, 2, 3, 8])
def test_an_odd_frame_is_repeated_to_fill_its_patch(make_processor: MakeProcessor, family: str, num_frames: int) -> None:
    processor = make_processor(family)
    tensors = materialize(processor, clip(num_frames, 64, 48))
    steps = (num_frames + 1) // 2
    assert tensors["video_grid_thw"][0] == steps
    last = tensors["pixel_values_videos"][-(len(tensors["pixel_values_videos"]) // steps) :]
    assert np.array_equal(last[:, 0], last[:, 1]) == (num_frames % 2 == 1)


# Embeddings


@pytest.mark.parametrize("family", FAMILIES)
def test_embeddings_come_with_their_grid(make_processor: MakeProcessor, family: str) -> None:
    processor = make_processor(family)
    width = processor.info.embed_size
    embeds = [np.ones((6, width), np.float32), np.zeros((2, width), np.float32)]
    grids = np.array([[1, 4, 6], [1, 2, 4]])
    prompt = processor.apply(
        ProcessorInputs(request_id="a", prompt=PROMPT["image"] * 2, mm_data={"image": {"image_embeds": embeds, "image_grid_thw": grids}})
    )
    assert [plan.grid for plan in prompt.mm_plans["image"]] == [(1, 4, 6), (1, 2, 4)]
    assert [r.length for r in prompt.mm_placeholders["image"]] == [6, 2]


def test_video_embeddings_bring_their_times(make_processor: MakeProcessor) -> None:
    def plan(family: str, **fields: Any) -> Any:
        processor = make_processor(family)
        embeds = np.ones((2 * 6, processor.info.embed_size), np.float32)
        return processor.plan_embeds("video", embeds, fields={"video_grid_thw": np.array([2, 4, 6]), **fields})

    assert plan("qwen2_vl").details == {}
    assert plan("qwen2_5_vl").details == {"second_per_grid_ts": 1.0}
    assert plan("qwen2_5_vl", second_per_grid_ts=np.array(0.5)).details == {"second_per_grid_ts": 0.5}
    stamped = plan("qwen3_vl", timestamps=np.array([0.25, 1.25]))
    assert stamped.num_embeds == 12
    assert stamped.is_embed is not None
    assert len(stamped.is_embed) == 2
    for family, fields, message in (
        ("qwen2_5_vl", {"second_per_grid_ts": np.array([1.0, 2.0])}, "one number above 0"),
        ("qwen2_5_vl", {"second_per_grid_ts": np.array(np.nan)}, "finite"),
        ("qwen3_vl", {}, "must hold 2 seconds"),
        ("qwen3_vl", {"timestamps": np.array([1.0])}, "must hold 2 seconds"),
    ):
        with pytest.raises(InvalidRequestError, match=message):
            plan(family, **fields)


@pytest.mark.parametrize(
    ("grid", "message"),
    [
        (None, "need 'image_grid_thw'"),
        (np.array([1.0, 4.0, 6.0]), "need 'image_grid_thw'"),
        (np.array([4, 6]), "need 'image_grid_thw'"),
        (np.array([1, 3, 8]), "multiples of 2"),
        (np.array([0, 4, 6]), "multiples of 2"),
        (np.array([1, 4, 8]), "makes 8 embeddings, and there are 6"),
    ],
)
def test_embeddings_with_a_wrong_grid_are_refused(make_processor: MakeProcessor, grid: Any, message: str) -> None:
    fields = {} if grid is None else {"image_grid_thw": grid}
    with pytest.raises(InvalidRequestError, match=message):
        make_processor().plan_embeds("image", np.ones((6, 8), np.float32), fields=fields)
