"""The core in front of plain transformers: Inset fetches, decodes and processes, `generate` answers.

python -m examples.plain_transformers CHECKPOINT "What is in the picture?" https://example.org/cat.jpg
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

import torch
from transformers import AutoModelForImageTextToText

from inset import Core


def answer(core: Core, model: Any, question: str, image_urls: Sequence[str], *, max_tokens: int = 32) -> str:
    """Returns the model's answer to a question about pictures."""
    parts: list[dict[str, Any]] = [{"type": "image_url", "image_url": {"url": url}} for url in image_urls]
    prompt = core.process_sync([{"role": "user", "content": [*parts, {"type": "text", "text": question}]}])
    inputs = core.to_transformers(prompt)
    with torch.inference_mode():
        output = model.generate(**inputs, max_new_tokens=max_tokens, do_sample=False)
    return core.tokenizer.decode(output[0, inputs["input_ids"].shape[1] :].tolist())


def main(checkpoint: str, question: str, *image_urls: str) -> None:
    """Loads a checkpoint, a folder or the name of a shipped one, twice: its configs for the core, its weights for transformers."""
    with Core.open(checkpoint) as core:
        model = AutoModelForImageTextToText.from_pretrained(core.checkpoint.folder, dtype=torch.float32).eval()
        print(answer(core, model, question, image_urls))


if __name__ == "__main__":
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    main(*sys.argv[1:])
