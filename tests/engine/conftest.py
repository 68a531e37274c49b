"""Tiny checkpoints with random weights, engines over them, and what transformers says about the same input."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from inset import LLM
from inset.inputs import ProcessedPrompt
from inset.testing.tiny_checkpoints import build_tiny_llava, build_tiny_llava_next

Reference = Callable[[ProcessedPrompt, int], tuple[list[int], list[float]]]


@pytest.fixture(scope="session", autouse=True)
def _one_thread() -> None:
    torch.set_num_threads(1)


@pytest.fixture(scope="session")
def checkpoints(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("checkpoints")
    return {"llava": build_tiny_llava(folder / "llava"), "llava_next": build_tiny_llava_next(folder / "llava_next")}


@pytest.fixture(scope="session")
def picture() -> Callable[..., Image.Image]:
    """Makes a picture that differs with its number."""

    def make(number: int, *, size: tuple[int, int] = (80, 60)) -> Image.Image:
        pixels = np.random.default_rng(number).integers(0, 256, (size[1], size[0], 3), dtype=np.uint8)
        return Image.fromarray(pixels)

    return make


@pytest.fixture
def make_llm(checkpoints: dict[str, Path]) -> Iterator[Callable[..., LLM]]:
    """Makes engines that are closed, and audited, when the test ends."""
    made: list[LLM] = []

    def make(model: str = "llava", **options: Any) -> LLM:
        made.append(LLM(checkpoints[model], engine_threads=1, **options))
        return made[-1]

    yield make
    for llm in made:
        llm.close()


@pytest.fixture(scope="session")
def reference(checkpoints: dict[str, Path]) -> Callable[[str], Reference]:
    """Answers greedily with transformers alone, from the same token ids and pixels; also gives the gap between the two best logits."""
    from transformers import AutoModelForImageTextToText

    models: dict[str, Any] = {}

    def of(name: str) -> Reference:
        if name not in models:
            models[name] = AutoModelForImageTextToText.from_pretrained(checkpoints[name], dtype=torch.float32).eval()

        def answer(prompt: ProcessedPrompt, max_tokens: int) -> tuple[list[int], list[float]]:
            inputs = {"input_ids": torch.tensor([list(prompt.prompt_token_ids)]), **_pixels(name, prompt, checkpoints[name])}
            inputs["attention_mask"] = torch.ones_like(inputs["input_ids"])
            with torch.inference_mode():
                out = models[name].generate(
                    **inputs, max_new_tokens=max_tokens, do_sample=False, output_logits=True, return_dict_in_generate=True, eos_token_id=-1
                )
            best = [logits[0].topk(2).values for logits in out.logits]
            return out.sequences[0, inputs["input_ids"].shape[1] :].tolist(), [float(two[0] - two[1]) for two in best]

        return answer

    return of


def _pixels(name: str, prompt: ProcessedPrompt, folder: Path) -> dict[str, torch.Tensor]:
    items = prompt.mm_kwargs.get("image", [])
    if not items:
        return {}
    config = json.loads((folder / "preprocessor_config.json").read_text())
    scale = config.get("rescale_factor", 1 / 255)
    mean, std = torch.tensor(config["image_mean"]), torch.tensor(config["image_std"])

    def normal(pixels: Any) -> torch.Tensor:
        centred = torch.from_numpy(np.array(pixels)).float() - mean * (1 / scale)
        return torch.movedim(centred / (std * (1 / scale)), -1, -3)

    values = [normal(item["pixel_values"]) for item in items if item is not None]
    if name == "llava":
        return {"pixel_values": torch.stack(values)}
    most = max(len(value) for value in values)
    padded = [torch.cat([value, value.new_zeros(most - len(value), *value.shape[1:])]) for value in values]
    sizes = torch.stack([torch.from_numpy(np.array(item["image_sizes"])) for item in items if item is not None])
    return {"pixel_values": torch.stack(padded), "image_sizes": sizes}


@pytest.fixture(scope="session")
def assert_same_tokens() -> Callable[[Sequence[int], tuple[list[int], list[float]]], None]:
    """Compares up to a position where the reference itself is undecided."""

    def check(token_ids: Sequence[int], expected: tuple[list[int], list[float]]) -> None:
        tokens, gaps = expected
        decided = next((index for index, gap in enumerate(gaps) if gap < 1e-4), len(tokens))
        assert decided >= 2, "the reference is undecided from the start; choose another seed"
        assert list(token_ids)[:decided] == tokens[:decided]

    return check


@pytest.fixture(scope="session")
def block_bytes(checkpoints: dict[str, Path]) -> Callable[[str], int]:
    """Size of one KV block of 16 tokens in float32."""

    def of(name: str) -> int:
        text = json.loads((checkpoints[name] / "config.json").read_text())["text_config"]
        head_dim = text.get("head_dim") or text["hidden_size"] // text["num_attention_heads"]
        return int(16 * 2 * text["num_hidden_layers"] * text["num_key_value_heads"] * head_dim * 4)

    return of
