"""A decoder that takes any bytes for what they are, for tests of everything but decoding."""

from __future__ import annotations

from typing import ClassVar

from inset.config import MediaConfig
from inset.errors import MediaDecodeError
from inset.identity import DecodeSpec
from inset.media.header import MediaHeader
from inset.media.io import MediaIO

__all__ = ["EncodedAudioIO", "EncodedBytesIO", "EncodedVideoIO"]


class EncodedBytesIO(MediaIO[bytes]):
    """Decodes to the encoded bytes themselves; refuses what begins with ``<``, as a page does, and counts its work.

    Attributes:
        num_probes: How often bytes were probed.
        num_decodes: How often bytes were decoded.
    """

    modality: ClassVar[str] = "image"

    def __init__(self, *, max_bytes: int | None = None, setting: str = "") -> None:
        """Makes a decoder.

        Args:
            max_bytes: Its cap; the default of the options when None.
            setting: Part of the decode spec, so that decoders can be told apart by the keys that they give.
        """
        super().__init__(MediaConfig())
        self.num_probes = 0
        self.num_decodes = 0
        self._max_bytes = max_bytes
        self._setting = setting

    def get_decode_spec(self) -> DecodeSpec:
        """Returns the setting."""
        return DecodeSpec({"setting": self._setting})

    def get_max_bytes(self) -> int:
        """Returns the cap."""
        return super().get_max_bytes() if self._max_bytes is None else self._max_bytes

    def probe(self, data: bytes) -> MediaHeader:
        """Returns a header that states nothing but the modality."""
        self.num_probes += 1
        if data.startswith(b"<"):
            raise MediaDecodeError(f"The bytes are not {self.modality}: they are a page.")
        return MediaHeader(modality=self.modality, decoded_bytes=len(data))

    def load_bytes(self, data: bytes, header: MediaHeader | None = None) -> bytes:
        """Returns the bytes."""
        self.num_decodes += 1
        return data


class EncodedVideoIO(EncodedBytesIO):
    """The same under the name of a video."""

    modality: ClassVar[str] = "video"


class EncodedAudioIO(EncodedBytesIO):
    """The same under the name of audio."""

    modality: ClassVar[str] = "audio"
