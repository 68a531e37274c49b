"""Holds answers against transformers: greedy tokens of the plain module on the same token ids and tensors."""

from __future__ import annotations

import inspect
import io
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

if TYPE_CHECKING:
    import numpy as np
    import torch

__all__ = ["GreedyAnswer", "assert_same_answer", "generate_with_transformers", "process_image_with_transformers"]

_UNDECIDED: Final = 1e-4


class GreedyAnswer(NamedTuple):
    """A greedy answer.

    Attributes:
        token_ids: Its tokens.
        gaps: For each token, how far its logit lies above the second best; under 1e-4 rounding decides, not the model.
    """

    token_ids: list[int]
    gaps: list[float]


def assert_same_answer(given: GreedyAnswer, expected: GreedyAnswer) -> None:
    """Compares tokens up to a position where the expected answer is itself undecided; the first two must be decided."""
    decided = next((index for index, gap in enumerate(expected.gaps) if gap < _UNDECIDED), len(expected.gaps))
    assert decided >= 2, "the expected answer is undecided from the start; choose another seed"
    assert given.token_ids[:decided] == expected.token_ids[:decided]


def process_image_with_transformers(folder: Path, encoded: bytes) -> dict[str, np.ndarray[Any, Any]]:
    """Returns what the checkpoint's own image processor of transformers gives for one encoded image, on its Pillow backend.

    Args:
        folder: A checkpoint with a ``preprocessor_config.json``.
        encoded: A file that Pillow reads.
    """
    import numpy as np
    from PIL import Image
    from transformers import AutoImageProcessor

    processor: Any = AutoImageProcessor.from_pretrained(folder, backend="pil")
    with Image.open(io.BytesIO(encoded)) as image:
        return {name: np.asarray(values) for name, values in processor(images=image, return_tensors="np").items()}


def generate_with_transformers(
    folder: Path, prompt_token_ids: Sequence[int], inputs: Mapping[str, torch.Tensor] | None, *, max_tokens: int
) -> GreedyAnswer:
    """Returns what `generate` of transformers answers, greedily, in float32.

    Args:
        folder: A checkpoint that `AutoModelForImageTextToText` loads.
        prompt_token_ids: Token ids with the placeholders expanded.
        inputs: What the model's processor would give besides, such as ``pixel_values``.
        max_tokens: Length of the answer; no token ends it earlier.
    """
    import torch
    from transformers import AutoModelForImageTextToText

    model: Any = AutoModelForImageTextToText.from_pretrained(folder, dtype=torch.float32).eval()
    input_ids = torch.tensor([list(prompt_token_ids)])
    with torch.inference_mode():
        output = model.generate(
            input_ids=input_ids,
            attention_mask=torch.ones_like(input_ids),
            **_token_types(model, input_ids),
            **(inputs or {}),
            max_new_tokens=max_tokens,
            do_sample=False,
            eos_token_id=-1,
            output_logits=True,
            return_dict_in_generate=True,
        )
    best = [logits[0].topk(2).values.tolist() for logits in output.logits]
    return GreedyAnswer(output.sequences[0, input_ids.shape[1] :].tolist(), [first - second for first, second in best])


def _token_types(model: Any, input_ids: torch.Tensor) -> dict[str, torch.Tensor]:
    """What tells models with positions in several axes where their items stand; without it their positions silently become plain."""
    if "mm_token_type_ids" not in inspect.signature(model.forward).parameters:
        return {}
    image, video = (getattr(model.config, name, -1) for name in ("image_token_id", "video_token_id"))
    return {"mm_token_type_ids": (input_ids == image).int() + 2 * (input_ids == video).int()}
