"""What decoding makes of an image file, by the core and by Pillow alone, for tests that hold one against the other."""

from __future__ import annotations

import io
from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageOps

from inset.config import MediaConfig
from inset.identity import JSON
from inset.media.image import ImageIO
from inset.media.ref import MediaRef

__all__ = ["decode_image", "load_image", "pillow_rgb"]


def load_image(data: bytes, options: Mapping[str, JSON] | None = None, config: MediaConfig | None = None) -> MediaRef[NDArray[np.uint8]]:
    """Returns the reference of an image file that is not decoded yet.

    Raises:
        InsetError: What the core says of such a file.
    """
    return ImageIO(options or {}, config or MediaConfig()).load_bytes_ref(data)


def decode_image(data: bytes, options: Mapping[str, JSON] | None = None) -> NDArray[np.uint8]:
    """Returns uint8 ``(height, width, channels)``, checked against what the header promised.

    Raises:
        InsetError: What the core says of such a file.
        AssertionError: The header promised another size.
    """
    ref = load_image(data, options)
    array = ref.decode()
    assert array.shape[:2] == (ref.header.height, ref.header.width)
    assert array.nbytes == ref.header.decoded_bytes
    assert array.dtype == np.uint8
    assert array.flags.c_contiguous
    return array


def pillow_rgb(data: bytes) -> NDArray[np.uint8]:
    """Returns what Pillow alone makes of a file without transparency: uint8 ``(height, width, 3)``, upright."""
    image = Image.open(io.BytesIO(data))
    return np.asarray(ImageOps.exif_transpose(image).convert("RGB"))
