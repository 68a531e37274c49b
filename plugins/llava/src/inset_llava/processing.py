"""From images to placeholders and uint8 pixels for LLaVA 1.5 and LLaVA-NeXT."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from inset.api import (
    JSON,
    ConfigError,
    DummyInputsBuilder,
    InvalidRequestError,
    ItemPlan,
    ItemTensors,
    MediaHeader,
    MultiModalProcessor,
    PlaceholderContent,
    ProcessingContext,
    ProcessingInfo,
    PromptReplacement,
    PromptUpdate,
    center_crop,
    check_resample,
    pad_to_square,
    resize_peak_bytes,
    resize_pixels,
    shortest_edge_size,
)
from inset_llava.config import read_image_config, read_pinpoints, read_prompt_config
from inset_llava.tiling import TileLayout, count_tile_tokens, cut_tiles, lay_out_tiles

if TYPE_CHECKING:
    import torch
    from numpy.typing import NDArray

    from inset.api import ImagePixels

__all__ = [
    "LlavaDummyInputs",
    "LlavaNextProcessingInfo",
    "LlavaNextProcessor",
    "LlavaProcessingInfo",
    "LlavaProcessor",
]


class LlavaProcessingInfo(ProcessingInfo):
    """Facts of a LLaVA 1.5 checkpoint: every image becomes one picture of one size."""

    options: ClassVar[frozenset[str]] = frozenset({"do_pad", "resample"})

    def __init__(self, context: ProcessingContext) -> None:
        super().__init__(context)
        self.image = read_image_config(context.checkpoint)
        self.prompt = read_prompt_config(context.checkpoint)
        self.output_size = self.image.output_size
        self._check_tower()

    def get_supported_mm_limits(self) -> Mapping[str, int | None]:
        """Images, as many as the context holds."""
        return {"image": None}

    def get_placeholder_text(self, modality: str, item_index: int) -> str:
        """Returns the text of the image token."""
        return self.tokenizer.id_to_token(self.prompt.image_token_id) or "<image>"

    def processor_options(self, modality: str) -> frozenset[str]:
        """``resample``, and ``do_pad`` for the image processor that pads to a square, where images have one size without it."""
        image = self.image
        can_choose = image.kind == "LlavaImageProcessor" and (image.crop_size is not None or image.size is not None)
        return self.options if can_choose else self.options - {"do_pad"}

    def max_tokens_per_item(self, modality: str) -> int:
        """Returns the prompt tokens of any image: all take the same."""
        return self.count_patch_rows(*self.output_size)

    def largest_size(self) -> tuple[int, int]:
        """Returns (height, width) of an image that takes the most tokens."""
        return self.output_size

    def count_patch_rows(self, height: int, width: int) -> int:
        """Returns the rows that the vision tower gives for one picture, after the select strategy."""
        prompt = self.prompt
        num_patches = (height // prompt.patch_size) * (width // prompt.patch_size)
        return num_patches + prompt.num_additional_tokens - int(prompt.drops_first)

    def _check_tower(self) -> None:
        expected = (self.checkpoint.config.get("vision_config") or {}).get("image_size")
        if expected is not None and self.output_size != (expected, expected):
            height, width = self.output_size
            raise ConfigError(f"The image processor gives {width}x{height} pixels, and the vision tower takes {expected}x{expected}.")


class LlavaNextProcessingInfo(LlavaProcessingInfo):
    """Facts of a LLaVA-NeXT checkpoint: an overview, and tiles in the layout that suits the image's size best."""

    options = frozenset({"resample"})

    def __init__(self, context: ProcessingContext) -> None:
        super().__init__(context)
        self.pinpoints = read_pinpoints(context.checkpoint)
        height, width = self.output_size
        edge = self.image.shortest_edge or height
        if height != width or edge != height or any(side % height for size in self.pinpoints for side in size):
            raise ConfigError(
                f"LLaVA-NeXT needs square tiles of one size that divides image_grid_pinpoints; size is {edge}, crop_size {height}x{width}."
            )

    @property
    def tile_edge(self) -> int:
        """Side of a tile in pixels."""
        return self.output_size[0]

    def max_tokens_per_item(self, modality: str) -> int:
        """Returns the prompt tokens of the largest layout without padding."""
        return max(self.count_tokens(size) for size in self.pinpoints)

    def largest_size(self) -> tuple[int, int]:
        """Returns (height, width) of an image that takes the most tokens."""
        return max(self.pinpoints, key=self.count_tokens)

    def lay_out(self, size: tuple[int, int]) -> TileLayout:
        """Returns the layout of the tiles for an image of (height, width)."""
        return lay_out_tiles(size, self.pinpoints, self.tile_edge)

    def count_tokens(self, size: tuple[int, int]) -> int:
        """Returns the prompt tokens of an image of (height, width): overview, unpadded tiles and newlines."""
        patches_per_tile = self.tile_edge // self.prompt.patch_size
        return self.count_patch_rows(*self.output_size) + count_tile_tokens(size, self.lay_out(size), patches_per_tile)


class _ImageProcessor(MultiModalProcessor):
    """What both families share: one token per embedding, in the place of one image token."""

    def prompt_updates(self, plans: Mapping[str, Sequence[ItemPlan]]) -> Sequence[PromptUpdate]:
        """Returns the replacement of each image token by as many as the image has embeddings."""
        token_id = self.facts.prompt.image_token_id
        contents = [PlaceholderContent([token_id] * plan.num_tokens) for plan in plans["image"]]
        return [PromptReplacement(modality="image", target=[token_id], contents=contents)]

    @property
    @abstractmethod
    def facts(self) -> LlavaProcessingInfo:
        """`info`, with its own type."""

    def to_transformers(self, modality: str, items: Sequence[ItemTensors]) -> Mapping[str, torch.Tensor]:
        """Returns ``pixel_values (num_images, 3, height, width)`` float32."""
        return {"pixel_values": self._normalize(np.stack([item["pixel_values"] for item in items]))}

    def _normalize(self, pixels: NDArray[np.uint8]) -> torch.Tensor:
        import torch

        from inset_llava.vision import PixelNormalizer

        normalizer = PixelNormalizer(self.facts.image, device=torch.device("cpu"), dtype=torch.float32)
        return normalizer.normalize(torch.from_numpy(pixels))

    def _resample(self, options: Mapping[str, JSON]) -> int:
        return check_resample(options.get("resample", self.facts.image.resample))


class LlavaProcessor(_ImageProcessor):
    """LLaVA 1.5. An item is ``pixel_values (height, width, 3)`` uint8 RGB, to be normalised where the vision tower runs.

    Source: transformers 5.24 ``LlavaProcessor`` with ``CLIPImageProcessor``, ``SiglipImageProcessor`` or ``LlavaImageProcessor``.
    """

    @property
    def facts(self) -> LlavaProcessingInfo:
        """`info`, with its own type."""
        assert isinstance(self.info, LlavaProcessingInfo)
        return self.info

    def plan(self, modality: str, header: MediaHeader, *, options: Mapping[str, JSON]) -> ItemPlan:
        """Returns the plan of an image: the same number of tokens for every size."""
        self._resample(options)
        source = size_of(header)
        padded = (max(source),) * 2 if self._pads(options) else source
        height, width = self.facts.output_size
        rows = self.facts.count_patch_rows(height, width)
        peak = resize_peak_bytes(padded, self._resized_size(padded)) + (3 * source[0] * source[1] if padded != source else 0)
        patch_size = self.facts.prompt.patch_size
        return ItemPlan(
            num_tokens=rows,
            num_embeds=rows,
            grid=(1, height // patch_size, width // patch_size),
            tensor_bytes=3 * height * width,
            peak_bytes=peak + 3 * height * width,
        )

    def materialize(self, modality: str, decoded: ImagePixels, *, plan: ItemPlan, options: Mapping[str, JSON]) -> ItemTensors:
        """Returns the image padded to a square, resized and cropped as the checkpoint's image processor does it."""
        image = self.facts.image
        pixels = decoded
        if self._pads(options):
            pixels = pad_to_square(pixels, image.pad_color)
        pixels = resize_pixels(pixels, self._resized_size(pixels.shape[:2]), resample=self._resample(options))
        if image.crop_size is not None:
            pixels = center_crop(pixels, image.crop_size)
        owned = pixels.base is None and pixels is not decoded
        return {"pixel_values": pixels if owned else np.array(pixels, order="C")}

    def _pads(self, options: Mapping[str, JSON]) -> bool:
        pads = options.get("do_pad", self.facts.image.pads_to_square)
        if not isinstance(pads, bool):
            raise InvalidRequestError(f"do_pad must be true or false, not {pads!r}.", stage="plan")
        return pads

    def _resized_size(self, source: tuple[int, ...]) -> tuple[int, int]:
        image = self.facts.image
        height, width = source
        if not image.do_resize:
            return height, width
        if image.size is not None:
            return image.size
        assert image.shortest_edge is not None, "an image config names one edge or both sides"
        return shortest_edge_size((height, width), image.shortest_edge, image.longest_edge)


class LlavaNextProcessor(_ImageProcessor):
    """LLaVA-NeXT. An item is ``pixel_values (1 + num_tiles, edge, edge, 3)`` uint8 RGB, the overview first and the tiles by rows, and
    ``image_sizes (2,)`` int64, the (height, width) of the image.

    Source: transformers 5.24 ``LlavaNextProcessor`` with ``LlavaNextImageProcessor``.
    """

    @property
    def facts(self) -> LlavaNextProcessingInfo:
        """`info`, with its own type."""
        assert isinstance(self.info, LlavaNextProcessingInfo)
        return self.info

    def plan(self, modality: str, header: MediaHeader, *, options: Mapping[str, JSON]) -> ItemPlan:
        """Returns the plan of an image: its tokens follow from its size alone."""
        self._resample(options)
        size = size_of(header)
        layout = self.facts.lay_out(size)
        num_tokens = self.facts.count_tokens(size)
        edge = self.facts.tile_edge
        tensor_bytes = 3 * edge * edge * (1 + layout.rows * layout.columns)
        canvas_bytes = 3 * layout.height * layout.width
        return ItemPlan(
            num_tokens=num_tokens,
            num_embeds=num_tokens,
            grid=(1, layout.rows, layout.columns),
            tensor_bytes=tensor_bytes + 16,
            peak_bytes=resize_peak_bytes(size, layout.resized) + canvas_bytes + tensor_bytes,
        )

    def materialize(self, modality: str, decoded: ImagePixels, *, plan: ItemPlan, options: Mapping[str, JSON]) -> ItemTensors:
        """Returns overview and tiles: the image resized into the layout, black around it."""
        resample = self._resample(options)
        edge = self.facts.tile_edge
        height, width, _ = decoded.shape
        layout = self.facts.lay_out((height, width))
        pixels = np.empty((1 + layout.rows * layout.columns, edge, edge, 3), np.uint8)
        pixels[0] = resize_pixels(decoded, (edge, edge), resample=resample)
        cut_tiles(resize_pixels(decoded, layout.resized, resample=resample), layout, out=pixels[1:])
        return {"pixel_values": pixels, "image_sizes": np.array([height, width], np.int64)}

    def to_transformers(self, modality: str, items: Sequence[ItemTensors]) -> Mapping[str, torch.Tensor]:
        """Returns ``pixel_values (num_images, num_tiles, 3, edge, edge)`` float32, zero behind an image's tiles, and ``image_sizes``."""
        import torch

        tiles = [self._normalize(np.array(item["pixel_values"])) for item in items]
        sizes = np.stack([item["image_sizes"] for item in items])
        padded = torch.nn.utils.rnn.pad_sequence(tiles, batch_first=True)
        return {"pixel_values": padded, "image_sizes": torch.from_numpy(sizes)}


class LlavaDummyInputs(DummyInputsBuilder):
    """The image that takes the most tokens; for both families."""

    def get_largest_header(self, modality: str) -> MediaHeader:
        """Returns the header of that image."""
        assert isinstance(self.info, LlavaProcessingInfo)
        height, width = self.info.largest_size()
        return MediaHeader(modality="image", width=width, height=height, decoded_bytes=3 * height * width)


def size_of(header: MediaHeader) -> tuple[int, int]:
    """Returns (height, width) of an image.

    Raises:
        InvalidRequestError: Its header says nothing about it.
    """
    if not header.height or not header.width:
        raise InvalidRequestError("The image has no size in its header.", stage="plan")
    return header.height, header.width
