"""Draws the sample pictures that `inset_demo` ships, and writes down what is in them.

python samples.py ../src/inset_demo/samples
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from PIL import Image

from questions import describe
from scenes import draw_scene

SAMPLES: tuple[tuple[str, int, tuple[int, int], tuple[tuple[str, str], ...]], ...] = (
    ("one-shape.png", 1, (256, 256), (("star", "orange"),)),
    ("two-shapes.jpg", 11, (640, 480), (("circle", "red"), ("square", "blue"))),
    ("three-shapes.webp", 21, (400, 300), (("triangle", "green"), ("heart", "purple"), ("ring", "yellow"))),
    ("nothing.png", 4, (200, 160), ()),
)
"""File name, scene of the split `sample`, width and height in pixels, kind and colour of each object."""


def write_samples(folder: Path) -> None:
    """Writes the pictures, and contents.json: file name -> its objects in words, from left to right."""
    folder.mkdir(parents=True, exist_ok=True)
    contents = {}
    for name, index, size, content in SAMPLES:
        scene = draw_scene("sample", index, size, content)
        Image.fromarray(scene.picture).save(folder / name, quality=85)
        contents[name] = describe(scene.shapes)
    (folder / "contents.json").write_text(json.dumps(contents, indent=2) + "\n")


def main() -> None:
    """Runs the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    write_samples(parser.parse_args().folder)


if __name__ == "__main__":
    main()
