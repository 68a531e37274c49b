"""Draws short clips in which a coloured shape moves, appears, disappears or changes its colour, and keeps what happens.

    python clips.py FILE.mp4 --split test --index 7    draws one clip at its full size and rate

A clip is a pure function of (split, index), as a scene is. Time runs in steps: a model that looks at two frames a second sees one frame a
step, and a file has several.
"""

from __future__ import annotations

import argparse
import io
import math
from dataclasses import dataclass
from pathlib import Path

import av
import numpy as np
from numpy.typing import NDArray
from PIL import Image

from scenes import (
    COLOURS,
    KINDS,
    SPLITS,
    Floats,
    Pixels,
    Shape,
    assign,
    background,
    cover,
    cut,
    draw_colours,
    draw_shade,
    lit,
    paint,
    shrink,
)

STEPS = 8
"""Steps of a clip, half a second each."""
STEPS_PER_SECOND = 2
STORIES = ("moves", "appears", "changes")
MAX_ACTORS = 2
Path2D = tuple[tuple[float, float], tuple[float, float]]
_CLIPS = 1_000_000
"""The seeds of clips start here, those of scenes below."""


@dataclass(frozen=True, slots=True)
class Actor:
    """One object of a clip. Times are in steps, places fractions of the picture's width and height.

    Attributes:
        kind: One of `KINDS`.
        colours: At first, and from `turns_at` on.
        turns_at: `STEPS` where the colour stays.
        appears_at: 0 where it is there from the beginning.
        disappears_at: `STEPS` where it is there to the end.
        path: x and y of its centre at first and in the last step.
    """

    kind: str
    colours: tuple[str, str]
    turns_at: float
    appears_at: float
    disappears_at: float
    path: Path2D

    def is_there(self, time: float) -> bool:
        """Returns whether it can be seen at some time."""
        return self.appears_at <= time < self.disappears_at

    def at(self, time: float) -> Shape:
        """Returns what it looks like, and where it is, at some time."""
        (x, y), (to_x, to_y) = self.path
        along = min(1.0, time / (STEPS - 1))
        return Shape(self.kind, self.colours[time >= self.turns_at], x + (to_x - x) * along, y + (to_y - y) * along)

    @property
    def direction(self) -> str | None:
        """Where it moves to: left, right, up or down, or None where it stands still."""
        (x, y), (to_x, to_y) = self.path
        if max(abs(to_x - x), abs(to_y - y)) < 0.05:
            return None
        if abs(to_x - x) > abs(to_y - y):
            return "right" if to_x > x else "left"
        return "down" if to_y > y else "up"


def shapes_at(actors: tuple[Actor, ...], time: float) -> tuple[Shape, ...]:
    """Returns the objects that can be seen at some time, from left to right."""
    return tuple(sorted((actor.at(time) for actor in actors if actor.is_there(time)), key=lambda shape: shape.x))


@dataclass(frozen=True, slots=True)
class Clip:
    """Frames and what happens in them.

    Attributes:
        frames: uint8 (num_frames, height, width, 3), RGB.
        actors: The objects.
        patches: uint8 (STEPS, rows, columns): which actor covers a patch, as in `scenes.Scene`.
    """

    frames: Pixels
    actors: tuple[Actor, ...]
    patches: Pixels


def draw_clip(
    split: str,
    index: int,
    size: tuple[int, int] | None = None,
    *,
    grid: tuple[int, int] = (8, 8),
    per_step: int = 1,
    story: str | None = None,
) -> Clip:
    """Draws one clip.

    Args:
        split: One of `SPLITS`.
        index: Which clip of the split.
        size: Width and height in pixels; drawn at random by default.
        grid: Rows and columns of patches.
        per_step: Frames in each step.
        story: One of `STORIES`; drawn at random by default.
    """
    rng = np.random.default_rng([SPLITS[split], _CLIPS + index])
    width, height = size or _size(rng)
    drawn = str(rng.choice(STORIES))
    radii, actors = _cast(rng, story or drawn, width, height)
    shades = [tuple(draw_shade(rng, colour) for colour in actor.colours) for actor in actors]
    cutouts = [cut(rng, actor.kind) for actor in actors]
    scenery = background(rng, width, height, [shade for pair in shades for shade in pair])
    lights = [tuple(lit(np.random.default_rng([index, i]), shade, height) for shade in pair) for i, pair in enumerate(shades)]
    canvases, patches = [], np.zeros((STEPS, *grid), np.uint8)
    for number in range(STEPS * per_step):
        time, canvas, coverage = number / per_step, scenery.copy(), []
        for actor, cutout, radius, light in zip(actors, cutouts, radii, lights, strict=True):
            shape = actor.at(time)
            alpha = cover(cutout, (width, height), (shape.x * width, shape.y * height, radius), 2) * np.float32(actor.is_there(time))
            paint(canvas, alpha, light[time >= actor.turns_at])
            coverage.append(shrink(alpha, grid))
        canvases.append(canvas)
        if number % per_step == 0:
            patches[number // per_step] = assign(coverage, grid)
    return Clip(_wear(rng, np.stack(canvases)), actors, patches)


def encode_mp4(frames: Pixels, *, frames_per_second: int) -> bytes:
    """Returns frames (num_frames, height, width, 3) as a file of H.264; sides must be even."""
    file = io.BytesIO()
    with av.open(file, "w", format="mp4") as container:
        stream = container.add_stream("libx264", rate=frames_per_second, options={"crf": "20", "preset": "fast", "threads": "1"})
        stream.height, stream.width, stream.pix_fmt = frames.shape[1], frames.shape[2], "yuv420p"
        for picture in frames:
            container.mux(stream.encode(av.VideoFrame.from_ndarray(picture, format="rgb24")))
        container.mux(stream.encode(None))
    return file.getvalue()


def _size(rng: np.random.Generator) -> tuple[int, int]:
    area = math.exp(rng.uniform(math.log(112), math.log(320)))
    aspect = math.exp(rng.uniform(-0.5, 0.5)) if rng.random() < 0.7 else 1.0
    return round(area * math.sqrt(aspect) / 2) * 2, round(area / math.sqrt(aspect) / 2) * 2


def _cast(rng: np.random.Generator, story: str, width: int, height: int) -> tuple[list[float], tuple[Actor, ...]]:
    """Returns the radius in pixels of each actor, and the actors: the first one acts, the others look on."""
    count = 2 if story == "appears" and rng.random() < 0.85 else 1 + int(rng.random() < 0.5)
    colours = draw_colours(rng, count)
    kinds = [str(kind) for kind in rng.choice(KINDS, count)]
    if len(set(kinds)) < count and rng.random() < 0.7:
        kinds = [str(kind) for kind in rng.choice(KINDS, count, replace=False)]
    radii, paths = _places(rng, count, width, height, moves=story == "moves")
    times = _times(rng, count) if story == "appears" else [(0, STEPS)] * count
    turns = [int(rng.integers(2, STEPS - 1)) if story == "changes" and i == 0 else STEPS for i in range(count)]
    others = [str(rng.choice([c for c in COLOURS if c not in colours])) if turn < STEPS else colours[i] for i, turn in enumerate(turns)]
    return radii, tuple(Actor(kinds[i], (colours[i], others[i]), turns[i], *times[i], path) for i, path in enumerate(paths))


def _times(rng: np.random.Generator, count: int) -> list[tuple[int, int]]:
    """Returns when each actor appears and disappears: the second follows the first, or takes its place."""
    if count == 1:
        return [(int(rng.integers(2, STEPS - 1)), STEPS)]
    style, second = rng.random(), int(rng.integers(2, STEPS - 1))
    if style < 0.4:
        times = [(0, STEPS), (second, STEPS)]
    elif style < 0.75:
        times = [(0, second), (second, STEPS)]
    else:
        times = [(int(rng.integers(1, 4)), STEPS), (int(rng.integers(4, STEPS - 1)), STEPS)]
    return times


def _places(rng: np.random.Generator, count: int, width: int, height: int, *, moves: bool) -> tuple[list[float], list[Path2D]]:
    """Returns radii in pixels, and ways on which no two actors touch; the first one moves along one axis if asked."""
    sides = np.array([width, height])
    smallest, largest = 0.115 * max(sides), (0.2 if moves else 0.33 - 0.08 * count) * min(sides)
    while True:
        radii = [float(rng.uniform(min(smallest, largest), largest)) for _ in range(count)]
        ways: list[NDArray[np.float64]] = []
        for i, radius in enumerate(radii):
            start, step = rng.uniform(np.full(2, radius), sides - radius), np.zeros(2)
            if moves and i == 0:
                axis = int(rng.integers(2))
                step[axis] = rng.choice((-1, 1)) * rng.uniform(0.3, 0.62) * sides[axis]
                step[1 - axis] = rng.uniform(-0.06, 0.06) * sides[1 - axis]
            ways.append(np.linspace(start, start + step, 12))
        inside = all(((way > r) & (way < sides - r)).all() for way, r in zip(ways, radii, strict=True))
        if inside and (count < 2 or np.linalg.norm(ways[0] - ways[1], axis=1).min() > 1.15 * sum(radii)):
            return radii, [(_fraction(way[0], sides), _fraction(way[-1], sides)) for way in ways]


def _fraction(place: NDArray[np.float64], sides: NDArray[np.int64]) -> tuple[float, float]:
    return float(place[0] / sides[0]), float(place[1] / sides[1])


def _wear(rng: np.random.Generator, canvases: Floats) -> Pixels:
    """Adds noise to each frame, and what compression leaves."""
    if rng.random() < 0.5:
        canvases = canvases + rng.normal(0, rng.uniform(1, 12), canvases.shape).astype(np.float32)
    frames = np.clip(canvases, 0, 255).astype(np.uint8)
    if rng.random() < 0.6:
        quality = int(rng.integers(30, 95))
        for number, frame in enumerate(frames):
            file = io.BytesIO()
            Image.fromarray(frame).save(file, "JPEG", quality=quality)
            frames[number] = np.array(Image.open(file))
    return frames


def main() -> None:
    """Runs the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("target", type=Path)
    parser.add_argument("--split", choices=tuple(SPLITS), default="train")
    parser.add_argument("--index", type=int, default=0)
    parser.add_argument("--story", choices=STORIES)
    options = parser.parse_args()
    clip = draw_clip(options.split, options.index, per_step=4, story=options.story)
    options.target.write_bytes(encode_mp4(clip.frames, frames_per_second=4 * STEPS_PER_SECOND))
    print(*clip.actors, sep="\n")


if __name__ == "__main__":
    main()
