"""Times preprocessing, from encoded bytes to what the encoder takes, against transformers' processors on their Pillow backend.

Run as ``python -m benchmarks.preprocess [--rounds N] [--size 640x480,1280x720,4032x3024] [--case Qwen] [--video]``. One thread, alternating
runs, CPU milliseconds per item. Ours ends with uint8 pixels that the encoder normalises on its own device; its time is given with and
without that step. transformers' video processors need torchvision: videos are held against decoding every frame, and the image processor.
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
from inset.media.executor import MediaExecutor
from inset.plugins.host import PluginHost
from inset.processing.registry import build_processor
from inset.testing.sample_clips import decode_plainly, make_video

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
QWEN2 = {"image_processor_type": "Qwen2VLImageProcessor", "size": {"shortest_edge": 3136, "longest_edge": 12845056}}
QWEN3 = {
    "image_processor_type": "Qwen2VLImageProcessor",
    "patch_size": 16,
    "size": {"shortest_edge": 65536, "longest_edge": 16777216},
    "image_mean": [0.5] * 3,
    "image_std": [0.5] * 3,
}


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
    Case("Qwen2.5-VL", "qwen2_5_vl", QWEN2, {}),
    Case("Qwen3-VL", "qwen3_vl", QWEN3, {}),
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


class Way(NamedTuple):
    """Our way from encoded bytes to what the encoder takes.

    Attributes:
        decode: Bytes -> pixels or frames.
        prepare: Bytes -> processed tensors.
        normalise: Processed tensors -> what transformers' model takes.
    """

    decode: Callable[[bytes], Any]
    prepare: Callable[[bytes], Mapping[str, Any]]
    normalise: Callable[[Mapping[str, Any]], Any]

    def normalise_again(self, tensors: Mapping[str, Any], data: bytes) -> Any:
        """Normalises what was prepared before, whatever the bytes."""
        return self.normalise(tensors)


def ours(case: Case, folder: Path, pool: MediaExecutor, modality: str = "image") -> Way:
    """Builds the plugin's processor for a case."""
    checkpoint = write_checkpoint(folder, case)
    host = PluginHost()
    factories = {name: host.get_media_io(name, checkpoint) for name in ("image", "video")}
    processor = build_processor(host.registries.processors, checkpoint, media_io_factories=factories, pool=pool).processor
    decoder = processor.info.get_media_io(modality)

    def prepare(data: bytes) -> Mapping[str, Any]:
        ref = decoder.load_bytes_ref(data)
        plan = processor.plan(modality, ref.header, options={})
        return processor.materialize(modality, ref.decode(), plan=plan, options={})

    return Way(
        decode=lambda data: decoder.load_bytes_ref(data).decode(),
        prepare=prepare,
        normalise=lambda tensors: processor.to_transformers(modality, [tensors]),
    )


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


def plainly(case: Case, indices: Sequence[int]) -> Callable[[bytes], Any]:
    """Decodes every frame of a video with PyAV, and gives those that are looked at to the installed image processor."""
    settings = {name: value for name, value in case.preprocessor.items() if name != "image_processor_type"}
    processor = getattr(transformers, case.preprocessor["image_processor_type"] + "Pil")(**settings)

    def prepare(data: bytes) -> Any:
        frames = decode_plainly(data)
        return processor(images=[frames[index] for index in indices], return_tensors="np")["pixel_values"]

    return prepare


def report(name: str, runs: Sequence[Callable[[], Any]], rounds: int) -> None:
    """Prints one line for the runs decode, prepare, normalise and reference."""
    decode, own, norm, other = measure(runs, rounds)
    print(
        f"{name:24} ours {own:7.1f} (decode {decode:.1f}), + normalising {norm:.1f}; transformers {other:7.1f}; "
        f"ratio {own / other:.2f}, with normalising {(own + norm) / other:.2f}; {1000 / own:.0f} items/s"
    )


def compare_images(cases: Sequence[Case], data: bytes, pool: MediaExecutor, rounds: int) -> None:
    """Prints a line per family for one JPEG."""
    for case in cases:
        with tempfile.TemporaryDirectory() as folder:
            way = ours(case, Path(folder), pool)
            tensors = way.prepare(data)
            runs: list[Callable[[bytes], Any]] = [way.decode, way.prepare, partial(way.normalise_again, tensors), theirs(case)]
            report(case.name, [partial(run, data) for run in runs], rounds)


def compare_videos(cases: Sequence[Case], pool: MediaExecutor, rounds: int) -> None:
    """Prints a line per family that takes videos, for ten seconds of 640x480."""
    data = make_video(300, width=640, height=480, codec="libx264", keyframe_every=30)
    print(f"ten seconds of 640x480 H.264, {len(data) // 1024} KiB; CPU ms per video and core")
    for case in cases:
        if not case.model_type.startswith("qwen"):
            continue
        with tempfile.TemporaryDirectory() as folder:
            way = ours(case, Path(folder), pool, "video")
            tensors, indices = way.prepare(data), way.decode(data).frame_indices
            runs: list[Callable[[bytes], Any]] = [way.decode, way.prepare, partial(way.normalise_again, tensors), plainly(case, indices)]
            report(case.name, [partial(run, data) for run in runs], rounds)


def main() -> None:
    """Prints a line per size and family."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--size", default="1280x720", help="width x height of the JPEG, or several with commas between them")
    parser.add_argument("--case", default="", help="only families whose name has this in it")
    parser.add_argument("--video", action="store_true", help="videos too")
    args = parser.parse_args()
    torch.set_num_threads(1)
    cases = [case for case in CASES if args.case in case.name]
    with MediaExecutor(image_threads=1, video_threads=1) as pool:
        for size in args.size.split(","):
            width, height = map(int, size.split("x"))
            data = make_jpeg(width, height)
            print(f"{width}x{height} JPEG of {len(data) // 1024} KiB; CPU ms per image and core")
            compare_images(cases, data, pool, args.rounds)
        if args.video:
            compare_videos(cases, pool, args.rounds)


if __name__ == "__main__":
    main()
