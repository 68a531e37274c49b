"""What every media decoder must show. Inherit `MediaIOConformance` and say how to make the decoder and its media."""

from __future__ import annotations

import copy
import logging
import pickle
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any, ClassVar

import numpy as np
import pytest

from inset.config import MediaConfig
from inset.errors import ClientError, InvalidRequestError, MediaDecodeError, TooLargeError
from inset.identity import JSON
from inset.media.header import MediaHeader
from inset.media.io import MediaIO
from inset.media.ref import MediaRef

__all__ = ["MediaIOConformance"]

_TIME_LIMIT_SECONDS = 60.0


class MediaIOConformance(ABC):
    """Inherited tests of a `MediaIO`; a subclass gives the decoder, media that it reads, and options that it takes.

    Attributes:
        options: Valid options, at least one of them away from its default.
        other_options: Valid options under which the same bytes are another item.
    """

    options: ClassVar[Mapping[str, JSON]]
    other_options: ClassVar[Mapping[str, JSON]]

    @abstractmethod
    def make_io(self, options: Mapping[str, JSON], config: MediaConfig) -> MediaIO[Any]:
        """Returns the decoder under test."""

    @abstractmethod
    def make_media(self) -> bytes:
        """Returns small valid media."""

    @abstractmethod
    def make_bomb(self) -> bytes:
        """Returns media that decode to far more than their own size; the suite runs it against a decoded-size cap of 1 MiB."""

    @abstractmethod
    def check_decoded(self, decoded: Any, header: MediaHeader) -> None:
        """Asserts that what was decoded is what `make_media` was made from, and what the header said."""

    @abstractmethod
    def array_of(self, decoded: Any) -> np.ndarray[Any, Any]:
        """Returns the pixels or samples of a decoded item."""

    def load(self, data: bytes, options: Mapping[str, JSON] | None = None, config: MediaConfig | None = None) -> MediaRef[Any]:
        """Returns a reference under the options and caps given."""
        return self.make_io(options or {}, config or MediaConfig()).load_bytes_ref(data)

    def test_decoding_gives_what_was_encoded_and_what_the_header_said(self) -> None:
        ref = self.load(self.make_media())
        assert not ref.is_decoded
        self.check_decoded(ref.decode(), ref.header)
        assert ref.is_decoded

    def test_decoded_size_stays_within_what_the_header_announced(self) -> None:
        ref = self.load(self.make_media())
        assert 0 < self.array_of(ref.decode()).nbytes <= ref.header.decoded_bytes

    def test_load_bytes_gives_the_same_as_a_reference(self) -> None:
        data = self.make_media()
        direct = self.make_io({}, MediaConfig()).load_bytes(data)
        np.testing.assert_array_equal(self.array_of(direct), self.array_of(self.load(data).decode()))

    def test_the_same_bytes_decode_to_the_same_array_each_time(self) -> None:
        data = self.make_media()
        np.testing.assert_array_equal(self.array_of(self.load(data).decode()), self.array_of(self.load(data).decode()))

    def test_decoded_arrays_are_contiguous_and_writable(self) -> None:
        array = self.array_of(self.load(self.make_media()).decode())
        assert array.flags.c_contiguous
        assert array.flags.writeable

    def test_key_does_not_depend_on_the_order_of_options(self) -> None:
        data = self.make_media()
        turned = dict(reversed(list(self.options.items())))
        assert self.load(data, self.options).key == self.load(data, turned).key

    def test_key_depends_on_options_and_on_bytes(self) -> None:
        data = self.make_media()
        keys = {self.load(data).key, self.load(data, self.other_options).key}
        assert len(keys) == 2
        assert all(len(key) == 32 for key in keys)

    def test_a_default_said_aloud_is_the_same_item(self) -> None:
        data = self.make_media()
        nothing_said: dict[str, JSON] = dict.fromkeys(self.options)
        assert self.load(data).key == self.load(data, nothing_said).key

    def test_spec_of_a_reference_holds_the_spec_of_its_decoder(self) -> None:
        io = self.make_io(self.options, MediaConfig())
        ref = io.load_bytes_ref(self.make_media())
        assert io.get_decode_spec().settings.items() <= ref.spec.settings.items()

    def test_unknown_option_is_refused_by_name(self) -> None:
        with pytest.raises(InvalidRequestError, match="no_such_option"):
            self.make_io({"no_such_option": 1}, MediaConfig())

    @pytest.mark.parametrize("data", [b"", b"\0", b"\xff", b"not media at all", bytes(4096)], ids=["empty", "zero", "one", "text", "zeros"])
    def test_what_is_not_media_is_refused_at_fetch(self, data: bytes) -> None:
        with pytest.raises(MediaDecodeError) as caught:
            self.load(data)
        assert caught.value.stage == "probe"
        assert caught.value.modality == self.make_io({}, MediaConfig()).modality

    @pytest.mark.parametrize("share", [0.02, 0.1, 0.5, 0.9])
    def test_truncated_media_is_an_error_or_less_media_never_a_crash(self, share: float) -> None:
        data = self.make_media()
        try:
            decoded = self.load(data[: int(len(data) * share)]).decode()
        except MediaDecodeError as error:
            assert error.modality == self.make_io({}, MediaConfig()).modality  # noqa: PT017 - either outcome is right
        else:
            self.check_truncated(decoded)

    def check_truncated(self, decoded: Any) -> None:
        """Asserts what may be left of truncated media; nothing may, unless a subclass says otherwise."""
        raise AssertionError("truncated media decoded without an error")

    @pytest.mark.parametrize("position", [0.1, 0.3, 0.5, 0.7, 0.9])
    def test_damaged_media_is_a_client_error_or_decodes(self, position: float) -> None:
        data = bytearray(self.make_media())
        start = int(len(data) * position)
        data[start : start + 64] = bytes(len(data[start : start + 64]))
        try:
            self.load(bytes(data)).decode()
        except ClientError as error:
            assert error.stage in {"probe", "decode"}  # noqa: PT017 - either outcome is right

    def test_bytes_behind_the_end_change_nothing_but_the_name(self) -> None:
        data = self.make_media()
        longer = self.load(data + bytes(100))
        assert longer.key != self.load(data).key
        self.check_decoded(longer.decode(), longer.header)

    def test_bomb_is_refused_before_it_is_decoded(self) -> None:
        with pytest.raises(TooLargeError, match="allowed") as caught:
            self.load(self.make_bomb(), config=MediaConfig(max_item_decoded_bytes=1024**2))
        assert caught.value.stage == "probe"

    def test_encoded_cap_is_held(self) -> None:
        data = self.make_media()
        with pytest.raises(TooLargeError, match="allowed"):
            self.load(data, config=MediaConfig(max_item_download_bytes=len(data) - 1))

    def test_sixteen_threads_decode_once(self) -> None:
        io = self.make_io({}, MediaConfig())
        counted = _CountingIO(io)
        ref = counted.load_bytes_ref(self.make_media())
        start = threading.Barrier(16, timeout=_TIME_LIMIT_SECONDS)

        def decode() -> Any:
            start.wait()
            return ref.decode()

        with ThreadPoolExecutor(16) as pool:
            results = [future.result(_TIME_LIMIT_SECONDS) for future in [pool.submit(decode) for _ in range(16)]]
        assert counted.num_decodes == 1
        assert all(result is results[0] for result in results)

    def test_nothing_decodes_by_accident(self, caplog: pytest.LogCaptureFixture) -> None:
        ref = self.load(self.make_media())
        for look in _GLANCES:
            look(ref)
        with caplog.at_level(logging.INFO):
            logging.getLogger("inset.testing").info("%s %r", ref, ref)
        assert not ref.is_decoded

    def test_pickling_materialises_and_keeps_name_spec_and_header(self) -> None:
        ref = self.load(self.make_media(), self.options)
        restored: MediaRef[Any] = pickle.loads(pickle.dumps(ref))  # noqa: S301 - our own bytes
        assert restored.is_decoded
        assert (restored.key, restored.spec, restored.header, restored.data) == (ref.key, ref.spec, ref.header, b"")
        np.testing.assert_array_equal(self.array_of(restored.decode()), self.array_of(ref.decode()))


_GLANCES: tuple[Callable[[MediaRef[Any]], object], ...] = (
    repr,
    str,
    bool,
    hash,
    copy.copy,
    copy.deepcopy,
    np.asarray,
    lambda ref: ref == ref,
    lambda ref: ref.fork(),
    lambda ref: ref.map(lambda media: media, step="none"),
    lambda ref: (ref.key, ref.spec, ref.header, ref.data),
    lambda ref: [hasattr(ref, name) for name in ("shape", "size", "mode", "__array__", "__iter__", "__len__", "__getitem__")],
)


class _CountingIO(MediaIO[Any]):
    """Counts the decodes of another decoder."""

    modality = "counted"

    def __init__(self, inner: MediaIO[Any]) -> None:
        super().__init__(MediaConfig())
        self._inner = inner
        self.num_decodes = 0

    def get_decode_spec(self) -> Any:
        return self._inner.get_decode_spec()

    def probe(self, data: bytes) -> MediaHeader:
        return self._inner.probe(data)

    def load_bytes(self, data: bytes, header: MediaHeader | None = None) -> Any:
        self.num_decodes += 1
        return self._inner.load_bytes(data, header)
