"""Writes the reference outputs in this folder with transformers' CLIP image processor on its torchvision backend.

Needs torch with a working torchvision; reading what this wrote needs neither. Made with the versions and the seed in index.json:
    python make.py OUT_FOLDER 20261129
Every .npz holds "image" (height, width, 3) uint8, "options" (JSON text), and "pixel_values" (3, 336, 336) float32 as they come out.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

SIZES = ((336, 336), (71, 97), (400, 61), (337, 1009), (1, 50))


def make_pictures(seed: int) -> dict[tuple[int, int], NDArray[np.uint8]]:
    """Smooth pictures with some hard edges, so that interpolation and rounding both show."""
    rng = np.random.default_rng(seed)
    pictures = {}
    for height, width in SIZES:
        small = rng.integers(0, 256, (max(2, height // 9), max(2, width // 9), 3), dtype=np.uint8)
        picture = np.array(Image.fromarray(small).resize((width, height), Image.Resampling.BICUBIC))
        picture[height // 3 : height // 2, width // 4 : width // 2] = rng.integers(0, 256, 3)
        pictures[height, width] = picture
    return pictures


def main(out: Path, seed: int) -> None:
    import torch
    import torchvision
    import transformers

    torch.set_num_threads(1)
    clip = transformers.CLIPImageProcessor(size={"shortest_edge": 336}, crop_size={"height": 336, "width": 336})
    versions = {"transformers": transformers.__version__, "torch": torch.__version__, "torchvision": torchvision.__version__}
    cases: dict[str, Any] = {}
    for (height, width), picture in make_pictures(seed).items():
        values = clip(images=Image.fromarray(picture), return_tensors="pt")["pixel_values"][0].numpy()
        name = f"clip336_{height}x{width}"
        np.savez_compressed(out / f"{name}.npz", image=picture, options=json.dumps({"size": 336, "crop": 336}), pixel_values=values)
        cases[name] = {"image": f"uint8{list(picture.shape)}", "pixel_values": f"float32{list(values.shape)}"}
    (out / "index.json").write_text(json.dumps({**versions, "seed": seed, "cases": cases}, indent=1))


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
