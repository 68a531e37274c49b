"""Writes the reference outputs in this folder with transformers' Qwen-VL processors on their torchvision backend.

Needs torch with a working torchvision; reading what this wrote needs neither. Made with the versions in index.json:
    python make.py OUT_FOLDER
Every .npz holds "image" (height, width, 3) or "frames" (num_frames, height, width, 3) uint8, "options" (JSON text), and what came out under
the processor's own names: "pixel_values" or "pixel_values_videos" (num_patches, values of a patch) float32, and the grid, (1, 3) int64.
The pictures are read from the files that are there already, so that they can be made again with another version.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np

FOLDER = Path(__file__).parent


def process(name: str, golden: Any) -> dict[str, Any]:
    import torch
    import transformers

    options = json.loads(str(golden["options"]))
    if "frames" in golden:
        kind = transformers.Qwen3VLVideoProcessor if name.startswith("qwen3") else transformers.Qwen2VLVideoProcessor
        frames = torch.from_numpy(golden["frames"]).permute(0, 3, 1, 2)
        return dict(kind(do_sample_frames=False)(videos=[frames], return_tensors="pt"))
    settings: dict[str, Any] = {"min_pixels": options["min_pixels"], "max_pixels": options["max_pixels"]}
    if name.startswith("qwen3"):
        settings |= {"patch_size": options["patch_size"], "image_mean": [options["mean"]] * 3, "image_std": [options["std"]] * 3}
    image = torch.from_numpy(golden["image"]).permute(2, 0, 1)
    return dict(transformers.Qwen2VLImageProcessor(**settings)(images=image, return_tensors="pt"))


def main(out: Path) -> None:
    import torch
    import torchvision
    import transformers

    torch.set_num_threads(1)
    versions = {"transformers": transformers.__version__, "torch": torch.__version__, "torchvision": torchvision.__version__}
    cases: dict[str, Any] = {}
    for path in sorted(FOLDER.glob("*.npz")):
        with np.load(path) as golden:
            kept = {name: golden[name] for name in ("image", "frames", "options") if name in golden}
            arrays = kept | {name: np.asarray(value) for name, value in process(path.stem, golden).items()}
        np.savez_compressed(out / path.name, **arrays)
        cases[path.stem] = {name: f"{array.dtype}{list(array.shape)}" for name, array in arrays.items() if name != "options"}
    (out / "index.json").write_text(json.dumps({**versions, "cases": cases}, indent=1))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
