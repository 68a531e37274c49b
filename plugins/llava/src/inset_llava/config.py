"""What a LLaVA checkpoint's files say about its images."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from inset.api import Checkpoint, ConfigError, InvalidRequestError, check_resample

__all__ = ["ImageConfig", "PromptConfig", "read_image_config", "read_pinpoints", "read_prompt_config"]

_CLIP_MEAN: Final = (0.48145466, 0.4578275, 0.40821073)
_CLIP_STD: Final = (0.26862954, 0.26130258, 0.27577711)
_HALF: Final = (0.5, 0.5, 0.5)

# What transformers' image processors do unless a checkpoint says otherwise. Their names may end in Fast or Pil.
_DEFAULTS: Final[dict[str, dict[str, Any]]] = {
    "CLIPImageProcessor": {"size": {"shortest_edge": 224}, "crop_size": 224, "do_center_crop": True, "image_mean": _CLIP_MEAN},
    "LlavaImageProcessor": {"size": {"shortest_edge": 224}, "crop_size": 224, "do_center_crop": True, "image_mean": _CLIP_MEAN},
    "LlavaNextImageProcessor": {"size": {"shortest_edge": 224}, "crop_size": 224, "do_center_crop": True, "image_mean": _CLIP_MEAN},
    "SiglipImageProcessor": {"size": {"height": 224, "width": 224}, "do_center_crop": False, "image_mean": _HALF, "image_std": _HALF},
}
_PINPOINTS: Final = ((336, 672), (672, 336), (672, 672), (1008, 336), (336, 1008))


@dataclass(frozen=True, slots=True, kw_only=True)
class ImageConfig:
    """How images become pixels of the size that the vision tower takes.

    Attributes:
        kind: Name of transformers' image processor without its backend, such as ``CLIPImageProcessor``.
        do_resize: Resize at all.
        shortest_edge: The shorter side after resizing, in pixels, or None where `size` says both.
        longest_edge: Limit of the longer side, or None.
        size: (height, width) after resizing, or None.
        crop_size: (height, width) cut from the middle, or None where nothing is cut.
        pads_to_square: Put the image on a square first; `LlavaImageProcessor` alone does.
        pad_color: What `pads_to_square` puts around an image, uint8 RGB.
        resample: Pillow's number of the filter.
        mean: Mean per channel, in [0, 1].
        std: Standard deviation per channel.
        scale: Factor from uint8 to the range of `mean`; 1 where pixels are not rescaled.
    """

    kind: str
    do_resize: bool
    shortest_edge: int | None
    longest_edge: int | None
    size: tuple[int, int] | None
    crop_size: tuple[int, int] | None
    pads_to_square: bool
    pad_color: tuple[int, int, int]
    resample: int
    mean: tuple[float, ...]
    std: tuple[float, ...]
    scale: float

    @property
    def output_size(self) -> tuple[int, int]:
        """(height, width) of every processed image.

        Raises:
            ConfigError: It would depend on the image, which the vision tower cannot take.
        """
        if self.crop_size is not None:
            return self.crop_size
        if self.do_resize and self.size is not None:
            return self.size
        if self.do_resize and self.pads_to_square and self.shortest_edge is not None:
            return self.shortest_edge, self.shortest_edge
        raise ConfigError(f"{self.kind} of this checkpoint neither crops nor resizes to one size; the vision tower takes one size.")


@dataclass(frozen=True, slots=True, kw_only=True)
class PromptConfig:
    """How images stand in a prompt.

    Attributes:
        image_token_id: The token that stands for one embedding, and once for an unexpanded image.
        patch_size: Side of a patch of the vision tower, in pixels.
        num_additional_tokens: What the tower gives besides patches, such as 1 for a class token.
        drops_first: The strategy ``default``: the first row of the tower is left out.
    """

    image_token_id: int
    patch_size: int
    num_additional_tokens: int
    drops_first: bool


def read_image_config(checkpoint: Checkpoint) -> ImageConfig:
    """Reads the checkpoint's preprocessor config.

    Raises:
        ConfigError: The image processor is another one, or a value cannot be used.
    """
    given = checkpoint.preprocessor_config
    is_next = checkpoint.model_type == "llava_next"
    kind = str(given.get("image_processor_type") or ("LlavaNextImageProcessor" if is_next else "CLIPImageProcessor"))
    kind = kind.removesuffix("Fast").removesuffix("Pil")
    if kind not in _DEFAULTS or is_next != (kind == "LlavaNextImageProcessor"):
        raise ConfigError(f"{kind!r} is not an image processor that model_type {checkpoint.model_type!r} is served with.")
    settings = {"image_std": _CLIP_STD, "resample": 3, **_DEFAULTS[kind], **{k: v for k, v in given.items() if v is not None}}
    try:
        return _read_settings(kind, settings)
    except (InvalidRequestError, TypeError, ValueError) as error:
        raise ConfigError(f"The preprocessor config of the checkpoint {checkpoint.folder.name!r}: {error}") from error


def _read_settings(kind: str, settings: Mapping[str, Any]) -> ImageConfig:
    shortest, longest, size = _read_size(settings["size"])
    crop = settings.get("crop_size") if settings["do_center_crop"] else None
    normalizes = settings.get("do_normalize", True)
    return ImageConfig(
        kind=kind,
        do_resize=bool(settings.get("do_resize", True)),
        shortest_edge=shortest,
        longest_edge=longest,
        size=size,
        crop_size=None if crop is None else _read_crop(crop),
        pads_to_square=kind == "LlavaImageProcessor" and bool(settings.get("do_pad", False)),
        pad_color=_pad_color(_per_channel(settings["image_mean"])),
        resample=check_resample(settings["resample"]),
        mean=_per_channel(settings["image_mean"]) if normalizes else (0.0, 0.0, 0.0),
        std=_per_channel(settings["image_std"]) if normalizes else (1.0, 1.0, 1.0),
        scale=float(settings.get("rescale_factor", 1 / 255)) if settings.get("do_rescale", True) else 1.0,
    )


def _read_size(size: Any) -> tuple[int | None, int | None, tuple[int, int] | None]:
    if isinstance(size, int):
        return size, None, None
    if isinstance(size, Mapping) and size.get("shortest_edge"):
        longest = size.get("longest_edge")
        return int(size["shortest_edge"]), None if longest is None else int(longest), None
    if isinstance(size, Mapping) and size.get("height") and size.get("width"):
        return None, None, (int(size["height"]), int(size["width"]))
    raise ConfigError(f"size of the preprocessor config must name shortest_edge, or height and width, not {size!r}.")


def _read_crop(crop: Any) -> tuple[int, int]:
    if isinstance(crop, int):
        return crop, crop
    if isinstance(crop, Mapping) and crop.get("height") and crop.get("width"):
        return int(crop["height"]), int(crop["width"])
    raise ConfigError(f"crop_size of the preprocessor config must name height and width, not {crop!r}.")


def _pad_color(mean: tuple[float, ...]) -> tuple[int, int, int]:
    """The mean, also where images are not normalised by it. Source: transformers 5.24 ``LlavaImageProcessor``."""
    red, green, blue = (int(value * 255) for value in mean)
    return red, green, blue


def _per_channel(values: Any) -> tuple[float, ...]:
    return tuple(float(value) for value in values) if isinstance(values, Sequence) else (float(values),) * 3


def read_pinpoints(checkpoint: Checkpoint) -> tuple[tuple[int, int], ...]:
    """Returns the sizes (height, width) that LLaVA-NeXT lays tiles out for.

    Raises:
        ConfigError: The processor's and the model's differ, so that placeholders and embeddings would.
    """
    given = checkpoint.preprocessor_config.get("image_grid_pinpoints")
    models = checkpoint.config.get("image_grid_pinpoints")
    if given is not None and models is not None and [list(size) for size in given] != [list(size) for size in models]:
        raise ConfigError("image_grid_pinpoints of config.json and of the preprocessor config differ.")
    return tuple((int(height), int(width)) for height, width in given or models or _PINPOINTS)


def read_prompt_config(checkpoint: Checkpoint) -> PromptConfig:
    """Reads how many tokens an image takes: from the processor config, and where that is silent from the model's.

    Raises:
        ConfigError: The image token is not named.
    """
    config, processor = checkpoint.config, checkpoint.processor_config
    vision = config.get("vision_config") or {}
    token = config.get("image_token_id", config.get("image_token_index"))
    if not isinstance(token, int):
        raise ConfigError(f"config.json of the checkpoint {checkpoint.folder.name!r} names no image_token_id.")
    # A SigLIP tower has no class token; CLIP, the default of these families, has one.
    tower_gives = 0 if "siglip" in str(vision.get("model_type", "")) else 1
    additional = processor.get("num_additional_image_tokens")
    strategy = processor.get("vision_feature_select_strategy") or config.get("vision_feature_select_strategy") or "default"
    return PromptConfig(
        image_token_id=token,
        patch_size=int(processor.get("patch_size") or vision.get("patch_size") or 14),
        num_additional_tokens=tower_gives if additional is None else int(additional),
        drops_first=strategy == "default",
    )
