"""Trains a vision tower on what lies on each patch, so that the language model starts with eyes that see.

    python vision.py FAMILY --data FOLDER --state FILE --steps 3000

FAMILY is llava or qwen_vl. The heads that read the labels off the patches are only scaffolding: the language stage keeps them for a side
loss, the checkpoint does not.
"""

from __future__ import annotations

import argparse
import math
import time
from pathlib import Path

import numpy as np
import torch
from torch import nn

from data import Films, Item, Pictures
from families import FAMILIES
from families.base import HIDDEN_SIZE, Family
from patch_heads import PatchHeads, patch_labels

WARMUP = 150


def learning_rate(step: int, along: float, *, peak: float, floor: float) -> float:
    """Returns a rate that rises for `WARMUP` steps, and falls along a cosine from `peak` to `floor` while `along` goes from 0 to 1."""
    falling = floor + (peak - floor) * 0.5 * (1 + math.cos(math.pi * min(1.0, along)))
    return falling * min(1.0, (step + 1) / WARMUP)


class Pools:
    """The pictures and, where a family sees them, the clips of one split."""

    def __init__(self, family: Family, folder: Path, split: str) -> None:
        self.pictures = Pictures(folder, family.pictures, split)
        self.films = Films(folder, "clips", split) if family.video else None

    def refresh(self) -> None:
        """Takes in new shards."""
        self.pictures.refresh()
        if self.films is not None:
            self.films.refresh()

    def draw(self, rng: np.random.Generator, pictures: int, films: int) -> list[Item]:
        """Returns so many pictures and clips, those of one size beside one another."""
        items: list[Item] = [self.pictures.draw(rng) for _ in range(pictures)]
        if self.films is not None:
            items += [self.films.draw(rng) for _ in range(films)]
        return sorted(items, key=lambda item: item.frames.shape[1:3])


class Eyes:
    """A tower and its heads, and how they are kept on disk."""

    def __init__(self, family: Family, state: Path) -> None:
        self.family, self.path, self.step = family, state, 0
        self.tower, self.heads = family.new_tower(), PatchHeads(HIDDEN_SIZE, family.label_sizes)
        self.parameters = [p for name, p in self.tower.named_parameters() if not name.startswith("merger.")] + list(self.heads.parameters())
        self.optimizer = torch.optim.AdamW(self.parameters, lr=1e-3, betas=(0.9, 0.98), weight_decay=0.02, fused=True)
        if state.exists():
            kept = torch.load(state)
            self.tower.load_state_dict(kept["tower"])
            self.heads.load_state_dict(kept["heads"])
            self.optimizer.load_state_dict(kept["optimizer"])
            self.step = kept["step"]

    def learn(self, items: list[Item], rate: float) -> float:
        """Takes one step, and returns the loss."""
        with torch.autocast("cpu", torch.bfloat16):
            features = self.family.look(self.tower, items)
        loss = self.heads.loss(features, patch_labels(items, list(self.family.label_sizes), self.family.arrange))
        loss.backward()  # type: ignore[no-untyped-call]
        nn.utils.clip_grad_norm_(self.parameters, 1.0)
        for group in self.optimizer.param_groups:
            group["lr"] = rate
        self.optimizer.step()
        self.optimizer.zero_grad()
        self.step += 1
        return loss.item()

    @torch.no_grad()
    def accuracy(self, items: list[Item]) -> dict[str, float]:
        """Returns the share of labelled patches that each head reads right."""
        labels = patch_labels(items, list(self.family.label_sizes), self.family.arrange)
        return self.heads.accuracy(self.family.look(self.tower, items), labels)

    def save(self) -> None:
        """Writes the state to resume from."""
        part = self.path.with_suffix(".part")
        states = {"tower": self.tower.state_dict(), "heads": self.heads.state_dict(), "optimizer": self.optimizer.state_dict()}
        torch.save({**states, "step": self.step}, part)
        part.rename(self.path)


def main() -> None:
    """Runs the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("family", choices=tuple(FAMILIES))
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--state", type=Path, required=True)
    parser.add_argument("--start", type=Path, help="a checkpoint of another family to take over what fits")
    parser.add_argument("--steps", type=int, default=3000)
    parser.add_argument("--batch", type=int, default=32, help="pictures in a step")
    parser.add_argument("--clips", type=int, default=4, help="clips in a step, where the family sees them")
    parser.add_argument("--rate", type=float, default=1.5e-3)
    parser.add_argument("--threads", type=int, default=1)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    torch.manual_seed(1)
    eyes = Eyes(FAMILIES[options.family], options.state)
    if options.start is not None and eyes.step == 0:
        eyes.family.start_tower(eyes.tower, options.start)
    train(eyes, Pools(eyes.family, options.data, "train"), Pools(eyes.family, options.data, "validation"), options)


def train(eyes: Eyes, pools: Pools, held_out: Pools, options: argparse.Namespace) -> None:
    """Trains until the steps are done."""
    checked = held_out.draw(np.random.default_rng(3), 128, 16)
    began, mean = time.monotonic(), 0.0
    while eyes.step < options.steps:
        items = pools.draw(np.random.default_rng([1, eyes.step]), options.batch, options.clips)
        loss = eyes.learn(items, learning_rate(eyes.step, eyes.step / options.steps, peak=options.rate, floor=2e-4))
        mean = 0.97 * mean + 0.03 * loss if mean else loss
        if eyes.step % 50 == 0:
            pools.refresh()
            print(f"vision step {eyes.step} loss {mean:.3f} seconds {time.monotonic() - began:.0f}", flush=True)
        if eyes.step % 250 == 0 or eyes.step == options.steps:
            print(eyes.accuracy(checked), flush=True)
            eyes.save()


if __name__ == "__main__":
    main()
