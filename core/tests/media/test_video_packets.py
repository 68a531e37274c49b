"""Packets that ask for far more work than a picture is: refused before their decoder sees them."""

from __future__ import annotations

import io
from collections.abc import Sequence
from contextlib import nullcontext
from fractions import Fraction
from typing import Any

import av
import pytest

from inset.config import MediaConfig
from inset.errors import TooLargeError
from inset.media.video import VideoIO
from inset.media.video_packets import check_packet
from inset.testing.sample_clips import make_video
from inset.testing.sample_images import encode_image, make_pixels

JPEG = encode_image(make_pixels(64, 48), "JPEG", progressive=True)
SCAN = JPEG[JPEG.rindex(b"\xff\xda") : -2]
EMPTY_FRAME = b"\x32\0"
EMPTY_PADDING = b"\x7a\0"


def mux(codec: str, packets: Sequence[bytes], extradata: bytes | None = None) -> bytes:
    buffer = io.BytesIO()
    with av.open(buffer, "w", format="matroska") as output:
        stream: Any = output.add_stream(codec, rate=10)
        stream.width, stream.height, stream.pix_fmt, stream.time_base = (
            64,
            48,
            "yuvj420p" if codec == "mjpeg" else "yuv420p",
            Fraction(1, 10),
        )
        if extradata is not None:
            stream.codec_context.extradata = extradata
        for number, coded in enumerate(packets):
            packet: Any = av.Packet(coded)
            packet.pts = packet.dts = number
            packet.stream, packet.time_base, packet.is_keyframe = stream, Fraction(1, 10), True
            output.mux(packet)
    return buffer.getvalue()


def load(data: bytes) -> tuple[int, ...]:
    return VideoIO({"num_frames": -1}, MediaConfig()).load_bytes_ref(data).decode().frames.shape


def test_picture_of_countless_scans_is_refused() -> None:
    assert load(mux("mjpeg", [JPEG, JPEG])) == (2, 48, 64, 3)
    with pytest.raises(TooLargeError, match="64 scans") as caught:
        load(mux("mjpeg", [JPEG, JPEG[:-2] + SCAN * 64 + JPEG[-2:]]))
    assert (caught.value.stage, caught.value.modality) == ("decode", "video")


def test_packet_of_countless_hidden_frames_is_refused() -> None:
    clip = make_video(2, container="matroska", codec="libsvtav1", options={"preset": "12"})
    with av.open(io.BytesIO(clip)) as container:
        extradata = container.streams.video[0].codec_context.extradata
        packets = [bytes(packet) for packet in container.demux(video=0) if packet.size]
    assert load(mux("libsvtav1", packets, extradata)) == (2, 48, 64, 3)
    with pytest.raises(TooLargeError, match="more than 64 frames"):
        load(mux("libsvtav1", [packets[0], packets[1] + EMPTY_FRAME * 64], extradata))


@pytest.mark.parametrize(
    ("units", "is_too_much"),
    [
        (b"", False),
        (EMPTY_FRAME * 64, False),
        (EMPTY_FRAME * 65, True),
        (EMPTY_PADDING * 4096, False),
        (EMPTY_PADDING * 4097, True),
        (b"\x36\0\0" * 65, True),
        (b"\x1a\0" * 65, True),
        (b"\x32\x80\1" + bytes(128) + EMPTY_FRAME * 64, True),
        (b"\x32\xc8\1" + EMPTY_FRAME * 100, False),
        (b"\x30" + EMPTY_FRAME * 100, False),
        (b"\x32" + b"\xff" * 100, False),
    ],
)
def test_av1_units_are_counted_by_their_heads(units: bytes, is_too_much: bool) -> None:
    """Heads with and without an extension, sizes of several bytes, bodies that look like heads, and a last unit without a size."""
    with pytest.raises(TooLargeError) if is_too_much else nullcontext():
        check_packet("av1", av.Packet(units))
