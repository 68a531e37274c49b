"""Draws pictures of coloured shapes from a seed, and keeps what is in them.

    python scenes.py FILE --split test --index 7    draws one picture at its full size

A scene is a pure function of (split, index): the same two always give the same picture, and two splits share no random stream.
"""

from __future__ import annotations

import argparse
import io
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw, ImageFilter

KINDS = ("circle", "square", "triangle", "star", "cross", "ring", "heart")
COLOURS = ("red", "orange", "yellow", "green", "blue", "purple", "black", "white")
SPLITS = {"train": 11, "validation": 22, "test": 33, "sample": 44}
MAX_OBJECTS = 4
GRID = 8
"""Patches along each side, for the labels, unless another number is asked for."""

_SHADES: dict[str, tuple[tuple[int, int, int], ...]] = {
    "red": ((220, 35, 40), (255, 0, 0), (190, 20, 30)),
    "orange": ((255, 140, 0), (245, 130, 35), (255, 165, 0)),
    "yellow": ((250, 220, 40), (255, 255, 0), (240, 210, 20)),
    "green": ((40, 160, 60), (0, 128, 0), (0, 200, 0), (60, 190, 80)),
    "blue": ((40, 80, 220), (0, 0, 255), (30, 110, 230), (20, 50, 150)),
    "purple": ((140, 50, 170), (128, 0, 128), (150, 70, 210)),
    "black": ((15, 15, 15), (0, 0, 0), (35, 35, 38)),
    "white": ((248, 248, 248), (255, 255, 255), (238, 238, 235)),
}
_REACH = {"star": 1.15, "triangle": 1.1, "cross": 1.05}

Pixels = NDArray[np.uint8]
Floats = NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class Shape:
    """One object of a scene.

    Attributes:
        kind: One of `KINDS`.
        colour: One of `COLOURS`.
        x: Centre from the left edge, as a fraction of the picture's width.
        y: Centre from the upper edge, as a fraction of the picture's height.
    """

    kind: str
    colour: str
    x: float
    y: float


@dataclass(frozen=True, slots=True)
class Scene:
    """A picture and what is in it.

    Attributes:
        picture: uint8 (height, width, 3), RGB.
        shapes: The objects from left to right.
        patches: uint8 (rows, columns): which object covers a patch, 1 for the first; 0 none; 255 too little to say.
    """

    picture: Pixels
    shapes: tuple[Shape, ...]
    patches: Pixels


def outline(kind: str) -> Floats:
    """Returns the corners of a shape around (0, 0), within about 1 of it: float32 (num_corners, 2)."""
    if kind in ("circle", "ring"):
        return _polar(np.linspace(0, 2 * math.pi, 48, endpoint=False), 1.0)
    if kind == "square":
        return _polar(np.arange(4) * math.pi / 2 + math.pi / 4, 1.0)
    if kind == "triangle":
        return _polar(np.arange(3) * 2 * math.pi / 3 - math.pi / 2, 1.0)
    if kind == "star":
        return _polar(np.arange(10) * math.pi / 5 - math.pi / 2, np.where(np.arange(10) % 2 == 0, 1.0, 0.45))
    if kind == "cross":
        a, b = 0.33, 0.95
        return np.array(
            [(-a, -b), (a, -b), (a, -a), (b, -a), (b, a), (a, a), (a, b), (-a, b), (-a, a), (-b, a), (-b, -a), (-a, -a)], np.float32
        )
    t = np.linspace(0, 2 * math.pi, 48, endpoint=False)
    x = 16 * np.sin(t) ** 3
    y = -(13 * np.cos(t) - 5 * np.cos(2 * t) - 2 * np.cos(3 * t) - np.cos(4 * t)) - 2.5
    return np.stack([x / 16, y / 16], 1).astype(np.float32)


def draw_scene(
    split: str,
    index: int,
    size: tuple[int, int] | None = None,
    content: Sequence[tuple[str, str]] | None = None,
    *,
    grid: tuple[int, int] = (GRID, GRID),
) -> Scene:
    """Draws one scene.

    Args:
        split: One of `SPLITS`.
        index: Which scene of the split.
        size: Width and height in pixels; drawn at random by default.
        content: Kind and colour of each object, at most `MAX_OBJECTS`; drawn at random by default.
        grid: Rows and columns of patches.
    """
    rng = np.random.default_rng([SPLITS[split], index])
    width, height = size or _size(rng)
    count = int(rng.choice(MAX_OBJECTS + 1, p=(0.07, 0.31, 0.32, 0.18, 0.12))) if content is None else len(content)
    colours = draw_colours(rng, count) if content is None else [colour for _, colour in content]
    shades = [draw_shade(rng, colour) for colour in colours]
    canvas = background(rng, width, height, shades)
    shapes, coverage = [], []
    for number, (place, colour, shade) in enumerate(zip(_places(rng, width, height, count), colours, shades, strict=False)):
        kind = str(rng.choice(KINDS)) if content is None else content[number][0]
        cutout = cut(rng, kind)
        alpha = cover(cutout, (width, height), place, 3 if max(width, height) < 260 else 2)
        paint(canvas, alpha, lit(rng, shade, height))
        coverage.append(shrink(alpha, grid))
        shapes.append(Shape(kind, colour, place[0] / width, place[1] / height))
    order = sorted(range(len(shapes)), key=lambda i: shapes[i].x)
    patches = assign([coverage[i] for i in order], grid)
    return Scene(wear(rng, canvas), tuple(shapes[i] for i in order), patches)


def background(rng: np.random.Generator, width: int, height: int, shades: list[Floats]) -> Floats:
    """Returns a background that no shape's colour gets lost in: float32 (height, width, 3), 0 to 255."""
    first, second = _far_from(rng, shades), _far_from(rng, shades)
    style = rng.random()
    if style < 0.4:
        return np.broadcast_to(first, (height, width, 3)).copy()
    if style < 0.7:
        angle = rng.uniform(0, 2 * math.pi)
        ramp = np.add.outer(np.linspace(-1, 1, height) * math.sin(angle), np.linspace(-1, 1, width) * math.cos(angle))
        mix = (ramp - ramp.min()) / (np.ptp(ramp) + 1e-6)
    else:  # blotches, fine or coarse
        cells = int(rng.choice((3, 5, 9, 24)))
        coarse = Image.fromarray(rng.integers(0, 256, (cells, cells), np.uint8))
        mix = np.asarray(coarse.resize((width, height), Image.Resampling.BICUBIC), np.float32) / 255
    blend: Floats = first + (second - first) * mix[..., None].astype(np.float32) * np.float32(rng.uniform(0.3, 1))
    return blend


def _polar(angles: NDArray[np.float64], radius: float | NDArray[np.float64]) -> Floats:
    return np.stack([np.cos(angles) * radius, np.sin(angles) * radius], 1).astype(np.float32)


def _size(rng: np.random.Generator) -> tuple[int, int]:
    area = math.exp(rng.uniform(math.log(112), math.log(420)))
    aspect = math.exp(rng.uniform(-0.5, 0.5)) if rng.random() < 0.75 else 1.0
    return round(area * math.sqrt(aspect)), round(area / math.sqrt(aspect))


def draw_colours(rng: np.random.Generator, count: int) -> list[str]:
    """Draws the colours of so many objects, mostly different ones."""
    repeat = rng.random() < 0.2
    return [str(c) for c in (rng.choice(COLOURS, count) if repeat else rng.choice(COLOURS, count, replace=False))]


def draw_shade(rng: np.random.Generator, colour: str) -> Floats:
    """Returns one of the shades that go by a colour's name: float32 (3,), 0 to 255."""
    shades = _SHADES[colour]
    return np.clip(np.array(shades[rng.integers(len(shades))]) + rng.normal(0, 7, 3), 0, 255).astype(np.float32)


def _far_from(rng: np.random.Generator, shades: list[Floats]) -> Floats:
    for attempt in range(200):
        style = rng.random()
        if style < 0.2:
            candidate = np.full(3, 255.0)
        elif style < 0.5:
            candidate = np.full(3, rng.uniform(0, 255))
        else:
            grey = rng.uniform(20, 245)
            candidate = np.clip(grey + rng.normal(0, 45, 3), 0, 255)
        if all(np.linalg.norm(candidate - shade) > 95 - attempt / 4 for shade in shades):
            break
    return candidate.astype(np.float32)


def _places(rng: np.random.Generator, width: int, height: int, count: int) -> list[tuple[float, float, float]]:
    """Returns (x, y, radius) in pixels of objects that do not touch and whose order from left to right is plain."""
    largest = (0, 0.44, 0.32, 0.26, 0.22)[count] * min(width, height)
    smallest = min(0.115 * max(width, height), largest)
    for _ in range(500):
        places: list[tuple[float, float, float]] = []
        for _ in range(count * 12):
            radius = rng.uniform(smallest, largest)
            x, y = rng.uniform(radius, width - radius), rng.uniform(radius, height - radius)
            if all(math.hypot(x - a, y - b) > (radius + r) * 1.12 and abs(x - a) > 0.08 * width for a, b, r in places):
                places.append((x, y, radius))
            if len(places) == count:
                return places
    return places


@dataclass(frozen=True, slots=True)
class Cutout:
    """A shape, turned by some angle, around (0, 0).

    Attributes:
        corners: float32 (num_corners, 2), within about 1 of the centre.
        hole: How large the hole of a ring is, as a fraction of the whole; 0 for none.
    """

    corners: Floats
    hole: float


def cut(rng: np.random.Generator, kind: str) -> Cutout:
    """Cuts out a shape of a kind, turned at random."""
    angle = 0.0 if rng.random() < 0.35 else rng.uniform(0, 2 * math.pi)
    turn = np.array([[math.cos(angle), math.sin(angle)], [-math.sin(angle), math.cos(angle)]], np.float32)
    hole = rng.uniform(0.5, 0.62) if kind == "ring" else 0.0
    return Cutout((outline(kind) @ turn) * np.float32(_REACH.get(kind, 1.0) * 0.95), hole)


def cover(cutout: Cutout, size: tuple[int, int], place: tuple[float, float, float], factor: int) -> Floats:
    """Returns how much of each pixel a shape covers, 0 to 1: float32 (height, width).

    Args:
        cutout: The shape.
        size: Width and height in pixels.
        place: x and y of its centre, and its radius, in pixels.
        factor: Each pixel is looked at in so many rows and columns.
    """
    x, y, radius = place
    mask = Image.new("L", (size[0] * factor, size[1] * factor))
    for scale, fill in ((1.0, 255), (cutout.hole, 0)):
        if scale:
            ImageDraw.Draw(mask).polygon([tuple(p) for p in (cutout.corners * (radius * scale) + (x, y)) * factor], fill=fill)
    return np.asarray(mask.reduce(factor), np.float32) / np.float32(255)


def lit(rng: np.random.Generator, shade: Floats, height: int) -> Floats:
    """Returns a shade under even light, or light that falls off along the height: float32, broadcast against (height, width, 3)."""
    if rng.random() >= 0.3:
        return shade
    falling = 1 + rng.uniform(-0.12, 0.12) * np.linspace(-1, 1, height, dtype=np.float32)
    return np.clip(shade * falling[:, None, None], 0, 255).astype(np.float32)


def paint(canvas: Floats, alpha: Floats, shade: Floats) -> None:
    """Paints a shape onto a canvas (height, width, 3), in place."""
    canvas += alpha[..., None] * (shade - canvas)


def shrink(alpha: Floats, grid: tuple[int, int]) -> Floats:
    """Returns how much of each patch a shape covers: float32 (rows, columns)."""
    return np.asarray(Image.fromarray(alpha).resize(grid[::-1], Image.Resampling.BOX), np.float32)


def assign(coverage: list[Floats], grid: tuple[int, int]) -> Pixels:
    """Returns which object covers each patch, as in `Scene.patches`, from what each covers."""
    if not coverage:
        return np.zeros(grid, np.uint8)
    stacked = np.stack(coverage)
    best, most = stacked.argmax(0) + 1, stacked.max(0)
    return np.where(most >= 0.15, best, np.where(most > 0.02, 255, 0)).astype(np.uint8)


def wear(rng: np.random.Generator, canvas: Floats) -> Pixels:
    """Adds what cameras and files add: blur, noise, JPEG blocks. Returns uint8 (height, width, 3)."""
    if rng.random() < 0.5:
        coarse = rng.random() < 0.3
        height, width = canvas.shape[:2]
        grain = rng.normal(0, rng.uniform(2, 20), (height // 2 + 1, width // 2 + 1, 3) if coarse else (height, width, 3)).astype(np.float32)
        canvas = canvas + (grain.repeat(2, 0).repeat(2, 1)[:height, :width] if coarse else grain)
    picture = Image.fromarray(np.clip(canvas, 0, 255).astype(np.uint8))
    if rng.random() < 0.15:
        picture = picture.filter(ImageFilter.GaussianBlur(rng.uniform(0.3, max(0.3, max(picture.size) / 200))))
    if rng.random() < 0.4:
        file = io.BytesIO()
        picture.save(file, "JPEG", quality=int(rng.integers(25, 95)))
        picture = Image.open(file)
    return np.array(picture)


def main() -> None:
    """Runs the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("target", type=Path)
    parser.add_argument("--split", choices=tuple(SPLITS), default="train")
    parser.add_argument("--index", type=int, default=0)
    parser.add_argument("--size", type=int, nargs=2)
    options = parser.parse_args()
    scene = draw_scene(options.split, options.index, options.size and tuple(options.size))
    Image.fromarray(scene.picture).save(options.target)
    print(scene.shapes)


if __name__ == "__main__":
    main()
