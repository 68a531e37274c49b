"""The decoder's base class and the core's own choice of decoders."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping

import pytest

from inset.config import MediaConfig
from inset.errors import InvalidRequestError, MediaDecodeError, TooLargeError
from inset.identity import JSON, DecodeSpec, derive_media_key
from inset.media.header import MediaHeader
from inset.media.io import MediaIO, default_media_io, format_bytes

CONFIG = MediaConfig(max_item_download_bytes=100, max_item_decoded_bytes=50)


class TextIO(MediaIO[str]):
    """Decodes text, and counts."""

    modality = "image"
    num_decodes = 0

    def get_decode_spec(self) -> DecodeSpec:
        return DecodeSpec({"encoding": "utf-8"})

    def get_header_settings(self, header: MediaHeader) -> Mapping[str, JSON]:
        return {"orientation": header.orientation}

    def probe(self, data: bytes) -> MediaHeader:
        if data.startswith(b"?"):
            raise MediaDecodeError("This is no text.")
        return MediaHeader(modality="image", orientation=3, decoded_bytes=len(data))

    def load_bytes(self, data: bytes, header: MediaHeader | None = None) -> str:
        self.num_decodes += 1
        return data.decode()


def test_reference_has_header_facts_in_its_spec_and_the_spec_in_its_key() -> None:
    io = TextIO(CONFIG)
    ref = io.load_bytes_ref(b"hello")
    assert ref.spec.settings == {"encoding": "utf-8", "orientation": 3}
    assert ref.key == derive_media_key(b"hello", ref.spec)
    assert (io.num_decodes, ref.decode(), io.num_decodes) == (0, "hello", 1)


@pytest.mark.parametrize(
    ("data", "error", "message"),
    [
        (b"", MediaDecodeError, "no bytes"),
        (b"?", MediaDecodeError, "no text"),
        (bytes(101), TooLargeError, "100 bytes are allowed"),
        (bytes(51), TooLargeError, "would decode to 51 bytes"),
    ],
)
def test_refusals_at_fetch_name_stage_and_modality(data: bytes, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message) as caught:
        TextIO(CONFIG).load_bytes_ref(data)
    assert (caught.value.stage, caught.value.modality) == ("probe", "image")  # type: ignore[attr-defined]


@pytest.mark.parametrize("failure", [ZeroDivisionError, UnicodeError, SystemExit])
def test_whatever_a_decoder_raises_is_a_decode_error_with_its_place(failure: type[BaseException]) -> None:
    class BrokenIO(TextIO):
        broken_at = "probe"

        def probe(self, data: bytes) -> MediaHeader:
            if self.broken_at == "probe":
                raise failure("secret")
            return super().probe(data)

        def load_bytes(self, data: bytes, header: MediaHeader | None = None) -> str:
            raise failure("secret")

    io = BrokenIO(CONFIG)
    with pytest.raises(MediaDecodeError, match=failure.__name__) as caught:
        io.load_bytes_ref(b"hello")
    assert (caught.value.stage, caught.value.modality) == ("probe", "image")
    io.broken_at = "decode"
    reports: list[str] = []
    ref = io.load_bytes_ref(b"hello", on_damage=lambda: reports.append("damage"))
    with pytest.raises(MediaDecodeError, match=failure.__name__) as caught:
        ref.decode()
    assert (caught.value.stage, caught.value.modality, reports) == ("decode", "image", ["damage"])
    assert "secret" not in str(caught.value)


def test_default_decoder_of_an_unknown_modality_is_refused_by_name() -> None:
    with pytest.raises(InvalidRequestError, match="'smell'"):
        default_media_io("smell", {}, CONFIG)


def test_default_decoders_take_their_options_and_refuse_others() -> None:
    assert default_media_io("image", {"image_mode": "L"}, CONFIG).get_decode_spec().settings["image_mode"] == "L"
    for modality in ("image", "video", "audio"):
        assert default_media_io(modality, {}, CONFIG).modality == modality
        with pytest.raises(InvalidRequestError, match="colour_mode"):
            default_media_io(modality, {"colour_mode": "L"}, CONFIG)


def test_numbers_of_bytes_read_as_people_write_them() -> None:
    assert [format_bytes(value) for value in (0, 1023, 3 * 1024**2, 5 * 1024**3)] == ["0 bytes", "1023 bytes", "3.0 MiB", "5,120.0 MiB"]


def test_importing_the_base_class_loads_no_decoding_library() -> None:
    code = "import sys, inset.media.io, inset.media.ref, inset.media.budget, inset.media.executor, inset.media.decoded\n"
    code += "print([m for m in ('PIL', 'av', 'soundfile', 'soxr', 'torch', 'transformers') if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.strip() == "[]"
