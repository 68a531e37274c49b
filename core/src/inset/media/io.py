"""Decoders: what turns the encoded bytes of one modality into media, and names the result before it is made."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, Final, Generic, TypeVar, cast, final

from inset.config import MediaConfig
from inset.errors import InsetError, InvalidRequestError, MediaDecodeError, TooLargeError
from inset.identity import JSON, DecodeSpec, derive_media_key
from inset.media.header import MediaHeader
from inset.media.ref import MediaRef
from inset.registry import load_object

if TYPE_CHECKING:
    from inset.inputs import MediaIOFactory

__all__ = ["MediaIO", "default_media_io", "find_decoder", "format_bytes"]

T = TypeVar("T")

# Import strings, so that `import inset` and listing plugins load none of the decoders' libraries.
_DECODERS: Final = {"image": "inset.media.image:ImageIO", "video": "inset.media.video:VideoIO", "audio": "inset.media.audio:AudioIO"}


class MediaIO(ABC, Generic[T]):
    """Decodes one modality under options that are fixed when it is made.

    A plugin implements `get_decode_spec`, `probe` and `load_bytes`; identity, caps and laziness come from here. All methods may be called
    from several threads at once.
    """

    modality: ClassVar[str]
    """``image``, ``video`` or ``audio``."""

    def __init__(self, config: MediaConfig) -> None:
        self._config = config

    @abstractmethod
    def get_decode_spec(self) -> DecodeSpec:
        """Returns every setting that affects what `load_bytes` gives; the order of options does not matter."""

    @abstractmethod
    def probe(self, data: bytes) -> MediaHeader:
        """Returns what the header says; never decodes, and allocates little whatever the header claims.

        Raises:
            MediaDecodeError: The bytes are not media of this modality.
            TooLargeError: The header promises more than a cap of this decoder.
        """

    @abstractmethod
    def load_bytes(self, data: bytes, header: MediaHeader | None = None) -> T:
        """Decodes, now.

        Whatever else it raises becomes a `MediaDecodeError` in the references that `load_bytes_ref` gives, and so do errors of `probe`.

        Args:
            data: The encoded bytes.
            header: What `probe` gave for these bytes; probed here where it is None.

        Raises:
            MediaDecodeError: The bytes are damaged, or decode to something else than their header says.
        """

    def get_max_bytes(self) -> int:
        """Returns the largest encoded item that this decoder takes, in bytes."""
        return self._config.max_item_download_bytes

    def get_header_settings(self, header: MediaHeader) -> Mapping[str, JSON]:
        """Returns facts of the header that decoding applies, such as an orientation; they become part of the decode spec."""
        return {}

    def derive_key(self, data: bytes, spec: DecodeSpec, header: MediaHeader) -> bytes:
        """Returns the identity of the decoded media, 32 bytes; linear in the payload."""
        return derive_media_key(data, spec)

    @final
    def load_bytes_ref(self, data: bytes, *, on_damage: Callable[[], None] | None = None) -> MediaRef[T]:
        """Returns a reference that decodes on demand, after the header has been probed and held against the caps.

        Linear in the payload, because the key digests it: call it off the event loop.

        Args:
            data: The encoded bytes.
            on_damage: Called when a decode finds the bytes damaged, in the thread that decodes and before the error is raised.

        Raises:
            MediaDecodeError: The bytes are not media of this modality.
            TooLargeError: The item is over a cap on bytes, pixels, seconds or decoded size.
        """
        with _guard(self.modality, "probe"):
            header = self._probe_within_caps(data)
            spec = self.get_decode_spec()
            if settings := self.get_header_settings(header):
                spec = spec.extend(settings)
            key = self.derive_key(data, spec, header)
        return MediaRef(key, spec, data=data, header=header, load=partial(self._load, data, header, on_damage))

    def _probe_within_caps(self, data: bytes) -> MediaHeader:
        if not data:
            raise MediaDecodeError(f"The {self.modality} is empty: it has no bytes.")
        if len(data) > self.get_max_bytes():
            raise TooLargeError(f"The {self.modality} has {format_bytes(len(data))}; {format_bytes(self.get_max_bytes())} are allowed.")
        header = self.probe(data)
        if header.decoded_bytes > self._config.max_item_decoded_bytes:
            raise TooLargeError(
                f"The {self.modality} would decode to {format_bytes(header.decoded_bytes)}; "
                f"{format_bytes(self._config.max_item_decoded_bytes)} are allowed. Send a smaller one."
            )
        return header

    def _load(self, data: bytes, header: MediaHeader, on_damage: Callable[[], None] | None) -> T:
        try:
            with _guard(self.modality, "decode"):
                return self.load_bytes(data, header)
        except MediaDecodeError:
            if on_damage is not None:
                on_damage()
            raise


@contextmanager
def _guard(modality: str, stage: str) -> Iterator[None]:
    """Lets errors of ours pass with their place; whatever else a decoder and the libraries below it raise is the fault of the bytes."""
    try:
        yield
    except InsetError as error:
        error.locate(stage=stage, modality=modality)
        raise
    except (Exception, SystemExit) as error:
        message = f"The {modality} cannot be read: its decoder failed ({type(error).__name__})."
        raise MediaDecodeError(message, stage=stage, modality=modality) from error


def format_bytes(num_bytes: int) -> str:
    """Returns a number of bytes as people read it, such as ``3.5 MiB``."""
    return f"{num_bytes} bytes" if num_bytes < 1024**2 else f"{num_bytes / 1024**2:,.1f} MiB"


def find_decoder(modality: str) -> MediaIOFactory | None:
    """Returns the class of the core's own decoder of a modality, or None where it has none."""
    target = _DECODERS.get(modality)
    return None if target is None else cast("MediaIOFactory", load_object(target))


def default_media_io(modality: str, options: Mapping[str, JSON], config: MediaConfig) -> MediaIO[Any]:
    """Returns the core's own decoder of a modality.

    Raises:
        InvalidRequestError: The modality or one of the options is not known.
    """
    decoder = find_decoder(modality)
    if decoder is None:
        raise InvalidRequestError(f"There is no decoder for the modality {modality!r}; known are {', '.join(_DECODERS)}.")
    media_io: MediaIO[Any] = decoder(options, config)
    return media_io
