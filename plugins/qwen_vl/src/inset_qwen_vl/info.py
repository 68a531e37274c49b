"""The facts of a Qwen-VL checkpoint, and what an item becomes under them: one class for each family."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Final, NamedTuple

import numpy as np

from inset.api import (
    JSON,
    InvalidRequestError,
    ItemPlan,
    MediaHeader,
    PlaceholderContent,
    ProcessingContext,
    ProcessingInfo,
    resize_peak_bytes,
)
from inset_qwen_vl.config import (
    PixelConfig,
    apply_options,
    apply_sampling_options,
    read_pixel_config,
    read_prompt_config,
    read_sampling_config,
)
from inset_qwen_vl.resizing import bound_squares, resize_image, resize_video

__all__ = ["SLOW_FPS", "Layout", "Qwen2VLProcessingInfo", "Qwen3VLProcessingInfo", "Qwen25VLProcessingInfo"]

SLOW_FPS: Final = 0.01
"""Of the largest video: the times of its frames are written with as many digits as those of any video of a day."""

_UNKNOWN_FPS: Final = 24.0
_NUMBER_BYTES: Final = 8
_TENSOR_DETAILS: Final = ("num_kept", "second_per_grid_ts")
_LOW_DETAIL_TOKENS: Final = 256


class Layout(NamedTuple):
    """The tokens of one item as numbers.

    Attributes:
        num_tokens: All of them.
        is_embed: Those that receive an embedding, as runs (start, stop); None means all of them.
    """

    num_tokens: int
    is_embed: tuple[tuple[int, int], ...] | None


class Qwen2VLProcessingInfo(ProcessingInfo):
    """Facts of a Qwen2-VL checkpoint: images of any size, and videos whose frames stand together.

    Attributes:
        can_prune: Tokens of a video can be left out.
    """

    video_needs_metadata: ClassVar[bool] = True
    can_prune: ClassVar[bool] = True

    def __init__(self, context: ProcessingContext) -> None:
        super().__init__(context)
        self.prompt = read_prompt_config(context.checkpoint)
        self.pixels: Mapping[str, PixelConfig] = {m: read_pixel_config(context.checkpoint, m) for m in ("image", "video")}
        self.sampling = read_sampling_config(context.checkpoint)

    def get_supported_mm_limits(self) -> Mapping[str, int | None]:
        """Images and videos, as many as the context holds."""
        return {"image": None, "video": None}

    def get_placeholder_text(self, modality: str, item_index: int) -> str:
        """Returns the modality's token between the tokens that open and close a picture."""
        prompt = self.prompt
        tokens = (prompt.vision_start_token_id, prompt.token_of(modality), prompt.vision_end_token_id)
        return "".join(self.tokenizer.id_to_token(token) or "" for token in tokens)

    def processor_options(self, modality: str) -> frozenset[str]:
        """``min_pixels``, ``max_pixels``, ``size`` and ``resample``; for videos that `can_prune` also ``video_pruning_rate``."""
        options = frozenset({"min_pixels", "max_pixels", "size", "resample"})
        return options | {"video_pruning_rate"} if modality == "video" and self.can_prune else options

    def detail_options(self, modality: str, detail: str, *, options: Mapping[str, JSON]) -> Mapping[str, JSON]:
        """Returns fewer pixels of an image for ``low``: those of 256 tokens, at most a quarter; ``high`` is all that the options allow."""
        if detail != "low" or modality != "image":
            return {}
        config = apply_options(self.pixels[modality], options)
        most = max(config.min_pixels, min(config.max_pixels // 4, _LOW_DETAIL_TOKENS * config.factor**2))
        return {"min_pixels": config.min_pixels, "max_pixels": most}

    def max_tokens_per_item(self, modality: str) -> int:
        """Returns tokens that no image or video has more of under the options of the checkpoint and the operator."""
        config = self.operator_pixels(modality)
        if modality == "image":
            return bound_squares(config)
        header = MediaHeader(modality="video", width=1, height=1, num_frames=self.most_frames, fps=SLOW_FPS, decoded_bytes=0)
        plan = self.plan_item(header, config)
        return plan.num_tokens - plan.num_embeds + max(self.bound_embeds(config, count) for count in range(1, self.most_frames + 1))

    def bound_embeds(self, config: PixelConfig, num_frames: int) -> int:
        """Returns embeds that no video with so many frames has more of."""
        steps, squares = -(-num_frames // config.temporal_patch_size), bound_squares(config, num_frames=num_frames)
        return self.count_kept((steps, config.merge_size, squares * config.merge_size), config.pruning_rate)

    @property
    def most_frames(self) -> int:
        """Most frames of a video that are looked at under the options of the operator."""
        sampling = apply_sampling_options(self.sampling, self.context.media_config.media_io_kwargs.get("video", {}))
        return sampling.num_frames or sampling.max_frames

    def operator_pixels(self, modality: str) -> PixelConfig:
        """Returns how images or frames become patches under the options of the operator."""
        return apply_options(self.pixels[modality], self.scope_processor_kwargs({})[modality])

    def plan_item(self, header: MediaHeader, config: PixelConfig) -> ItemPlan:
        """Returns what an image or a video becomes.

        Raises:
            InvalidRequestError: It has no size, or is too thin.
        """
        if not header.height or not header.width:
            raise InvalidRequestError(f"The {header.modality} has no size in its header.", stage="plan")
        source = (header.height, header.width)
        if header.modality == "image":
            size, steps, num_frames = resize_image(source, config), 1, 0
            pixel_bytes, details = 3 * math.prod(size), {}
        else:
            num_frames = header.num_frames or 1
            size, steps = resize_video(num_frames, source, config), -(-num_frames // config.temporal_patch_size)
            pixel_bytes, details = 3 * math.prod(size) * steps * config.temporal_patch_size, dict(self.describe_video(header, steps))
        grid = (steps, size[0] // config.patch_size, size[1] // config.patch_size)
        num_embeds = self.count_embeds(grid)
        if header.modality == "video" and (num_kept := self.count_kept(grid, config.pruning_rate)) < num_embeds:
            details["num_kept"] = num_embeds = num_kept
        layout = self.lay_out(num_embeds, details)
        tensor_bytes = pixel_bytes + _NUMBER_BYTES * (len(grid) + sum(name in details for name in _TENSOR_DETAILS))
        return ItemPlan(
            num_tokens=layout.num_tokens,
            num_embeds=num_embeds,
            is_embed=layout.is_embed,
            grid=grid,
            tensor_bytes=tensor_bytes,
            peak_bytes=3 * num_frames * math.prod(source) + resize_peak_bytes(source, size) + tensor_bytes,
            is_exact=header.modality == "image",
            details=details,
        )

    def count_embeds(self, grid: tuple[int, int, int]) -> int:
        """Returns the rows that the encoder gives for a grid of patches."""
        merge_size = self.pixels["image"].merge_size
        return grid[0] * (grid[1] // merge_size) * (grid[2] // merge_size)

    def count_kept(self, grid: tuple[int, int, int], pruning_rate: float) -> int:
        """Returns how many rows of a video stay: the share that is not pruned, and at least all of the first step.

        Args:
            grid: Patches along (t, h, w).
            pruning_rate: Share that is left out, from 0 to below 1.
        """
        num_embeds = self.count_embeds(grid)
        return max(num_embeds // grid[0], int(num_embeds * (1 - pruning_rate)))

    def describe_video(self, header: MediaHeader, steps: int) -> Mapping[str, JSON]:
        """Returns what the plan of a video keeps for its placeholder and its positions; nothing here.

        Args:
            header: Frames and their times.
            steps: Patches along time.
        """
        return {}

    def describe_embeds(self, fields: Mapping[str, np.ndarray[Any, Any]], steps: int) -> Mapping[str, JSON]:
        """Returns the same for finished embeddings of a video.

        Raises:
            InvalidRequestError: A field is missing or wrong.
        """
        return {}

    def lay_out(self, num_embeds: int, details: Mapping[str, JSON]) -> Layout:
        """Returns where the embeddings of an item stand among its tokens, without making the tokens: here they are all there is."""
        return Layout(num_embeds, None)

    def make_content(self, modality: str, num_embeds: int, details: Mapping[str, JSON]) -> PlaceholderContent:
        """Returns the tokens that stand for an item: one for each embedding."""
        return PlaceholderContent([self.prompt.token_of(modality)] * num_embeds)


class Qwen25VLProcessingInfo(Qwen2VLProcessingInfo):
    """Facts of a Qwen2.5-VL checkpoint: positions along time run in seconds."""

    def describe_video(self, header: MediaHeader, steps: int) -> Mapping[str, JSON]:
        """Returns the seconds between two steps along time.

        Source: transformers 5.24 ``Qwen2_5_VLProcessor`` and ``VideoMetadata.sampled_fps``.
        """
        sampled_fps = header.fps or _UNKNOWN_FPS
        if header.fps and header.total_num_frames:
            sampled_fps = (header.num_frames or 1) / header.total_num_frames * header.fps
        return {"second_per_grid_ts": self.pixels["video"].temporal_patch_size / sampled_fps}

    def describe_embeds(self, fields: Mapping[str, np.ndarray[Any, Any]], steps: int) -> Mapping[str, JSON]:
        """Returns ``second_per_grid_ts``, 1 where it is not given.

        Raises:
            InvalidRequestError: It is no number above 0.
        """
        seconds = _numbers(fields, "second_per_grid_ts", default=[1.0])
        if len(seconds) != 1 or seconds[0] <= 0:
            raise InvalidRequestError("second_per_grid_ts must be one number above 0 for each video.", stage="plan")
        return {"second_per_grid_ts": seconds[0]}


class Qwen3VLProcessingInfo(Qwen2VLProcessingInfo):
    """Facts of a Qwen3-VL checkpoint: a time stamp before each step of a video, and features for the first decoder layers.

    Nothing is pruned: time stamps stand between the steps of a video, and how many tokens each step would keep is known only behind the
    encoder, which is too late for the prompt.
    """

    can_prune: ClassVar[bool] = False

    @property
    def embed_size(self) -> int:
        """Width of an encoder row: the embedding, and one feature for each of the first decoder layers."""
        vision = self.checkpoint.config.get("vision_config") or {}
        return self.hidden_size * (1 + len(vision.get("deepstack_visual_indexes", (8, 16, 24))))

    def describe_video(self, header: MediaHeader, steps: int) -> Mapping[str, JSON]:
        """Returns the tokens before each step: its time, and the token that opens a picture.

        Source: transformers 5.24 ``Qwen3VLProcessor._calculate_timestamps``: the middle between the first and the last frame of a step.
        """
        temporal, fps = self.pixels["video"].temporal_patch_size, header.fps or _UNKNOWN_FPS
        indices = list(header.frame_indices or range(header.num_frames or 1))
        times = [index / fps for index in [*indices, *indices[-1:] * (steps * temporal - len(indices))]]
        return self._stamp([(times[i] + times[i + temporal - 1]) / 2 for i in range(0, len(times), temporal)])

    def describe_embeds(self, fields: Mapping[str, np.ndarray[Any, Any]], steps: int) -> Mapping[str, JSON]:
        """Returns the tokens before each step, from the seconds in ``timestamps``.

        Raises:
            InvalidRequestError: There are not as many as steps.
        """
        seconds = _numbers(fields, "timestamps", default=[])
        if len(seconds) != steps:
            raise InvalidRequestError(f"timestamps must hold {steps} seconds, one for each step of video_grid_thw.", stage="plan")
        return self._stamp(seconds)

    def _stamp(self, seconds: Sequence[float]) -> Mapping[str, JSON]:
        return {"stamps": [self.tokenizer.encode(f"<{value:.1f} seconds>") for value in seconds]}

    def lay_out(self, num_embeds: int, details: Mapping[str, JSON]) -> Layout:
        """Returns where the embeddings stand: in a video behind the time of their step and the token that opens a picture."""
        stamps = details.get("stamps")
        if not isinstance(stamps, Sequence):
            return super().lay_out(num_embeds, details)
        per_step = num_embeds // len(stamps)
        runs, end = [], 0
        for stamp in stamps:
            start = end + len(stamp) + 1  # type: ignore[arg-type] # JSON that `_stamp` made
            runs.append((start, start + per_step))
            end = start + per_step + 1
        return Layout(end, tuple(runs))

    def make_content(self, modality: str, num_embeds: int, details: Mapping[str, JSON]) -> PlaceholderContent:
        """Returns one token for each embedding; in a video each step has its time before it and is opened and closed like a picture."""
        stamps = details.get("stamps")
        if not isinstance(stamps, Sequence):
            return super().make_content(modality, num_embeds, details)
        prompt = self.prompt
        per_step = num_embeds // len(stamps)
        tokens: list[int] = []
        for stamp in stamps:
            tokens.extend([*stamp, prompt.vision_start_token_id])  # type: ignore[misc] # JSON that `_stamp` made
            tokens.extend([prompt.video_token_id] * per_step)
            tokens.append(prompt.vision_end_token_id)
        return PlaceholderContent(tokens, self.lay_out(num_embeds, details).is_embed)


def _numbers(fields: Mapping[str, np.ndarray[Any, Any]], name: str, *, default: Sequence[float]) -> list[float]:
    if name not in fields:
        return list(default)
    values = np.atleast_1d(fields[name])
    if values.ndim != 1 or not np.issubdtype(values.dtype, np.number) or not np.isfinite(values).all():
        raise InvalidRequestError(f"{name} must hold finite numbers.", stage="plan")
    return [float(value) for value in values]
