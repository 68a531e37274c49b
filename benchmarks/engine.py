"""Requests per second of 8 concurrent requests about a 640x480 JPEG, 16 tokens each, through `inset.LLM`.

Run as ``python -m benchmarks.engine [--threads N] [--requests N] [--profile]``. Prints the rate for new and for repeated pictures, the
ratio to a loop of transformers' `generate` over the same inputs, and the ratio to our own ceiling: the module's encoder, prefill and 16
decode steps of 8 with nothing around them. The start is compared with the import of the model's module. Times are wall-clock: run it on
an idle machine.
"""

from __future__ import annotations

import argparse
import cProfile
import io
import json
import pstats
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from benchmarks.step import own_cache_step
from PIL import Image

from inset import LLM, SamplingParams
from inset.checkpoint import load_checkpoint
from inset.engine.prompts import TextPrompt
from inset.inputs import ProcessedPrompt
from inset.modeling.attention import register_paged_attention
from inset.modeling.interfaces import LoadOptions
from inset.modeling.loading import load_adapter
from inset.modeling.transformers_adapter import TransformersAdapter
from inset.testing.tiny_checkpoints import build_tiny_llava

CONCURRENCY = 8
NUM_TOKENS = 16
TEXT_CONFIG = {
    "hidden_size": 192,
    "intermediate_size": 512,
    "num_hidden_layers": 6,
    "num_attention_heads": 6,
    "num_key_value_heads": 2,
    "vocab_size": 1024,
    "max_position_embeddings": 4096,
}
VISION_CONFIG = {
    "hidden_size": 96,
    "intermediate_size": 256,
    "num_hidden_layers": 4,
    "num_attention_heads": 3,
    "image_size": 336,
    "patch_size": 14,
}
GREEDY = SamplingParams(temperature=0, max_tokens=NUM_TOKENS, ignore_eos=True)


def jpeg(number: int) -> bytes:
    """Returns a smooth 640x480 picture that differs with its number."""
    small = np.random.default_rng(number).integers(0, 256, (48, 64, 3), dtype=np.uint8)
    buffer = io.BytesIO()
    Image.fromarray(small).resize((640, 480), Image.Resampling.BICUBIC).save(buffer, "JPEG", quality=90)
    return buffer.getvalue()


def prompts(pictures: Sequence[bytes]) -> list[TextPrompt]:
    """Returns one question about each picture."""
    return [TextPrompt(prompt=f"USER: <image> question {i}? ASSISTANT:", multi_modal_data={"image": [p]}) for i, p in enumerate(pictures)]


def pixels_of(prompt: ProcessedPrompt) -> torch.Tensor:
    """Returns the ``(height, width, 3)`` uint8 pixels of a processed prompt's one picture."""
    [item] = prompt.mm_kwargs["image"]
    assert item is not None
    return torch.from_numpy(np.array(item["pixel_values"]))


def rate(work: Callable[[], Any], num_requests: int) -> float:
    """Returns requests per second of a piece of work."""
    started = time.perf_counter()
    work()
    return num_requests / (time.perf_counter() - started)


def in_groups(llm: LLM, all_prompts: Sequence[TextPrompt]) -> None:
    """Answers prompts with 8 in flight at any time."""
    params = [GREEDY] * len(all_prompts)
    for start in range(0, len(all_prompts), CONCURRENCY):
        llm.generate(all_prompts[start : start + CONCURRENCY], params[start : start + CONCURRENCY], use_tqdm=False)


def generate_loop(folder: Path, llm: LLM, all_prompts: Sequence[TextPrompt]) -> Callable[[], None]:
    """Returns a loop of transformers' `generate`, one request after another, from processed inputs."""
    from transformers import LlavaForConditionalGeneration

    model = LlavaForConditionalGeneration.from_pretrained(folder, dtype=torch.float32).eval()
    processed = [llm._call(llm.engine.core.process(prompt)) for prompt in all_prompts]  # noqa: SLF001
    inputs = [
        {
            "input_ids": torch.tensor([list(prompt.prompt_token_ids)]),
            "attention_mask": torch.ones(1, len(prompt.prompt_token_ids), dtype=torch.int64),
            "pixel_values": pixels_of(prompt).float().permute(2, 0, 1)[None] / 255,
        }
        for prompt in processed
    ]

    def run() -> None:
        with torch.inference_mode():
            for given in inputs:
                model.generate(**given, max_new_tokens=NUM_TOKENS, do_sample=False, eos_token_id=-1)

    return run


def start_ratio(folder: Path) -> tuple[float, float]:
    """Returns seconds until `LLM` is ready, and seconds of importing the model's module alone, each in a fresh process."""
    importing = "from transformers import LlavaForConditionalGeneration"
    starting = f"from inset import LLM; LLM({str(folder)!r})"
    seconds = []
    for code in (starting, importing):
        timed = f"import time; t = time.perf_counter(); {code}; print(time.perf_counter() - t, flush=True); import os; os._exit(0)"
        runs = [subprocess.run([sys.executable, "-c", timed], capture_output=True, text=True, check=True) for _ in range(3)]
        seconds.append(min(float(run.stdout) for run in runs))
    return seconds[0], seconds[1]


def modules_alone(folder: Path, llm: LLM, all_prompts: Sequence[TextPrompt]) -> tuple[float, float]:
    """Returns requests per second of the modules alone, in groups of 8, with and without encoder and prefill.

    Encoder and prefill run as the module's own; a decode step of 8 runs the text model over transformers' own cache, and the head.
    """
    options = LoadOptions(torch.device("cpu"), torch.float32, register_paged_attention())
    adapter = load_adapter("inset_llava.model:LlavaAdapter", load_checkpoint(folder), options)
    assert isinstance(adapter, TransformersAdapter)
    processed = [llm._call(llm.engine.core.process(prompt)) for prompt in all_prompts[:CONCURRENCY]]  # noqa: SLF001
    items = [{"pixel_values": pixels_of(prompt)} for prompt in processed]
    ids = [torch.tensor([min(token, TEXT_CONFIG["vocab_size"] - 1) for token in prompt.prompt_token_ids]) for prompt in processed]

    @torch.inference_mode()
    def encode_and_prefill() -> None:
        adapter.encode("image", items)
        for input_ids in ids:
            adapter.plain_forward(input_ids)

    def seconds(work: Callable[[], None]) -> float:
        work()
        started = time.perf_counter()
        for _ in range(3):
            work()
        return (time.perf_counter() - started) / 3

    first = seconds(encode_and_prefill)
    step = own_cache_step(adapter)  # from here on the text model runs with the attention of transformers

    def decode() -> None:
        for _ in range(NUM_TOKENS):
            step()

    steps = seconds(decode)
    return CONCURRENCY / (first + steps), CONCURRENCY / steps


def build_checkpoint(folder: Path) -> Path:
    """Saves a LLaVA of about 3 million parameters that reads pictures of 336x336 pixels."""
    build_tiny_llava(folder, text_config=TEXT_CONFIG, vision_config=VISION_CONFIG, initializer_range=0.05)
    side = VISION_CONFIG["image_size"]
    for name in ("preprocessor_config.json", "processor_config.json"):
        config = json.loads((folder / name).read_text())
        for part in (config, config.get("image_processor", {})):
            if "crop_size" in part:
                part["size"], part["crop_size"] = {"shortest_edge": side}, {"height": side, "width": side}
            if "patch_size" in part:
                part["patch_size"] = VISION_CONFIG["patch_size"]
        (folder / name).write_text(json.dumps(config))
    return folder


def main() -> None:
    """Measures and prints."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--requests", type=int, default=48)
    parser.add_argument("--profile", action="store_true")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = build_checkpoint(Path(name))
        torch.set_num_threads(args.threads)
        new = prompts([jpeg(number) for number in range(args.requests)])
        with LLM(folder, engine_threads=args.threads) as llm:
            in_groups(llm, prompts([jpeg(10_000 + number) for number in range(CONCURRENCY)]))
            profile = cProfile.Profile()
            if args.profile:
                profile.enable()
            rate_new = rate(lambda: in_groups(llm, new), args.requests)
            rate_repeated = rate(lambda: in_groups(llm, new), args.requests)
            if args.profile:
                profile.disable()
                pstats.Stats(profile).sort_stats("tottime").print_stats(25)
            loop = generate_loop(folder, llm, new[:CONCURRENCY])
            rate_loop = rate(loop, CONCURRENCY)
            whole, decoding = modules_alone(folder, llm, new)
        ready, imported = start_ratio(folder)
    print(f"new pictures       {rate_new:7.2f} requests/s   {rate_new / rate_loop:5.2f} x generate in a loop ({rate_loop:.2f} requests/s)")
    print(f"repeated pictures  {rate_repeated:7.2f} requests/s   {rate_repeated / rate_loop:5.2f} x generate in a loop")
    print(f"of our own ceiling {rate_new / whole:7.0%} of encoder, prefill and steps alone ({whole:.2f} requests/s) for new pictures")
    print(f"                   {rate_repeated / decoding:7.0%} of steps alone ({decoding:.2f} requests/s) for repeated ones")
    print(f"start until ready  {ready:7.2f} s            {ready / imported:5.2f} x the import of the model's module ({imported:.2f} s)")


if __name__ == "__main__":
    main()
