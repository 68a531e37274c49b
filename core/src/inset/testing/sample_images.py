"""Images made on the spot, whole and broken, for tests and benchmarks."""

from __future__ import annotations

import io
import struct
import zlib
from typing import TYPE_CHECKING, Any

import numpy as np
from PIL import Image

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["deflated_zeros", "encode_image", "exif_block", "make_pixels", "make_png", "png_chunk"]


def make_pixels(width: int, height: int) -> NDArray[np.uint8]:
    """Returns ``(height, width, 3)`` uint8 RGB with another colour in each corner, so that every turn shows."""
    across = np.linspace(0, 255, width, dtype=np.uint8)[None, :]
    down = np.linspace(255, 0, height, dtype=np.uint8)[:, None]
    return np.ascontiguousarray(np.stack(np.broadcast_arrays(across, down, across // 2 + down // 2), axis=-1), dtype=np.uint8)


def encode_image(image: Image.Image | NDArray[Any], image_format: str, **options: Any) -> bytes:
    """Returns an image, or an array of pixels, as a file in one of Pillow's formats."""
    buffer = io.BytesIO()
    whole = image if isinstance(image, Image.Image) else Image.fromarray(image)
    whole.save(buffer, image_format, **options)
    return buffer.getvalue()


def png_chunk(kind: bytes, body: bytes) -> bytes:
    """Returns one PNG chunk with its length and checksum."""
    return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))


def make_png(
    width: int, height: int, *, bit_depth: int, colour_type: int, packed_rows: bytes, before: bytes = b"", behind: bytes = b""
) -> bytes:
    """Returns a PNG with any header, any deflated rows, and chunks before and behind them."""
    header = struct.pack(">IIBBBBB", width, height, bit_depth, colour_type, 0, 0, 0)
    parts = [b"\x89PNG\r\n\x1a\n", png_chunk(b"IHDR", header), before, png_chunk(b"IDAT", packed_rows), behind, png_chunk(b"IEND", b"")]
    return b"".join(parts)


def deflated_zeros(num_bytes: int) -> bytes:
    """Returns that many zero bytes, deflated without ever holding them."""
    packer = zlib.compressobj(9)
    block = bytes(1024**2)
    parts = [packer.compress(block) for _ in range(num_bytes // len(block))]
    return b"".join([*parts, packer.compress(bytes(num_bytes % len(block))), packer.flush()])


def exif_block(orientation: int, *, image_id: str | None = None) -> bytes:
    """Returns an EXIF block with an orientation, 1 to 8, and an ImageID."""
    exif = Image.Exif()
    exif[0x0112] = orientation
    if image_id is not None:
        exif[0x800D] = image_id
    return exif.tobytes()
