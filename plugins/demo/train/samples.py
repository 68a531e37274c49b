"""Draws the sample pictures and clips that `inset_demo` ships, and writes down what is in them.

python samples.py ../src/inset_demo/samples
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from PIL import Image

from clips import STEPS, STEPS_PER_SECOND, Actor, draw_clip, encode_mp4
from questions import describe, named
from scenes import draw_scene

SAMPLES: tuple[tuple[str, int, tuple[int, int], tuple[tuple[str, str], ...]], ...] = (
    ("one-shape.png", 1, (256, 256), (("star", "orange"),)),
    ("two-shapes.jpg", 11, (640, 480), (("circle", "red"), ("square", "blue"))),
    ("three-shapes.webp", 21, (400, 300), (("triangle", "green"), ("heart", "purple"), ("ring", "yellow"))),
    ("nothing.png", 4, (200, 160), ()),
)
"""File name, scene of the split `sample`, width and height in pixels, kind and colour of each object."""
CLIPS: tuple[tuple[str, int, tuple[int, int], str], ...] = (
    ("moves.mp4", 13, (224, 224), "moves"),
    ("changes.mp4", 9, (224, 168), "changes"),
)
"""File name, clip of the split `sample`, width and height in pixels, and the story."""
PER_STEP = 4


def write_samples(folder: Path) -> None:
    """Writes the files, and contents.json: file name -> its objects in words, from left to right, or what happens in a clip."""
    folder.mkdir(parents=True, exist_ok=True)
    contents = {}
    for name, index, size, content in SAMPLES:
        scene = draw_scene("sample", index, size, content)
        Image.fromarray(scene.picture).save(folder / name, quality=85)
        contents[name] = describe(scene.shapes)
    for name, index, size, story in CLIPS:
        clip = draw_clip("sample", index, size, per_step=PER_STEP, story=story)
        (folder / name).write_bytes(encode_mp4(clip.frames, frames_per_second=PER_STEP * STEPS_PER_SECOND))
        contents[name] = ", ".join(_tell(actor) for actor in clip.actors)
    (folder / "contents.json").write_text(json.dumps(contents, indent=2) + "\n")


def _tell(actor: Actor) -> str:
    """Returns what one object does: "a red circle moves left"."""
    name = named(actor.at(0))
    if actor.direction is not None:
        return f"{name} moves {actor.direction}"
    return f"{name} turns {actor.colours[1]}" if actor.turns_at < STEPS else f"{name} stands still"


def main() -> None:
    """Runs the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    write_samples(parser.parse_args().folder)


if __name__ == "__main__":
    main()
