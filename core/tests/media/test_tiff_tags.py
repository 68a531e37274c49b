"""TIFF files whose strips and tiles cost far more than their pixels: refused at fetch."""

from __future__ import annotations

import struct
import subprocess
import sys

import pytest

from inset.errors import MediaDecodeError, TooLargeError
from inset.testing.decoded_images import load_image
from inset.testing.sample_images import encode_image, make_pixels

SIDE = 16
BYTE, SHORT, LONG = 1, 3, 4
FACTS = {256: SIDE, 257: SIDE, 258: 8, 259: 1, 262: 1, 277: 1}
STRIPS, ROWS, TILE_WIDTH, TILE_HEIGHT, TILES = 273, 278, 322, 323, 324


def tiff(tags: dict[int, int], offsets_tag: int, num_offsets: int, kind: int = LONG, *, start: bytes = b"II*\0") -> bytes:
    """Returns an uncompressed grey image all of whose strips or tiles are at the beginning of the file."""
    order, is_big = "<" if start.startswith(b"II") else ">", start == b"II+\0"
    head = start + struct.pack(order + ("HHQ" if is_big else "L"), *((8, 0, 16) if is_big else (8,)))
    counter, entry, offset = (order + code for code in (("Q", "HHQQ", "Q") if is_big else ("H", "HHLL", "L")))
    facts = {**FACTS, **tags}
    end = len(head) + struct.calcsize(counter) + struct.calcsize(entry) * (len(facts) + 1) + struct.calcsize(offset)
    entries = {tag: struct.pack(entry, tag, LONG, 1, value) for tag, value in facts.items()}
    entries[offsets_tag] = struct.pack(entry, offsets_tag, kind, num_offsets, end)
    directory = struct.pack(counter, len(entries)) + b"".join(entries[tag] for tag in sorted(entries)) + struct.pack(offset, 0)
    return head + directory + bytes(num_offsets * (1 if kind == BYTE else 4) + SIDE * SIDE)


@pytest.mark.parametrize("start", [b"II*\0", b"MM\0*", b"II+\0"])
def test_countless_strips_are_refused_before_any_is_listed(start: bytes) -> None:
    assert load_image(tiff({ROWS: 1}, STRIPS, SIDE, start=start)).decode().shape == (SIDE, SIDE, 3)
    with pytest.raises(TooLargeError, match="262,144 values") as caught:
        load_image(tiff({ROWS: 1}, STRIPS, 262_145, BYTE, start=start))
    assert (caught.value.stage, caught.value.modality) == ("probe", "image")


def test_tiles_that_cover_the_image_again_and_again_are_refused() -> None:
    sizes = {TILE_WIDTH: SIDE - 8, TILE_HEIGHT: SIDE}
    assert load_image(tiff(sizes, TILES, 2)).decode().shape == (SIDE, SIDE, 3)
    with pytest.raises(MediaDecodeError, match="more strips or tiles than cover it"):
        load_image(tiff(sizes, TILES, 10))


def test_countless_tags_are_refused() -> None:
    with pytest.raises(TooLargeError, match="4,096 tags"):
        load_image(tiff({1000 + number: 0 for number in range(4096)}, STRIPS, 1))


def test_directory_outside_of_the_file_is_an_error() -> None:
    with pytest.raises(MediaDecodeError, match="damaged header"):
        load_image(b"II*\0" + struct.pack("<L", 1000))


@pytest.mark.parametrize("options", [{}, {"big_tiff": True}, {"compression": "tiff_lzw"}, {"compression": "jpeg"}, {"tiffinfo": {278: 1}}])
def test_real_images_are_read(options: dict[str, object]) -> None:
    assert load_image(encode_image(make_pixels(48, 32), "TIFF", **options)).decode().shape == (32, 48, 3)


def test_tags_that_pillow_leaves_out_fill_no_log() -> None:
    """A process of its own, because pytest has filters of its own; Pillow would keep each text that it has warned of, too."""
    data = tiff({}, STRIPS, 1)
    tags = b"".join(struct.pack("<HHLL", 1000 + number, 7, 2**30 + number, 8) for number in range(100))
    num_tags = struct.unpack_from("<H", data, 8)[0]
    hostile = data[:8] + struct.pack("<H", num_tags + 100) + data[10 : 10 + 12 * num_tags] + tags + data[10 + 12 * num_tags :]
    program = "import sys; from inset.testing.decoded_images import load_image; print(load_image(sys.stdin.buffer.read()).header.width)"
    done = subprocess.run([sys.executable, "-c", program], input=hostile, capture_output=True, check=True)
    assert (done.stdout.split(), done.stderr) == ([b"16"], b"")
