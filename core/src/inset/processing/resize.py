"""Resizing, cropping and padding of uint8 pixels, equal to the torchvision backend of transformers' image processors bit for bit."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from inset.errors import InvalidRequestError, MissingExtraError

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

__all__ = ["center_crop", "check_resample", "pad_to_square", "resize_peak_bytes", "resize_pixels", "shortest_edge_size"]

_MODES: Final = {0: "nearest-exact", 2: "bilinear", 3: "bicubic"}
"""Pillow's number of a filter -> torch's name of it."""


def check_resample(resample: object) -> int:
    """Returns the number of a resampling filter that can be used: 0 nearest, 2 bilinear, 3 bicubic.

    Raises:
        InvalidRequestError: It is another one.
    """
    if isinstance(resample, bool) or not isinstance(resample, int | float) or resample not in _MODES:
        raise InvalidRequestError(f"resample must be 0 (nearest), 2 (bilinear) or 3 (bicubic), not {resample!r}.", stage="plan")
    return int(resample)


def resize_pixels(pixels: NDArray[np.uint8], size: tuple[int, int], *, resample: int = 3) -> NDArray[np.uint8]:
    """Returns pixels in another size, with antialiasing; the same array where the size stays.

    Source: torchvision 0.28 ``resize`` of uint8 tensors, which is this kernel of torch.

    Args:
        pixels: ``(..., height, width, 3)`` uint8; frames may lead.
        size: (height, width) in pixels.
        resample: As `check_resample` returns it.
    """
    import numpy as np

    if pixels.shape[-3:-1] == tuple(size):
        return pixels
    torch = _import_torch()
    writable = pixels if pixels.flags.writeable else pixels.copy()  # torch refuses to look at read-only memory without a warning
    batch = torch.from_numpy(writable.reshape(-1, *pixels.shape[-3:])).permute(0, 3, 1, 2)
    mode = _MODES[resample]
    antialias = mode != "nearest-exact"
    resized = torch.nn.functional.interpolate(batch, size=tuple(size), mode=mode, antialias=antialias)
    result = resized.permute(0, 2, 3, 1).numpy()
    return np.ascontiguousarray(result.reshape(*pixels.shape[:-3], *size, pixels.shape[-1]))


def resize_peak_bytes(source: tuple[int, int], size: tuple[int, int]) -> int:
    """Returns the bytes that resizing one RGB image holds at its peak: the source, the image of one pass, and the result."""
    return 3 * (source[0] * source[1] + source[0] * size[1] + size[0] * size[1])


def shortest_edge_size(source: tuple[int, int], edge: int, longest_edge: int | None = None) -> tuple[int, int]:
    """Returns (height, width) with the shorter side at an edge, the ratio kept, the other side rounded down.

    Source: transformers 5.24 ``get_resize_output_image_size``, and ``get_size_with_aspect_ratio`` where the longest edge is limited.
    """
    height, width = source
    short, long = min(source), max(source)
    new_short, new_long = edge, int(edge * long / short)
    if longest_edge is not None and long / short * edge > longest_edge:
        exact = longest_edge * short / long
        new_short = round(exact)
        new_long = int(exact * long / short) if short != new_short else long
    return (new_short, new_long) if height <= width else (new_long, new_short)


def center_crop(pixels: NDArray[np.uint8], size: tuple[int, int]) -> NDArray[np.uint8]:
    """Returns the middle of ``(height, width, channels)`` pixels; what lies outside is black.

    Source: transformers 5.24 ``TorchvisionBackend.center_crop``.
    """
    import numpy as np

    crop_height, crop_width = size
    height, width, _ = pixels.shape
    if crop_height > height or crop_width > width:
        canvas = np.zeros((max(height, crop_height), max(width, crop_width), pixels.shape[2]), np.uint8)
        top, left = max(crop_height - height, 0) // 2, max(crop_width - width, 0) // 2
        canvas[top : top + height, left : left + width] = pixels
        pixels = canvas
        height, width, _ = pixels.shape
    top, left = int((height - crop_height) / 2.0), int((width - crop_width) / 2.0)
    return pixels[top : top + crop_height, left : left + crop_width]


def pad_to_square(pixels: NDArray[np.uint8], color: tuple[int, int, int]) -> NDArray[np.uint8]:
    """Returns ``(height, width, 3)`` pixels in the middle of a square of their longer side.

    Source: transformers 5.24 ``LlavaImageProcessor.pad_to_square``.
    """
    import numpy as np

    height, width, channels = pixels.shape
    if height == width:
        return pixels
    edge = max(height, width)
    square = np.empty((edge, edge, channels), np.uint8)
    square[:] = color
    top, left = (edge - height) // 2, (edge - width) // 2
    square[top : top + height, left : left + width] = pixels
    return square


def _import_torch() -> Any:
    try:
        import torch
    except ImportError as error:
        raise MissingExtraError("Resizing images needs torch. Install it with: pip install 'inset[engine]'") from error
    return torch
