"""Times image preprocessing, from encoded bytes to what the encoder takes, against transformers' processors on their Pillow backend.

Run as ``python -m benchmarks.preprocess [--rounds N] [--size 1280x720]``. One thread, alternating runs, CPU milliseconds per image.
Ours ends with uint8 pixels that the encoder normalises on its own device; its time is given with and without that step.
"""

from __future__ import annotations

import argparse
import io
import json
import statistics
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import tokenizers
import torch
import transformers
from PIL import Image

from inset.checkpoint import Checkpoint, load_checkpoint
from inset.config import MediaConfig
from inset.media.executor import MediaExecutor
from inset.media.image import ImageIO
from inset.plugins.host import PluginHost
from inset.processing.registry import build_processor

CLIP = {
    "image_processor_type": "CLIPImageProcessor",
    "size": {"shortest_edge": 336},
    "crop_size": {"height": 336, "width": 336},
    "do_center_crop": True,
    "image_mean": [0.48145466, 0.4578275, 0.40821073],
    "image_std": [0.26862954, 0.26130258, 0.27577711],
}
SIGLIP = {
    "image_processor_type": "SiglipImageProcessor",
    "size": {"height": 384, "width": 384},
    "image_mean": [0.5] * 3,
    "image_std": [0.5] * 3,
}
NEXT = {**CLIP, "image_processor_type": "LlavaNextImageProcessor"}


class Case(NamedTuple):
    """One family with one image processor."""

    name: str
    model_type: str
    preprocessor: Mapping[str, Any]
    vision: Mapping[str, Any]


CASES = (
    Case("LLaVA 1.5, CLIP 336", "llava", CLIP, {"image_size": 336, "patch_size": 14}),
    Case("LLaVA 1.5, SigLIP 384", "llava", SIGLIP, {"image_size": 384, "patch_size": 14, "model_type": "siglip_vision_model"}),
    Case("LLaVA-NeXT, CLIP 336", "llava_next", NEXT, {"image_size": 336, "patch_size": 14}),
)


def write_checkpoint(folder: Path, case: Case) -> Checkpoint:
    """Writes the configs and a tokenizer of a checkpoint without weights."""
    tokenizer = tokenizers.Tokenizer(tokenizers.models.BPE())
    tokenizer.add_special_tokens(["<image>"])
    tokenizer.save(str(folder / "tokenizer.json"))
    config = {
        "model_type": case.model_type,
        "architectures": ["None"],
        "image_token_id": 0,
        "vision_config": case.vision,
        "text_config": {"hidden_size": 8},
    }
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "preprocessor_config.json").write_text(json.dumps(case.preprocessor))
    return load_checkpoint(folder)


def make_jpeg(width: int, height: int) -> bytes:
    """A picture with some detail, as a camera's JPEG of quality 90."""
    rng = np.random.default_rng(0)
    small = rng.integers(0, 256, (height // 8, width // 8, 3), dtype=np.uint8)
    encoded = io.BytesIO()
    Image.fromarray(small).resize((width, height), Image.Resampling.BICUBIC).save(encoded, "JPEG", quality=90)
    return encoded.getvalue()


def ours(case: Case, folder: Path, pool: MediaExecutor) -> tuple[Callable[[bytes], Any], Callable[[Any], Any]]:
    """Our way to uint8 pixels, and the normalisation that follows in the encoder."""
    checkpoint = write_checkpoint(folder, case)
    registry = PluginHost().registries.processors
    processor = build_processor(registry, checkpoint, media_io_factories={"image": ImageIO}, pool=pool).processor
    decoder = ImageIO({}, MediaConfig())
    mean, std = (torch.tensor(case.preprocessor[name]) * 255 for name in ("image_mean", "image_std"))

    def prepare(data: bytes) -> Any:
        ref = decoder.load_bytes_ref(data)
        plan = processor.plan("image", ref.header, options={})
        return processor.materialize("image", ref.decode(), plan=plan, options={})["pixel_values"]

    def normalise(pixels: Any) -> Any:
        return ((torch.from_numpy(pixels).float() - mean) / std).movedim(-1, -3)

    return prepare, normalise


def theirs(case: Case) -> Callable[[bytes], Any]:
    """The installed image processor, on Pillow."""
    settings = {name: value for name, value in case.preprocessor.items() if name != "image_processor_type"}
    processor = getattr(transformers, case.preprocessor["image_processor_type"] + "Pil")(**settings)

    def prepare(data: bytes) -> Any:
        return processor(images=Image.open(io.BytesIO(data)).convert("RGB"), return_tensors="np")["pixel_values"]

    return prepare


def measure(runs: Sequence[Callable[[], Any]], rounds: int) -> list[float]:
    """Median CPU milliseconds of each run; the runs alternate, and the first round does not count."""
    seconds: list[list[float]] = [[] for _ in runs]
    for _ in range(rounds + 1):
        for index, run in enumerate(runs):
            started = time.process_time()
            run()
            seconds[index].append(time.process_time() - started)
    return [statistics.median(values[1:]) * 1000 for values in seconds]


def main() -> None:
    """Prints a line per family."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--size", default="1280x720", help="width x height of the JPEG")
    args = parser.parse_args()
    torch.set_num_threads(1)
    width, height = map(int, args.size.split("x"))
    data = make_jpeg(width, height)
    print(f"{width}x{height} JPEG of {len(data) // 1024} KiB; CPU ms per image and core")
    with MediaExecutor(image_threads=1, video_threads=1) as pool:
        for case in CASES:
            with tempfile.TemporaryDirectory() as name:
                prepare, normalise = ours(case, Path(name), pool)
                reference = theirs(case)
                pixels = prepare(data)
                decode, own, norm, other = measure(
                    [
                        lambda: ImageIO({}, MediaConfig()).load_bytes_ref(data).decode(),
                        partial(prepare, data),
                        partial(normalise, pixels),
                        partial(reference, data),
                    ],
                    args.rounds,
                )
            print(
                f"{case.name:24} ours {own:6.1f} (decode {decode:.1f}), + normalising {norm:.1f}; transformers {other:6.1f}; "
                f"ratio {own / other:.2f}, with normalising {(own + norm) / other:.2f}; {1000 / own:.0f} images/s"
            )


if __name__ == "__main__":
    main()
