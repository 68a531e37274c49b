"""The open bitstream units of AV1: walked without decoding, for what they make a decoder do."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

__all__ = ["MAX_AV1_FRAMES", "has_too_many_frames", "sequence_pixels"]

MAX_AV1_FRAMES: Final = 64
"""Most frames, hidden ones included, of what is decoded at once."""

_MAX_UNITS: Final = 4096
_FRAME_UNITS: Final = frozenset((3, 6))  # a frame's header alone, and a whole frame
_SEQUENCE: Final = 1
_SEQUENCE_BYTES: Final = 1024  # all that the fields before the size can take
_MAX_SIZE_BYTES: Final = 8


class _Unit(NamedTuple):
    """A unit's kind, and its body."""

    kind: int
    body: memoryview


def has_too_many_frames(coded: bytes | memoryview) -> bool:
    """Whether there are more frames, or units of any kind, than real media has."""
    num_frames = 0
    for number, unit in enumerate(_iter_units(memoryview(coded))):
        num_frames += unit.kind in _FRAME_UNITS
        if num_frames > MAX_AV1_FRAMES or number == _MAX_UNITS:
            return True
    return False


def sequence_pixels(coded: bytes | memoryview) -> int:
    """Returns the pixels of the largest frame that sequence headers allow; 0 where there is none that can be read."""
    return max(
        (_pixels(bytes(unit.body[:_SEQUENCE_BYTES])) for unit in _iter_units(memoryview(coded)) if unit.kind == _SEQUENCE), default=0
    )


def _iter_units(coded: memoryview) -> Iterator[_Unit]:
    """Yields units up to one without a size, which is the last."""
    position = 0
    while position < len(coded):
        head = coded[position]
        position += 2 if head & 4 else 1
        size = 0 if head & 2 else len(coded)
        for index, byte in enumerate(coded[position : position + _MAX_SIZE_BYTES] if head & 2 else b""):
            size |= (byte & 0x7F) << (7 * index)
            position += 1
            if byte < 0x80:
                break
        yield _Unit((head >> 3) & 15, coded[position : position + size])
        position += size


class _Bits:
    """Reads bits one after the other; zeros behind the end."""

    def __init__(self, body: bytes) -> None:
        self._bits = int.from_bytes(body, "big") << 256
        self._left = 8 * len(body) + 256

    def read(self, width: int) -> int:
        self._left -= width
        return self._bits >> self._left & ((1 << width) - 1) if self._left >= 0 else 0


def _pixels(body: bytes) -> int:
    """Reads a sequence header as far as its size.

    Source: AV1 Bitstream and Decoding Process Specification, 5.5.1.
    """
    bits = _Bits(body)
    bits.read(4)  # profile, and whether it is a still picture
    if bits.read(1):
        bits.read(5)  # a reduced header says the level alone
    else:
        _skip_timing_and_points(bits)
    width_bits, height_bits = bits.read(4) + 1, bits.read(4) + 1
    return (bits.read(width_bits) + 1) * (bits.read(height_bits) + 1)


def _skip_timing_and_points(bits: _Bits) -> None:
    delay_bits = 0
    if bits.read(1):
        bits.read(64)
        if bits.read(1):
            num_zeros = 0
            while num_zeros < 32 and not bits.read(1):
                num_zeros += 1
            bits.read(num_zeros if num_zeros < 32 else 0)
        if bits.read(1):
            delay_bits = bits.read(5) + 1
            bits.read(42)
    has_display_delay = bits.read(1)
    for _ in range(bits.read(5) + 1):
        bits.read(12)
        if bits.read(5) > 7:
            bits.read(1)
        if delay_bits and bits.read(1):
            bits.read(2 * delay_bits + 1)
        if has_display_delay and bits.read(1):
            bits.read(4)
