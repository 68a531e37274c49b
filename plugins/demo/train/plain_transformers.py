"""Answers with transformers' own modules, to compare with: nothing of Inset takes part."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import av
import numpy as np
import torch
from PIL import Image
from transformers import AutoProcessor, AutoTokenizer, LlavaForConditionalGeneration, Qwen2VLForConditionalGeneration
from transformers.models.qwen2_vl.image_processing_pil_qwen2_vl import Qwen2VLImageProcessorPil

from evaluate import MAX_TOKENS, PER_STEP, Answerer, File, Task
from families.qwen_vl import MERGE, QwenVL, grid_of, patchify
from scenes import Pixels
from shards import CELL, CLIP_CELLS, resize

BATCH = 32
Prepare = Callable[[list[Task], list[str]], dict[str, Any]]


def with_transformers(folder: Path) -> Answerer:
    """Returns a function that answers with transformers' own model and processor."""
    is_llava = json.loads((folder / "config.json").read_text())["model_type"] == "llava"
    kind = LlavaForConditionalGeneration if is_llava else Qwen2VLForConditionalGeneration
    model: Any = kind.from_pretrained(folder, dtype=torch.float32).eval()
    tokenizer: Any = AutoTokenizer.from_pretrained(folder)
    prepare = _for_llava(folder) if is_llava else _for_qwen_vl(folder, tokenizer)

    def answer(tasks: list[Task]) -> list[str]:
        return [text for start in range(0, len(tasks), BATCH) for text in answer_batch(tasks[start : start + BATCH])]

    def answer_batch(tasks: list[Task]) -> list[str]:
        inputs = prepare(tasks, [_prompt(tokenizer, task) for task in tasks])
        output = model.generate(**inputs, max_new_tokens=MAX_TOKENS, do_sample=False)
        return list(tokenizer.batch_decode(output[:, inputs["input_ids"].shape[1] :], skip_special_tokens=True))

    return answer


def _prompt(tokenizer: Any, task: Task) -> str:
    parts = [{"type": file.media_type.split("/")[0]} for file in task.files]
    messages = [{"role": "user", "content": [*parts, {"type": "text", "text": task.question.text}]}]
    return str(tokenizer.apply_chat_template(messages, add_generation_prompt=True, tokenize=False))


def _for_llava(folder: Path) -> Prepare:
    processor: Any = AutoProcessor.from_pretrained(folder)

    def prepare(tasks: list[Task], prompts: list[str]) -> dict[str, Any]:
        images = [Image.open(io.BytesIO(file.data)) for task in tasks for file in task.files]
        inputs = processor(text=prompts, images=images, padding=True, return_tensors="pt")
        inputs.pop("token_type_ids", None)
        return dict(inputs)

    return prepare


def _for_qwen_vl(folder: Path, tokenizer: Any) -> Prepare:
    """The family's own processor wants torchvision as soon as it loads; its parts for pictures and text do not."""
    image_processor = Qwen2VLImageProcessorPil.from_pretrained(folder)
    family = QwenVL()

    def prepare(tasks: list[Task], prompts: list[str]) -> dict[str, Any]:
        files = [file for task in tasks for file in task.files]
        images = [Image.open(io.BytesIO(file.data)) for file in files if file.media_type.startswith("image/")]
        clips = [frames_of_clip(file) for file in files if file.media_type.startswith("video/")]
        inputs: dict[str, Any] = {}
        if images:
            inputs = dict(image_processor(images, return_tensors="pt"))
        if clips:
            inputs["pixel_values_videos"] = torch.cat([patchify(frames) for frames in clips])
            inputs["video_grid_thw"] = torch.tensor([grid_of(frames) for frames in clips])
        for token, name in zip((family.special[t] for t in family.media_tokens), ("image_grid_thw", "video_grid_thw"), strict=True):
            counts = iter(int(grid.prod()) // MERGE**2 for grid in inputs.get(name, ()))
            prompts = ["".join(part if i == 0 else token * next(counts) + part for i, part in enumerate(p.split(token))) for p in prompts]
        text = tokenizer(prompts, padding=True, return_tensors="pt")
        ids = text["input_ids"]
        types = sum((ids == token).int() * number for number, token in enumerate(family.media_tokens, 1))
        return {**inputs, "input_ids": ids, "attention_mask": text["attention_mask"], "mm_token_type_ids": types}

    return prepare


def frames_of_clip(file: File) -> Pixels:
    """Returns the frames that the model looks at: uint8 (num_frames, height, width, 3), resized."""
    with av.open(io.BytesIO(file.data)) as container:
        frames = [frame.to_ndarray(format="rgb24") for frame in container.decode(video=0)]
    height, width = _fit(*frames[0].shape[:2])
    return np.stack([resize(frame, height, width) for frame in frames[::PER_STEP]])


def _fit(height: int, width: int) -> tuple[int, int]:
    from transformers.models.qwen2_vl.image_processing_pil_qwen2_vl import smart_resize

    fewest, most = (cells * CELL * CELL for cells in CLIP_CELLS)
    rows, columns = smart_resize(height, width, CELL, fewest, most)
    return int(rows), int(columns)
