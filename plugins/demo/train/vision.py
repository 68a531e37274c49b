"""Trains the vision tower on what lies on each patch, so that the language model starts with eyes that see.

    python vision.py --scenes FOLDER --state FILE --steps 3000

The heads that read the labels off the patches are only scaffolding: the language stage keeps them for a side loss, the checkpoint does not.
"""

from __future__ import annotations

import argparse
import math
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from transformers import AttentionInterface, AttentionMaskInterface, CLIPVisionConfig, CLIPVisionModel
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import sdpa_mask

from data import IGNORED, LABEL_SIZES, Pool, patch_labels, pixel_values
from scenes import IMAGE_SIZE

VISION = CLIPVisionConfig(
    hidden_size=192,
    intermediate_size=576,
    num_hidden_layers=5,
    num_attention_heads=6,
    image_size=IMAGE_SIZE,
    patch_size=14,
    projection_dim=192,
    hidden_act="gelu",
    attention_dropout=0.0,
)

LOSS_WEIGHTS = {"kind": 2.0, "colour": 1.0, "column": 0.5, "centre": 1.0, "count": 0.5, "row": 0.5, "same kind": 0.5, "same colour": 0.3}
OTHER_WEIGHT = 0.15
WARMUP = 150
ATTENTION = "float32_sdpa"
"""Training runs in bfloat16, but attention in float32: its backward pass is five times faster so on the CPU."""


def float32_attention(module: nn.Module, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, **options: Any) -> Any:
    """Calls transformers' attention in float32; the arguments are its own."""
    with torch.autocast("cpu", enabled=False):
        return sdpa_attention_forward(module, query.float(), key.float(), value.float(), mask, **options)


AttentionInterface.register(ATTENTION, float32_attention)
AttentionMaskInterface.register(ATTENTION, sdpa_mask)


class PatchHeads(nn.Module):
    """Reads each label off each patch's features."""

    def __init__(self, hidden_size: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(hidden_size)
        self.read = nn.Linear(hidden_size, sum(LABEL_SIZES.values()))

    def forward(self, features: Tensor) -> dict[str, Tensor]:
        """Returns logits (num_pictures, num_patches, label size) for each label from features (num_pictures, num_patches, hidden_size)."""
        return dict(zip(LABEL_SIZES, self.read(self.norm(features)).split(list(LABEL_SIZES.values()), -1), strict=True))

    def loss(self, features: Tensor, labels: dict[str, Tensor]) -> Tensor:
        """Returns the weighted sum of the cross entropies; kinds, the hardest, are learned from the patches of objects alone."""
        total = features.new_zeros(())
        for name, logits in self(features.float()).items():
            wanted = labels[name].flatten()
            if name == "kind":
                wanted = wanted.masked_fill(wanted == 0, IGNORED)
            total = total + LOSS_WEIGHTS.get(name, OTHER_WEIGHT) * nn.functional.cross_entropy(
                logits.flatten(0, 1), wanted, ignore_index=IGNORED
            )
        return total


def learning_rate(step: int, along: float, *, peak: float, floor: float) -> float:
    """Returns a rate that rises for `WARMUP` steps, and falls along a cosine from `peak` to `floor` while `along` goes from 0 to 1."""
    falling = floor + (peak - floor) * 0.5 * (1 + math.cos(math.pi * min(1.0, along)))
    return falling * min(1.0, (step + 1) / WARMUP)


@torch.no_grad()
def accuracy(tower: CLIPVisionModel, heads: PatchHeads, pool: Pool, count: int = 256) -> dict[str, float]:
    """Returns the share of labelled patches that each head reads right on the first `count` pictures of a pool."""
    pictures = [pool.get(i) for i in range(count)]
    labels = patch_labels(pictures)
    found = heads(tower(pixel_values=pixel_values(pictures)).last_hidden_state[:, 1:])
    result = {}
    for name, logits in found.items():
        asked = (labels[name] > 0) if name in ("kind", "colour", "centre") else (labels[name] != IGNORED)
        result[name] = float((logits.argmax(-1) == labels[name])[asked].float().mean())
    return result


def main() -> None:
    """Runs the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--scenes", type=Path, required=True)
    parser.add_argument("--state", type=Path, required=True)
    parser.add_argument("--steps", type=int, default=3000)
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--threads", type=int, default=1)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    torch.manual_seed(1)
    tower, heads = CLIPVisionModel(VISION), PatchHeads(VISION.hidden_size)
    tower.set_attn_implementation(ATTENTION)
    parameters = [*tower.parameters(), *heads.parameters()]
    optimizer = torch.optim.AdamW(parameters, lr=1e-3, betas=(0.9, 0.98), weight_decay=0.02)
    start = 0
    if options.state.exists():
        state = torch.load(options.state)
        tower.load_state_dict(state["tower"])
        heads.load_state_dict(state["heads"])
        optimizer.load_state_dict(state["optimizer"])
        start = state["step"]
    pool, held_out = Pool(options.scenes, "train"), Pool(options.scenes, "validation")
    began, mean = time.monotonic(), 0.0
    for step in range(start, options.steps):
        rng = np.random.default_rng([1, step])
        pictures = [pool.draw(rng) for _ in range(options.batch)]
        with torch.autocast("cpu", torch.bfloat16):
            features = tower(pixel_values=pixel_values(pictures)).last_hidden_state[:, 1:]
        loss = heads.loss(features, patch_labels(pictures))
        loss.backward()  # type: ignore[no-untyped-call]
        nn.utils.clip_grad_norm_(parameters, 1.0)
        for group in optimizer.param_groups:
            group["lr"] = learning_rate(step, step / options.steps, peak=1.5e-3, floor=2e-4)
        optimizer.step()
        optimizer.zero_grad()
        mean = loss.item() if step == start else 0.97 * mean + 0.03 * loss.item()
        if step % 50 == 49:
            pool.refresh()
            print(f"vision step {step + 1} loss {mean:.3f} seconds {time.monotonic() - began:.0f} scenes {len(pool)}", flush=True)
        if step % 250 == 249 or step + 1 == options.steps:
            print({k: round(v, 3) for k, v in accuracy(tower, heads, held_out).items()}, flush=True)
            part = options.state.with_suffix(".part")
            saved = {"tower": tower.state_dict(), "heads": heads.state_dict(), "optimizer": optimizer.state_dict(), "step": step + 1}
            torch.save(saved, part)
            part.rename(options.state)


if __name__ == "__main__":
    main()
