"""PNG files that ask for far more work than they have bytes: refused at fetch, before Pillow inflates anything."""

from __future__ import annotations

import zlib

import pytest

from inset.errors import TooLargeError
from inset.testing.decoded_images import load_image
from inset.testing.sample_images import make_png, png_chunk

ROWS = zlib.compress(bytes(25 * 8))
XMP = b'<rdf:Description tiff:Orientation="6"/>'


def png(*, before: bytes = b"", behind: bytes = b"") -> bytes:
    return make_png(8, 8, bit_depth=8, colour_type=2, packed_rows=ROWS, before=before, behind=behind)


def broken_text(kind: bytes) -> bytes:
    """Inflates to almost 1 MiB before it turns out to be broken."""
    packer = zlib.compressobj(9)
    stream = packer.compress(bytes(1024**2 - 4096)) + packer.flush(zlib.Z_FULL_FLUSH) + b"\x07\xff\xff\xff"
    return png_chunk(
        kind, {b"iTXt": b"XML:com.adobe.xmp\0\1\0\0\0", b"zTXt": b"Raw profile type exif\0\0", b"iCCP": b"icc\0\0"}[kind] + stream
    )


@pytest.mark.parametrize("place", ["before", "behind"])
@pytest.mark.parametrize("kind", [b"iTXt", b"zTXt", b"iCCP"])
def test_countless_compressed_chunks_are_refused_before_any_is_inflated(kind: bytes, place: str, monkeypatch: pytest.MonkeyPatch) -> None:
    data = png(**{place: broken_text(kind) * 65})
    inflations: list[object] = []
    monkeypatch.setattr(zlib, "decompressobj", lambda *args: inflations.append(args))
    with pytest.raises(TooLargeError, match="64 compressed texts and profiles") as caught:
        load_image(data)
    assert (caught.value.stage, caught.value.modality, inflations) == ("probe", "image", [])


def test_broken_text_hides_no_whole_one() -> None:
    whole = png_chunk(b"iTXt", b"XML:com.adobe.xmp\0\0\0\0\0" + XMP)
    assert load_image(png(behind=broken_text(b"iTXt") + broken_text(b"zTXt") + whole)).header.orientation == 6


def test_countless_chunks_of_any_kind_are_refused() -> None:
    assert load_image(png(before=png_chunk(b"teSt", b"") * 1000)).header.width == 8
    with pytest.raises(TooLargeError, match="65,536 chunks"):
        load_image(png(behind=png_chunk(b"teSt", b"") * 65_536))
