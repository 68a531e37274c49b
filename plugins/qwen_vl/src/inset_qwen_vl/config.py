"""What a Qwen-VL checkpoint's files say about its images and videos."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Final

from inset.api import JSON, MOST_FRAMES, Checkpoint, ConfigError, InvalidRequestError, MediaOptions, check_resample

__all__ = [
    "PixelConfig",
    "PromptConfig",
    "SamplingConfig",
    "apply_options",
    "apply_sampling_options",
    "read_pixel_config",
    "read_prompt_config",
    "read_sampling_config",
]

_MOST_PIXELS: Final = 2**32
"""More than any picture has and any context holds; sizes under it can be computed with."""

_CLIP: Final = {"image_mean": (0.48145466, 0.4578275, 0.40821073), "image_std": (0.26862954, 0.26130258, 0.27577711)}
_HALF: Final = {"image_mean": (0.5, 0.5, 0.5), "image_std": (0.5, 0.5, 0.5)}

# What transformers' processors do unless a checkpoint says otherwise. Names in files may end in Fast or Pil.
_IMAGE: Final[dict[str, Any]] = {"patch_size": 14, "size": {"shortest_edge": 56 * 56, "longest_edge": 28 * 28 * 1280}, **_CLIP}
_VIDEO: Final[dict[str, dict[str, Any]]] = {
    "Qwen2VLVideoProcessor": {
        "patch_size": 14,
        "size": {"shortest_edge": 128 * 28 * 28, "longest_edge": 28 * 28 * 768},
        "max_video_tokens": 128000,
        **_CLIP,
    },
    "Qwen3VLVideoProcessor": {
        "patch_size": 16,
        "size": {"shortest_edge": 128 * 32 * 32, "longest_edge": 32 * 32 * 768},
        "max_video_tokens": 768,
        **_HALF,
    },
}
_IMAGE_KINDS: Final = ("Qwen2VLImageProcessor", "Qwen2_5_VLImageProcessor", "Qwen3VLImageProcessor")


@dataclass(frozen=True, slots=True, kw_only=True)
class PixelConfig:
    """How images or frames become patches.

    Attributes:
        patch_size: Side of a patch in pixels.
        merge_size: Patches along one side of the square that makes one token.
        temporal_patch_size: Frames in one patch.
        min_pixels: Fewest pixels after resizing: of an image, of a frame, or of all frames together where `counts_all_frames`.
        max_pixels: Most pixels, in the same way.
        counts_all_frames: `min_pixels` and `max_pixels` are of the whole video, as Qwen3-VL means them.
        cap_pixels_per_frame: Share the budget of `max_video_tokens` among the frames.
        max_video_tokens: What `cap_pixels_per_frame` goes by.
        pruning_rate: Share of a video's tokens that is left out, from 0 to below 1.
        resample: Pillow's number of the filter.
        mean: Mean per channel, in [0, 1].
        std: Standard deviation per channel.
        scale: Factor from uint8 to the range of `mean`; 1 where pixels are not rescaled.
    """

    patch_size: int
    merge_size: int
    temporal_patch_size: int
    min_pixels: int
    max_pixels: int
    counts_all_frames: bool = False
    cap_pixels_per_frame: bool = False
    max_video_tokens: int = 0
    pruning_rate: float = 0.0
    resample: int = 3
    mean: tuple[float, ...]
    std: tuple[float, ...]
    scale: float

    @property
    def factor(self) -> int:
        """Side in pixels of the square that makes one token; both sides of a resized picture are multiples of it."""
        return self.patch_size * self.merge_size


@dataclass(frozen=True, slots=True, kw_only=True)
class SamplingConfig:
    """Which frames of a video are looked at.

    Attributes:
        fps: Frames per second.
        num_frames: This many frames, whatever their rate; None goes by `fps`.
        min_frames: Fewest frames, where the video has them.
        max_frames: Most frames.
        temporal_patch_size: Qwen2-VL samples multiples of it.
    """

    fps: float = 2.0
    num_frames: int | None = None
    min_frames: int = 4
    max_frames: int = 768
    temporal_patch_size: int = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class PromptConfig:
    """How images and videos stand in a prompt.

    Attributes:
        image_token_id: Stands for one embedding of an image, and once for an unexpanded image.
        video_token_id: The same for videos.
        vision_start_token_id: Stands before each frame of a Qwen3-VL video.
        vision_end_token_id: Stands behind it.
    """

    image_token_id: int
    video_token_id: int
    vision_start_token_id: int
    vision_end_token_id: int

    def token_of(self, modality: str) -> int:
        """Returns the token of ``image`` or ``video``."""
        return self.image_token_id if modality == "image" else self.video_token_id


def read_prompt_config(checkpoint: Checkpoint) -> PromptConfig:
    """Reads the tokens; the defaults are those of transformers' configs.

    Raises:
        ConfigError: One of them is no number.
    """
    defaults = {"image_token_id": 151655, "video_token_id": 151656, "vision_start_token_id": 151652, "vision_end_token_id": 151653}
    tokens = {name: checkpoint.config.get(name, default) for name, default in defaults.items()}
    for name, token in tokens.items():
        if not isinstance(token, int):
            raise ConfigError(f"{name} in config.json of the checkpoint {checkpoint.folder.name!r} is {token!r}, no token id.")
    return PromptConfig(**tokens)


def read_pixel_config(checkpoint: Checkpoint, modality: str) -> PixelConfig:
    """Reads how the checkpoint's images, or its videos, are resized and cut.

    Source: transformers 5.24 ``Qwen2VLImageProcessor``, ``Qwen2VLVideoProcessor``, ``Qwen3VLVideoProcessor``; a checkpoint without a config
    for videos uses that for images.

    Raises:
        ConfigError: The processor is another one, a value cannot be used, or the vision tower takes other patches.
    """
    given = _given(checkpoint, modality)
    kind = _kind(checkpoint, modality, given)
    defaults = _IMAGE if modality == "image" else _VIDEO[kind]
    settings = {"merge_size": 2, "temporal_patch_size": 2, "resample": 3, **defaults, **given}
    if not settings.get("do_resize", True):
        raise ConfigError(f"{kind} of this checkpoint does not resize (do_resize is false); the vision tower takes multiples of a patch.")
    normalizes = settings.get("do_normalize", True)
    try:
        min_pixels, max_pixels = _read_pixels(settings, defaults["size"])
        config = PixelConfig(
            patch_size=int(settings["patch_size"]),
            merge_size=int(settings["merge_size"]),
            temporal_patch_size=int(settings["temporal_patch_size"]),
            min_pixels=min_pixels,
            max_pixels=max_pixels,
            counts_all_frames=kind == "Qwen3VLVideoProcessor",
            cap_pixels_per_frame=bool(settings.get("cap_pixels_per_frame")),
            max_video_tokens=int(settings.get("max_video_tokens") or 0),
            resample=check_resample(settings["resample"]),
            mean=_per_channel(settings["image_mean"]) if normalizes else (0.0, 0.0, 0.0),
            std=_per_channel(settings["image_std"]) if normalizes else (1.0, 1.0, 1.0),
            scale=float(settings.get("rescale_factor", 1 / 255)) if settings.get("do_rescale", True) else 1.0,
        )
    except (InvalidRequestError, TypeError, ValueError) as error:
        raise ConfigError(f"The preprocessor config for {modality}s of the checkpoint {checkpoint.folder.name!r}: {error}") from error
    _check_tower(checkpoint, config)
    return config


def _given(checkpoint: Checkpoint, modality: str) -> dict[str, Any]:
    config = checkpoint.preprocessor_config
    if modality == "video":
        config = checkpoint.video_preprocessor_config or config
    return {name: value for name, value in config.items() if value is not None}


def _kind(checkpoint: Checkpoint, modality: str, given: Mapping[str, Any]) -> str:
    default_video = "Qwen3VLVideoProcessor" if checkpoint.model_type == "qwen3_vl" else "Qwen2VLVideoProcessor"
    default, known = (_IMAGE_KINDS[0], _IMAGE_KINDS) if modality == "image" else (default_video, tuple(_VIDEO))
    kind = str(given.get(f"{modality}_processor_type") or default).removesuffix("Fast").removesuffix("Pil")
    if kind not in known:
        raise ConfigError(f"{kind!r} is not a processor of {modality}s that model_type {checkpoint.model_type!r} is served with.")
    return kind


def _read_pixels(settings: Mapping[str, Any], default: Mapping[str, int]) -> tuple[int, int]:
    """Fewest and most pixels; ``min_pixels`` and ``max_pixels`` win over ``size``, as in transformers."""
    size = settings["size"]
    if not isinstance(size, Mapping):
        raise ConfigError(f"size of the preprocessor config must name shortest_edge and longest_edge, not {size!r}.")
    low = settings.get("min_pixels") or size.get("shortest_edge") or size.get("min_pixels") or default["shortest_edge"]
    high = settings.get("max_pixels") or size.get("longest_edge") or size.get("max_pixels") or default["longest_edge"]
    if not 1 <= int(low) <= int(high):
        raise ConfigError(f"The preprocessor config wants at least {low} and at most {high} pixels, which no picture has.")
    return int(low), int(high)


def _per_channel(values: Any) -> tuple[float, ...]:
    return tuple(float(value) for value in values) if isinstance(values, Sequence) else (float(values),) * 3


def _check_tower(checkpoint: Checkpoint, config: PixelConfig) -> None:
    vision = checkpoint.config.get("vision_config") or {}
    for name, ours in (
        ("patch_size", config.patch_size),
        ("spatial_merge_size", config.merge_size),
        ("temporal_patch_size", config.temporal_patch_size),
    ):
        theirs = vision.get(name, ours)
        if theirs != ours:
            raise ConfigError(f"The preprocessor config has {name} {ours}, and the vision tower of config.json {theirs}.")


def read_sampling_config(checkpoint: Checkpoint) -> SamplingConfig:
    """Reads how frames are chosen: from the config for videos, two a second where it is silent.

    Raises:
        ConfigError: A value is out of range.
    """
    given = _given(checkpoint, "video")
    names = ("fps", "num_frames", "min_frames", "max_frames", "temporal_patch_size")
    config = SamplingConfig(**{name: given[name] for name in names if name in given})
    if not all(isinstance(value, int | float | None) for value in asdict(config).values()):
        raise ConfigError(f"The config for videos of the checkpoint {checkpoint.folder.name!r} has a value that is no number: {config}.")
    config = replace(config, max_frames=min(config.max_frames, MOST_FRAMES))
    if config.fps <= 0 or not 1 <= config.min_frames <= config.max_frames or not 1 <= (config.num_frames or 1) <= MOST_FRAMES:
        raise ConfigError(f"The config for videos of the checkpoint {checkpoint.folder.name!r} cannot be sampled by: {config}.")
    return config


def apply_sampling_options(config: SamplingConfig, options: Mapping[str, JSON]) -> SamplingConfig:
    """Returns a config with decode options of videos on top: ``num_frames``, or ``fps`` with ``min_frames`` and ``max_frames``.

    Raises:
        InvalidRequestError: An option is unknown, or a value out of range.
    """
    reader = MediaOptions("video", options)
    num_frames = reader.integer("num_frames", None, minimum=1, maximum=MOST_FRAMES)
    fps = reader.number("fps", None, above=0)
    min_frames = reader.integer("min_frames", None, minimum=1, maximum=MOST_FRAMES)
    max_frames = reader.integer("max_frames", None, minimum=1, maximum=MOST_FRAMES)
    reader.finish()
    if num_frames is not None and fps is not None:
        raise reader.wrong("num_frames", num_frames, "left out where fps is given")
    if num_frames is not None or fps is not None:
        config = replace(config, num_frames=num_frames, fps=fps or config.fps)
    most = max_frames or max(config.max_frames, min_frames or 0)
    least = min_frames or min(config.min_frames, most)
    if least > most:
        raise reader.wrong("min_frames", least, f"at most max_frames, which is {most}")
    return replace(config, min_frames=least, max_frames=most)


def apply_options(config: PixelConfig, options: Mapping[str, JSON]) -> PixelConfig:
    """Returns a config with the processor options of a request on top.

    Args:
        config: The checkpoint's.
        options: Any of ``min_pixels``, ``max_pixels``, ``size`` with ``shortest_edge`` and ``longest_edge``, ``resample``, and
            ``video_pruning_rate``.

    Raises:
        InvalidRequestError: A value is out of range, or no picture can have both the fewest and the most pixels.
    """
    if not options:
        return config
    size = options.get("size", {})
    if not isinstance(size, Mapping) or set(size) - {"shortest_edge", "longest_edge"}:
        raise InvalidRequestError("size must be an object with shortest_edge and longest_edge, both numbers of pixels.", stage="plan")
    low = options.get("min_pixels", size.get("shortest_edge", config.min_pixels))
    high = options.get("max_pixels", size.get("longest_edge", config.max_pixels))
    for name, value in (("min_pixels", low), ("max_pixels", high)):
        if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= _MOST_PIXELS:
            raise InvalidRequestError(f"{name} must be a whole number from 1 to {_MOST_PIXELS}, not {value!r:.40}.", stage="plan")
    assert isinstance(low, int) and isinstance(high, int)  # noqa: PT018 - narrows both for the type checker
    if low > high:
        raise InvalidRequestError(f"min_pixels is {low} and max_pixels {high}; no picture has both.", stage="plan")
    rate = options.get("video_pruning_rate", config.pruning_rate)
    if isinstance(rate, bool) or not isinstance(rate, int | float) or not 0 <= rate < 1:
        raise InvalidRequestError(f"video_pruning_rate must be a number from 0 to below 1, not {rate!r}.", stage="plan")
    resample = check_resample(options.get("resample", config.resample))
    return replace(config, min_pixels=low, max_pixels=high, resample=resample, pruning_rate=float(rate))
