"""Names items by their content: the key of a reference, or a digest of media that came decoded."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final

from inset.errors import InvalidRequestError, MediaDecodeError
from inset.identity import IDENTITY_SCHEMA, framed_sha256
from inset.media.decoded import AudioSamples, VideoFrames
from inset.media.ref import MediaRef
from inset.processing.given_media import is_pil_image, to_array

if TYPE_CHECKING:
    from PIL import Image

__all__ = ["MultiModalHasher"]

_ACCEPTED: Final = "a MediaRef, a PIL image, an array, a tensor, bytes, text, a number, or a list or mapping of these"


class MultiModalHasher:
    """Digests of items. Fetched media is never decoded for it; there is no pickling, so an unknown type is an error."""

    @classmethod
    def hash_item(cls, item: object) -> bytes:
        """Returns the media key of one item, 32 bytes.

        Linear in the size of media that came decoded; constant for a `MediaRef`, whose key is taken as it is.

        Raises:
            InvalidRequestError: The item, or something inside it, has a type that cannot be named by its content.
            MediaDecodeError: A PIL image was opened, and its pixels cannot be read.
        """
        if isinstance(item, MediaRef):
            return item.key
        return framed_sha256(IDENTITY_SCHEMA, b"given", *cls.serialize_item(item))

    @classmethod
    def serialize_item(cls, item: object) -> Iterator[bytes | memoryview]:
        """Yields the parts that name an item: for each value its type, its structure and its content.

        Every container states how many parts it has, so that no two different items yield the same parts.

        Raises:
            InvalidRequestError: A type cannot be named by its content.
        """
        if isinstance(item, MediaRef):
            yield from (b"ref", item.key)
        elif is_pil_image(item):
            yield from _serialize_image(item)  # type: ignore[arg-type]
        elif isinstance(item, VideoFrames):
            facts = [item.total_num_frames, item.fps, item.duration_seconds, list(item.frame_indices), list(item.timestamps_seconds)]
            yield b"video"
            yield from cls.serialize_item([item.frames, *facts])
        elif isinstance(item, AudioSamples):
            yield b"audio"
            yield from cls.serialize_item([item.samples, item.sampling_rate])
        elif isinstance(item, bytes | bytearray | memoryview):
            yield from (b"bytes", memoryview(item))
        elif item is None or isinstance(item, str | bool | int | float):
            yield from (type(item).__name__.encode(), repr(item).encode("utf-8", "surrogatepass"))
        elif isinstance(item, list | tuple):
            yield from (b"list", len(item).to_bytes(8, "big"))
            for part in item:
                yield from cls.serialize_item(part)
        elif isinstance(item, Mapping):
            yield from (b"mapping", len(item).to_bytes(8, "big"))
            for name in sorted(item, key=str):
                yield from cls.serialize_item([str(name), item[name]])
        else:
            yield from _serialize_array(item)


def _serialize_image(image: Image.Image) -> Iterator[bytes]:
    """Pixels alone do not name an image: the same bytes show something else in another size, mode or palette."""
    try:
        pixels = image.tobytes()
        colours = _palette_colours(image) if image.mode in ("P", "PA") else b""
    except MemoryError:
        raise
    except Exception as error:  # a file that Pillow had opened and not yet read
        raise MediaDecodeError(f"The image could not be decoded ({type(error).__name__}).", stage="decode") from error
    yield from (b"image", image.mode.encode(), repr(image.size).encode())
    yield colours
    yield repr(image.info.get("transparency")).encode()
    yield pixels


def _palette_colours(image: Image.Image) -> bytes:
    """What each of 256 pixel values shows, by the conversion that decoding uses.

    The alpha of an entry may stand in the palette, in `Image.info`, or in both: Pillow writes the one into the other while it converts.
    """
    swatch = image.crop((0, 0, 256, 1))
    swatch.putdata([(value, 255) for value in range(256)] if image.mode == "PA" else range(256))
    shown = swatch.convert("RGBA" if swatch.has_transparency_data else "RGB")
    return shown.mode.encode() + shown.tobytes()


def _serialize_array(item: object) -> Iterator[bytes | memoryview]:
    import numpy as np

    array: np.ndarray[Any, Any] | None = to_array(item)
    if array is None or array.dtype.hasobject:
        raise InvalidRequestError(f"A {type(item).__name__} cannot be named by its content. Accepted are {_ACCEPTED}.", stage="parse")
    kind = "bfloat16" if str(getattr(item, "dtype", "")) == "torch.bfloat16" else array.dtype.str
    yield from (b"array", kind.encode(), repr(array.shape).encode())
    yield memoryview(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data)
