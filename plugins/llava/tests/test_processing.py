"""Tests of LLaVA's processing, held against transformers and its reference outputs."""

from __future__ import annotations

import io
import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from PIL import Image

from inset.config import MediaConfig
from inset.errors import ConfigError, InvalidRequestError, PlaceholderError, TooLargeError
from inset.media.budget import ProcessBudget, RequestBudget
from inset.media.header import MediaHeader
from inset.processing.inputs import ProcessorInputs
from inset_llava.config import read_image_config
from inset_llava.processing import LlavaDummyInputs, LlavaNextProcessor, LlavaProcessor

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from inset.processing.processor import MultiModalProcessor

MakeProcessor = Callable[..., "MultiModalProcessor"]
GOLDEN = Path(__file__).parent / "golden"
CASES = sorted(json.loads((GOLDEN / "index.json").read_text())["cases"])
IMAGE_TOKEN = 3


def normalize(pixels: NDArray[np.uint8], config: dict[str, Any]) -> NDArray[np.float32]:
    """What the encoder does with uint8 pixels ``(..., height, width, 3)``; channels come first in the result."""
    import torch

    scale = 1 / config.get("rescale_factor", 1 / 255)
    mean, std = torch.tensor(config["image_mean"]) * scale, torch.tensor(config["image_std"]) * scale
    values = (torch.from_numpy(pixels.copy()).float() - mean) / std
    return np.moveaxis(values.numpy(), -1, -3)


def picture(height: int, width: int, seed: int = 0) -> NDArray[np.uint8]:
    rng = np.random.default_rng(seed)
    small = rng.integers(0, 256, (max(2, height // 9), max(2, width // 9), 3), dtype=np.uint8)
    return np.array(Image.fromarray(small).resize((width, height), Image.Resampling.BICUBIC))


def header(height: int, width: int) -> MediaHeader:
    return MediaHeader(modality="image", height=height, width=width, decoded_bytes=3 * height * width)


def materialize(processor: Any, pixels: NDArray[np.uint8], **options: Any) -> dict[str, NDArray[Any]]:
    plan = processor.plan("image", header(*pixels.shape[:2]), options=options)
    tensors = dict(processor.materialize("image", pixels, plan=plan, options=options))
    assert sum(array.nbytes for array in tensors.values()) == plan.tensor_bytes
    assert all(array.flags["C_CONTIGUOUS"] and array.base is None for array in tensors.values())
    return tensors


@pytest.mark.parametrize("case", CASES)
def test_normalised_pixels_equal_the_reference_bit_for_bit(
    make_processor: MakeProcessor, preprocessor_configs: dict[str, dict[str, Any]], case: str
) -> None:
    golden = np.load(GOLDEN / f"{case}.npz")
    tensors = materialize(make_processor(), golden["image"])
    assert tensors["pixel_values"].dtype == np.uint8
    np.testing.assert_array_equal(normalize(tensors["pixel_values"], preprocessor_configs["clip"]), golden["pixel_values"])


def test_reference_pictures_are_what_the_script_makes() -> None:
    import importlib.util

    spec = importlib.util.spec_from_file_location("golden_make", GOLDEN / "make.py")
    assert spec is not None
    assert spec.loader is not None
    make = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(make)
    seed = json.loads((GOLDEN / "index.json").read_text())["seed"]
    for (height, width), made in make.make_pictures(seed).items():
        np.testing.assert_array_equal(made, np.load(GOLDEN / f"clip336_{height}x{width}.npz")["image"])


@pytest.mark.parametrize(("height", "width"), [(336, 336), (480, 640), (640, 479), (97, 71), (1, 40), (1500, 336), (337, 335)])
@pytest.mark.parametrize("kind", ["clip", "siglip", "llava"])
def test_pixels_are_close_to_those_of_the_installed_processors(
    make_processor: MakeProcessor, preprocessor_configs: dict[str, dict[str, Any]], kind: str, height: int, width: int
) -> None:
    """transformers runs on Pillow here, whose filter differs by rounding; a shifted crop or padding would differ by far more."""
    import transformers

    config = preprocessor_configs[kind]
    class_name = config["image_processor_type"] + "Pil"
    theirs = getattr(transformers, class_name)(**{k: v for k, v in config.items() if k != "image_processor_type"})
    pixels = picture(height, width)
    expected = theirs(images=Image.fromarray(pixels), return_tensors="np")["pixel_values"][0]
    vision = {"image_size": expected.shape[-1]}
    tensors = materialize(make_processor(preprocessor=config, vision=vision), pixels)
    ours = normalize(tensors["pixel_values"], config)
    levels = np.abs(ours - expected) * np.array(config["image_std"])[:, None, None] * 255
    assert ours.shape == expected.shape
    assert levels.max() <= 3.01
    assert levels.mean() < 0.2


@pytest.mark.parametrize(("height", "width"), [(336, 336), (480, 640), (640, 479), (97, 71), (20, 900), (1300, 40), (2000, 2100)])
def test_tiles_are_close_to_those_of_the_installed_processor(
    make_processor: MakeProcessor, preprocessor_configs: dict[str, dict[str, Any]], height: int, width: int
) -> None:
    import transformers

    config = preprocessor_configs["next"]
    theirs = transformers.LlavaNextImageProcessorPil(**{k: v for k, v in config.items() if k != "image_processor_type"})
    pixels = picture(height, width)
    expected = theirs(images=Image.fromarray(pixels), return_tensors="np")
    tensors = materialize(make_processor("llava_next"), pixels)
    ours = normalize(tensors["pixel_values"], config)
    levels = np.abs(ours - expected["pixel_values"][0]) * np.array(config["image_std"])[:, None, None] * 255
    assert ours.shape == expected["pixel_values"][0].shape
    assert levels.max() <= 3.01
    assert levels.mean() < 0.2
    assert tensors["image_sizes"].tolist() == [height, width] == np.asarray(expected["image_sizes"])[0].tolist()


@pytest.mark.parametrize("strategy", ["default", "full"])
@pytest.mark.parametrize("siglip", [False, True])
def test_placeholder_counts_equal_transformers_for_random_sizes(make_processor: MakeProcessor, strategy: str, siglip: bool) -> None:
    import transformers

    additional = 0 if siglip else 1
    settings = {"patch_size": 14, "num_additional_image_tokens": additional, "vision_feature_select_strategy": strategy}
    ours = make_processor("llava_next", processor=settings)
    theirs = transformers.LlavaNextProcessor.__new__(transformers.LlavaNextProcessor)
    for name, value in settings.items():
        setattr(theirs, name, value)
    pinpoints = [list(size) for size in ours.info.pinpoints]  # type: ignore[attr-defined]
    theirs.image_processor = transformers.LlavaNextImageProcessorPil(image_grid_pinpoints=pinpoints)
    random_ = random.Random(20)
    for index in range(1250):
        high = (60, 600, 5000)[index % 3]
        height, width = (random_.randint(1, high) for _ in range(2))
        if index % 5 == 0:
            height, width = (random_.randint(1, 4), random_.randint(100, 8000))[:: random_.choice([1, -1])]
        expected = theirs._get_number_of_features(height, width, 336, 336) - (strategy == "default")
        plan = ours.plan("image", header(height, width), options={})
        assert plan.num_tokens == plan.num_embeds == expected, (height, width)
        assert plan.num_tokens <= ours.info.max_tokens_per_item("image")


@pytest.mark.parametrize(
    ("vision", "processor", "expected"),
    [
        ({}, None, 576),
        ({}, {"patch_size": 14, "num_additional_image_tokens": 1, "vision_feature_select_strategy": "full"}, 577),
        ({}, {}, 576),
        ({"model_type": "siglip_vision_model"}, {"vision_feature_select_strategy": "full"}, 576),
        ({"model_type": "siglip_vision_model"}, {}, 575),
    ],
)
def test_every_image_takes_the_rows_of_the_tower(
    make_processor: MakeProcessor, vision: dict[str, Any], processor: dict[str, Any] | None, expected: int
) -> None:
    ours = make_processor(vision=vision, processor=processor)
    for height, width in ((1, 1), (336, 336), (4000, 30)):
        assert ours.plan("image", header(height, width), options={}).num_tokens == expected
    assert ours.info.max_tokens_per_item("image") == expected


def test_the_largest_intermediate_of_a_thin_image_is_in_its_plan_and_refused_by_the_budget(make_processor: MakeProcessor) -> None:
    processor = make_processor()
    plan = processor.plan("image", header(1, 4000), options={})
    assert plan.peak_bytes > 336 * 336 * 4000 * 3
    encoded = io.BytesIO()
    Image.new("RGB", (4000, 1)).save(encoded, "PNG")
    with RequestBudget(MediaConfig(), ProcessBudget(4 * 1024**3)) as budget:
        inputs = ProcessorInputs(request_id="thin", prompt="<image>", mm_data={"image": encoded.getvalue()}, budget=budget)
        with pytest.raises(TooLargeError) as caught:
            processor.apply(inputs)
    assert (caught.value.status, caught.value.modality, caught.value.item_index) == (413, "image", 0)


@pytest.mark.parametrize("model_type", ["llava", "llava_next"])
def test_the_largest_dummy_item_fills_the_most_tokens(make_processor: MakeProcessor, model_type: str) -> None:
    processor = make_processor(model_type)
    dummy_inputs = LlavaDummyInputs(processor.info)
    item = dummy_inputs.make_largest_item(processor, "image")
    assert item.plan == dummy_inputs.get_largest_plan(processor, "image")
    assert item.plan.num_tokens == processor.info.max_tokens_per_item("image")
    assert sum(array.nbytes for array in item.tensors.values()) == item.plan.tensor_bytes


def test_a_prompt_with_images_expands_each_image_token(make_processor: MakeProcessor) -> None:
    processor = make_processor("llava_next")
    images = [picture(40, 60), Image.fromarray(picture(700, 90))]
    prompt = processor.apply(ProcessorInputs(request_id="a", prompt="<image>what<image>?", mm_data={"image": images}))
    tokens = [plan.num_tokens for plan in prompt.mm_plans["image"]]
    assert list(prompt.prompt_token_ids).count(IMAGE_TOKEN) == sum(tokens)
    assert [(r.offset, r.length) for r in prompt.mm_placeholders["image"]] == [(0, tokens[0]), (tokens[0] + 4, tokens[1])]
    assert prompt.num_tokens_by_modality == {"image": sum(tokens)}
    for item in prompt.mm_kwargs["image"]:
        assert item is not None
        assert not item["pixel_values"].flags.writeable


@pytest.mark.parametrize(("text", "num_images"), [("<image>", 0), ("<image>", 2), ("no marker", 1)])
def test_other_numbers_of_markers_and_images_are_refused(make_processor: MakeProcessor, text: str, num_images: int) -> None:
    inputs = ProcessorInputs(request_id="a", prompt=text, mm_data={"image": [picture(20, 20)] * num_images})
    with pytest.raises(PlaceholderError):
        make_processor().apply(inputs)


def test_options_are_checked_before_anything_is_decoded(
    make_processor: MakeProcessor, preprocessor_configs: dict[str, dict[str, Any]]
) -> None:
    clip = make_processor()
    assert clip.info.processor_options("image") == {"resample"}
    with pytest.raises(InvalidRequestError, match="resample must be"):
        clip.plan("image", header(9, 9), options={"resample": 1})
    llava = make_processor(preprocessor=preprocessor_configs["llava"])
    with pytest.raises(InvalidRequestError, match="do_pad must be"):
        llava.plan("image", header(9, 9), options={"do_pad": "yes"})
    square = materialize(llava, picture(40, 80))["pixel_values"]
    assert square[0, 0].tolist() == [int(value * 255) for value in preprocessor_configs["llava"]["image_mean"]]
    unscaled = make_processor(preprocessor={**preprocessor_configs["llava"], "do_normalize": False})
    np.testing.assert_array_equal(materialize(unscaled, picture(40, 80))["pixel_values"], square, "the padding stays the mean")
    assert llava.info.processor_options("image") == {"do_pad", "resample"}
    fixed = make_processor(preprocessor={**preprocessor_configs["llava"], "do_center_crop": False})
    assert fixed.info.processor_options("image") == {"resample"}, "without the square an image's size would depend on its sides"
    cropped = materialize(llava, picture(40, 80), do_pad=False)["pixel_values"]
    np.testing.assert_array_equal(cropped, materialize(clip, picture(40, 80))["pixel_values"])


@pytest.mark.parametrize(
    ("model_type", "change", "message"),
    [
        ("llava", {"image_processor_type": "PixtralImageProcessor"}, "not an image processor"),
        ("llava_next", {"image_processor_type": "CLIPImageProcessor"}, "not an image processor"),
        ("llava", {"crop_size": {"height": 224, "width": 224}}, "takes 336x336"),
        ("llava", {"do_center_crop": False}, "takes one size"),
        ("llava", {"size": {"area": 3}}, "size of the preprocessor config"),
        ("llava", {"size": {"shortest_edge": 336, "longest_edge": "long"}}, "preprocessor config of the checkpoint .* 'long'"),
        ("llava", {"resample": 1}, "preprocessor config of the checkpoint .* resample must be"),
        ("llava", {"image_mean": "grey"}, "preprocessor config of the checkpoint .* 'g'"),
        ("llava_next", {"image_grid_pinpoints": [[336, 500]]}, "divides image_grid_pinpoints"),
    ],
)
def test_a_checkpoint_that_cannot_be_served_is_refused_at_start(
    make_processor: MakeProcessor, preprocessor_configs: dict[str, dict[str, Any]], model_type: str, change: dict[str, Any], message: str
) -> None:
    config = preprocessor_configs["next" if model_type == "llava_next" else "clip"] | change
    with pytest.raises(ConfigError, match=message):
        make_processor(model_type, preprocessor=config)


def test_fast_and_slow_names_of_an_image_processor_are_one(
    make_processor: MakeProcessor, preprocessor_configs: dict[str, dict[str, Any]]
) -> None:
    for suffix in ("", "Fast", "Pil"):
        config = preprocessor_configs["siglip"] | {"image_processor_type": f"SiglipImageProcessor{suffix}"}
        processor = make_processor(preprocessor=config, vision={"image_size": 384, "model_type": "siglip_vision_model"})
        assert processor.plan("image", header(5, 5), options={}).grid == (1, 27, 27)


def test_the_placeholder_text_is_the_image_token(make_processor: MakeProcessor) -> None:
    assert make_processor().info.get_placeholder_text("image", 3) == "<image>"


def test_both_families_are_registered(make_processor: MakeProcessor) -> None:
    assert isinstance(make_processor("llava"), LlavaProcessor)
    assert isinstance(make_processor("llava_next"), LlavaNextProcessor)


@pytest.mark.parametrize("kind", ["clip", "siglip", "llava", "next"])
def test_a_config_that_is_silent_means_what_the_processors_do_by_default(
    make_checkpoint: Any, preprocessor_configs: dict[str, dict[str, Any]], kind: str
) -> None:
    import transformers

    name = preprocessor_configs[kind]["image_processor_type"]
    theirs = getattr(transformers, name + "Pil")()
    ours = read_image_config(make_checkpoint("llava_next" if kind == "next" else "llava", preprocessor={"image_processor_type": name}))
    assert list(ours.mean) == list(theirs.image_mean)
    assert list(ours.std) == list(theirs.image_std)
    assert (ours.resample, ours.scale) == (int(theirs.resample), theirs.rescale_factor)
    assert (ours.shortest_edge, ours.size) == (theirs.size.shortest_edge, (224, 224) if kind == "siglip" else None)
    assert ours.crop_size == ((224, 224) if theirs.do_center_crop else None)
