"""Decodes images to upright RGB pixels."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, ClassVar

from PIL import Image
from PIL.AvifImagePlugin import AvifImageFile
from PIL.TiffImagePlugin import TiffImageFile

from inset.config import MediaConfig
from inset.errors import InsetError, MediaDecodeError, TooLargeError
from inset.identity import IDENTITY_SCHEMA, JSON, DecodeSpec, framed_sha256
from inset.media.avif_boxes import check_avif_frames
from inset.media.header import MediaHeader
from inset.media.image_header import open_image
from inset.media.image_orientation import find_image_id, find_orientation
from inset.media.image_peak import image_peak_bytes
from inset.media.image_pixels import NUM_CHANNELS, convert_mode, pixels_of, turn_upright
from inset.media.io import MediaIO
from inset.media.options import MediaOptions
from inset.media.tiff_tags import check_tiff_tiles

if TYPE_CHECKING:
    from inset.media.decoded import ImagePixels

__all__ = ["ImageIO"]


class ImageIO(MediaIO["ImagePixels"]):
    """Decodes images to ``(height, width, channels)`` uint8 arrays: upright, on a background, first frame.

    Options: `image_mode` (``RGB``, ``L`` or ``RGBA``; RGB by default) and `rgba_background_color` (three levels from 0 to 255; white by
    default), on which transparent parts are laid.
    """

    modality: ClassVar[str] = "image"

    def __init__(self, options: Mapping[str, JSON], config: MediaConfig) -> None:
        """Makes a decoder.

        Raises:
            InvalidRequestError: An option is unknown or has a wrong value.
        """
        super().__init__(config)
        reader = MediaOptions(self.modality, options)
        self._mode = reader.choice("image_mode", "RGB", tuple(NUM_CHANNELS))
        self._background = reader.colour("rgba_background_color", (255, 255, 255))
        reader.finish()

    def get_decode_spec(self) -> DecodeSpec:
        """Returns the mode and the background."""
        return DecodeSpec({"image_mode": self._mode, "rgba_background_color": self._background})

    def get_header_settings(self, header: MediaHeader) -> Mapping[str, JSON]:
        """Returns the orientation that decoding applies."""
        return {"orientation": header.orientation}

    def derive_key(self, data: bytes, spec: DecodeSpec, header: MediaHeader) -> bytes:
        """Returns the identity: from the bytes, or from a trusted ImageID and the size, so that no placeholder can be another's."""
        if header.image_id is None:
            return super().derive_key(data, spec, header)
        size = f"{header.width}x{header.height}".encode()
        return framed_sha256(IDENTITY_SCHEMA, b"exif-image-id", header.image_id, size, spec.canonical_bytes())

    def probe(self, data: bytes) -> MediaHeader:
        """Returns size after orientation, format and mode; never decodes.

        Raises:
            MediaDecodeError: The bytes are not an image in a format that is read.
            TooLargeError: The image has too many pixels, or parts such as chunks, segments or scans.
        """
        image = open_image(data)
        width, height = image.size
        if width < 1 or height < 1:
            raise MediaDecodeError(f"The image has no pixels: its header says {width}x{height}.")
        if width * height > self._config.max_image_pixels:
            raise TooLargeError(f"The image has {width}x{height} pixels; {self._config.max_image_pixels:,} in all are allowed.")
        if isinstance(image, TiffImageFile):
            check_tiff_tiles(image)
        elif isinstance(image, AvifImageFile):
            check_avif_frames(data, width * height)
        orientation = find_orientation(image, data)
        if orientation >= 5:
            width, height = height, width
        return MediaHeader(
            modality=self.modality,
            format=image.format or "",
            width=width,
            height=height,
            mode=image.mode,
            orientation=orientation,
            decoded_bytes=width * height * NUM_CHANNELS[self._mode],
            peak_bytes=image_peak_bytes(image),
            image_id=find_image_id(image, data) if self._config.trust_exif_image_id else None,
        )

    def load_bytes(self, data: bytes, header: MediaHeader | None = None) -> ImagePixels:
        """Decodes to a fresh array ``(height, width, channels)`` uint8 in [0, 255].

        Raises:
            MediaDecodeError: The image is truncated or damaged, or has another size than its header said.
        """
        header = header or self.probe(data)
        try:
            image = open_image(data)
            image.load()
            image = convert_mode(image, self._mode, self._background)
            image = turn_upright(image, header.orientation)
            self._check_size(image, header)
            return pixels_of(image)
        except InsetError:
            raise
        except Exception as error:  # Pillow's codecs raise almost anything on damaged files
            raise MediaDecodeError(f"The {header.format} image is truncated or damaged.") from error

    def _check_size(self, image: Image.Image, header: MediaHeader) -> None:
        if image.size != (header.width, header.height):
            width, height = image.size
            raise MediaDecodeError(f"The image decodes to {width}x{height} pixels, but its header said {header.width}x{header.height}.")
