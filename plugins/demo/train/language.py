"""Trains the whole model to answer questions, starting from the vision tower that `vision.py` trained.

    python language.py FAMILY --data FOLDER --vision FILE --checkpoint FOLDER --state FILE --steps 5000

FAMILY is llava or qwen_vl. The kinds of question that go wrong are asked more often. What is saved is a running mean of the weights.
"""

from __future__ import annotations

import argparse
import signal
import threading
import time
from collections import defaultdict
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from tokenizers import Tokenizer
from torch import Tensor, nn

from course import LEVELS, Mix
from data import Item
from families import FAMILIES
from families.base import HIDDEN_SIZE, Family
from lessons import Lessons
from mentions import MentionHeads
from news import NewsHead, news_labels
from packing import Batch, Encode
from patch_heads import IGNORED, PatchHeads, patch_labels
from vision import Pools, learning_rate
from whereabouts import WhereaboutsHeads
from words import Words


class Forward(NamedTuple):
    """What a batch gives.

    Attributes:
        logits: (num_labels, vocab_size) at the labelled positions.
        features: (num_patches, hidden_size) of the patches.
        projected: (num_tokens, hidden_size): what stands in the prompt for items.
        mentions: (num_mentions, hidden_size) halfway through the language model, at the words that mention something.
        later: The same a layer later.
        shown: (num_tokens, hidden_size) halfway, at the tokens of items.
    """

    logits: Tensor
    features: Tensor
    projected: Tensor
    mentions: Tensor
    later: Tensor
    shown: Tensor


def forward(family: Family, model: Any, batch: Batch) -> Forward:
    """Runs the model on a batch."""
    features = family.look(family.tower_of(model), batch.items)
    embeds = model.get_input_embeddings()(batch.input_ids)
    is_media = torch.isin(batch.input_ids, torch.tensor(family.media_tokens))
    projected = family.project(model, features)
    embeds = embeds.masked_scatter(is_media[..., None], projected.to(embeds.dtype))
    reading = family.read(model, embeds, batch.mask, batch.position_ids)
    logits = model.lm_head(reading.last[batch.labels != IGNORED]).float()
    mentions, later = (states[batch.mentioned] for states in (reading.halfway, reading.later))
    return Forward(logits, features, projected, mentions, later, reading.halfway[is_media])


def answered_right(logits: Tensor, batch: Batch) -> list[bool]:
    """Returns for each question of the batch whether every token of its answer is the most likely one."""
    asked = batch.labels != IGNORED
    hits = logits.argmax(-1) == batch.labels[asked]
    right = torch.ones(len(batch.kinds), dtype=torch.bool)
    right[batch.asked[asked][~hits]] = False
    return right.tolist()


@torch.no_grad()
def held_out(family: Family, model: Any, lessons: Lessons, batches: int = 12) -> dict[str, float]:
    """Returns the share of right answers for each kind of question, on what training never saw."""
    rng, mix = np.random.default_rng(9), Mix(level=len(LEVELS) - 1)
    seen: dict[str, list[bool]] = defaultdict(list)
    for number in range(batches):
        batch = (lessons.about_one, lessons.about_two, lessons.about_clips)[number % (3 if family.video else 2)](rng, mix)
        for kind, ok in zip(batch.kinds, answered_right(forward(family, model, batch).logits, batch), strict=True):
            seen[kind].append(ok)
    return {kind: round(sum(oks) / len(oks), 3) for kind, oks in sorted(seen.items())}


class Scaffolding(nn.Module):
    """What training reads off the model besides its answers, so that it learns sooner; the checkpoint does not keep it."""

    def __init__(self, family: Family, tokenizer: Tokenizer) -> None:
        super().__init__()
        self.family, self.words = family, Words(tokenizer)
        self.patches = PatchHeads(HIDDEN_SIZE, family.label_sizes)
        self.mentions, self.whereabouts, self.news = MentionHeads(HIDDEN_SIZE), WhereaboutsHeads(HIDDEN_SIZE), NewsHead(HIDDEN_SIZE)

    def losses(self, model: Any, batch: Batch, done: Forward, more: list[Item]) -> dict[str, Tensor]:
        """Returns what each part is off by; patches also those of `more` items that no question is asked about."""
        family = self.family
        with torch.autocast("cpu", torch.bfloat16):
            others = family.look(family.tower_of(model), more)
        labels, of_others = (patch_labels(items, list(family.label_sizes), family.arrange) for items in (batch.items, more))
        both = {name: torch.cat([label, of_others[name]]) for name, label in labels.items()}
        tables = model.get_input_embeddings().weight, model.lm_head.weight
        return {
            "patches": self.patches.loss(torch.cat([done.features, others]), both),
            "mentions": self.mentions.loss(done.mentions, done.later, batch.mention_labels),
            "whereabouts": self.whereabouts.loss(done.shown, batch.whereabouts),
            "news": self.news.loss(done.shown, news_labels(batch.items, batch.before, family.arrange, family.patches_per_token)),
            "words": self.words.loss(done.projected, tables, labels, family.patches_per_token),
        }


class Trainer:
    """The model, its optimiser and running mean, and how they are kept on disk."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.options, self.family = options, FAMILIES[options.family]
        look_up = dict.fromkeys(("mentions", "whereabouts", "news"), options.look_up)
        self.side_weights = {"patches": options.side, **look_up, "words": options.words}
        self.side_losses: dict[str, float] = {}
        tokenizer = Tokenizer.from_file(str(options.checkpoint / "tokenizer.json"))
        self.model, self.scaffolding = self.family.new_model(), Scaffolding(self.family, tokenizer)
        if options.start is not None:
            self.family.start_language(self.model, tokenizer, options.start)
        self._take_tower()
        self.optimizer = torch.optim.AdamW(self._groups(), betas=(0.9, 0.98), weight_decay=0.02, fused=True)
        self.mean = {name: value.clone() for name, value in self.model.state_dict().items()}
        self.mix, self.step = Mix(), 0
        if options.state.exists():
            self._resume()
        encode = Encode(tokenizer)
        self.pools = Pools(self.family, options.data, "train")
        self.lessons = Lessons(self.family, self.pools, encode, options.rows)
        self.held_out = Lessons(self.family, Pools(self.family, options.data, "validation"), encode, options.rows)

    def _groups(self) -> list[dict[str, Any]]:
        """Returns the parameters, those of the tower apart: it learns at a rate of its own."""
        named = [*self.model.named_parameters(), *self.scaffolding.named_parameters()]
        of_tower = {id(p) for name, p in self.family.tower_of(self.model).named_parameters() if not name.startswith("merger.")}
        of_tower |= {id(p) for p in self.scaffolding.patches.parameters()}
        return [
            {"params": [p for _, p in named if (id(p) in of_tower) == is_tower], "scale": self.options.tower_scale if is_tower else 1.0}
            for is_tower in (False, True)
        ]

    def _parts(self) -> dict[str, Any]:
        return {"model": self.model, "scaffolding": self.scaffolding, "optimizer": self.optimizer}

    def _resume(self) -> None:
        state = torch.load(self.options.state, weights_only=False)
        for name, part in self._parts().items():
            part.load_state_dict(state[name])
        self.mean, self.mix, self.step = state["mean"], Mix(state["errors"], state["level"]), state["step"]
        if self.options.renew_tower:
            for parameter in self._take_tower():
                self.optimizer.state.pop(parameter, None)
            for name, value in self.model.state_dict().items():
                self.mean[name].copy_(value)

    def _take_tower(self) -> list[nn.Parameter]:
        """Takes the vision tower as the vision stage has left it by now; returns what that changed."""
        state = torch.load(self.options.vision)
        tower = self.family.tower_of(self.model)
        taken = {name: value for name, value in state["tower"].items() if not name.startswith("merger.")}
        tower.load_state_dict(taken, strict=False)
        self.scaffolding.patches.load_state_dict(state["heads"])
        return [*(p for name, p in tower.named_parameters() if name in taken), *self.scaffolding.patches.parameters()]

    def train_step(self, along: float) -> float:
        """Learns from one batch; `along` says which part of the training lies behind. Returns the loss on the answers."""
        rng = np.random.default_rng([2, self.step])
        batch = self.lessons.draw(rng, self.mix)
        with torch.autocast("cpu", torch.bfloat16):
            done = forward(self.family, self.model, batch)
        loss = nn.functional.cross_entropy(done.logits, batch.labels[batch.labels != IGNORED])
        more = self.pools.draw(rng, self.options.more_pictures, self.options.more_pictures // 3)
        sides = self.scaffolding.losses(self.model, batch, done, more)
        torch.stack([loss, *(self.side_weights[name] * side for name, side in sides.items())]).sum().backward()  # type: ignore[no-untyped-call]
        for name, side in sides.items():
            self.side_losses[name] = 0.97 * self.side_losses.get(name, side.item()) + 0.03 * side.item()
        self.mix.learn(batch.kinds, answered_right(done.logits.detach(), batch), along)
        for group in self.optimizer.param_groups:
            nn.utils.clip_grad_norm_(group["params"], 1.0)
            group["lr"] = learning_rate(self.step, along, peak=self.options.rate, floor=2e-5) * group["scale"]
        self.optimizer.step()
        self.optimizer.zero_grad()
        self.step += 1
        keep = min(0.998, (self.step + 1) / (self.step + 10))
        with torch.no_grad():
            for name, value in self.model.state_dict().items():
                self.mean[name].lerp_(value, 1 - keep) if value.is_floating_point() else self.mean[name].copy_(value)
        return loss.item()

    def save(self) -> None:
        """Writes the state to resume from, and the checkpoint of the mean weights in float16; prints how it does on held-out scenes."""
        averaged = self.family.new_model()
        averaged.load_state_dict(self.mean)
        print(f"held out at {self.step}: {held_out(self.family, averaged, self.held_out)}", flush=True)
        averaged.half().save_pretrained(self.options.checkpoint)
        part = self.options.state.with_suffix(".part")
        states = {name: value.state_dict() for name, value in self._parts().items()}
        torch.save({**states, "mean": self.mean, "errors": self.mix.errors, "level": self.mix.level, "step": self.step}, part)
        part.rename(self.options.state)


def main() -> None:
    """Runs the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("family", choices=tuple(FAMILIES))
    for name in ("data", "vision", "checkpoint", "state"):
        parser.add_argument(f"--{name}", type=Path, required=True)
    parser.add_argument("--start", type=Path, help="a checkpoint of another family to take over what fits")
    parser.add_argument("--steps", type=int, default=5000)
    parser.add_argument("--minutes", type=float, default=10_000, help="finish in this time, with fewer steps if need be")
    parser.add_argument("--rate", type=float, default=1e-3)
    parser.add_argument("--rows", type=int, default=10, help="conversations in a step")
    parser.add_argument("--tower-scale", type=float, default=0.5)
    parser.add_argument("--side", type=float, default=0.5, help="weight of the loss of the heads on patches")
    parser.add_argument("--look-up", type=float, default=0.5, help="weight of the losses of the heads on mentions, whereabouts and news")
    parser.add_argument("--words", type=float, default=0.1, help="weight of the loss that draws items towards their words")
    parser.add_argument("--more-pictures", type=int, default=16)
    parser.add_argument("--save-every", type=int, default=500)
    parser.add_argument("--renew-tower", action="store_true", help="on resuming, take the tower from --vision again")
    parser.add_argument("--threads", type=int, default=1)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    torch.manual_seed(2)
    run(Trainer(options), options)


def run(trainer: Trainer, options: argparse.Namespace) -> None:
    """Trains until the steps are done, or the minutes are over; SIGTERM ends it too, after the state was saved."""
    stop = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stop.set())
    began, start, mean = time.monotonic(), trainer.step / options.steps, 0.0
    while trainer.step < options.steps and not stop.is_set():
        spent = (time.monotonic() - began) / (60 * options.minutes)
        if spent >= 1:
            break
        loss = trainer.train_step(max(trainer.step / options.steps, start + (1 - start) * spent))
        mean = 0.97 * mean + 0.03 * loss if mean else loss
        if trainer.step % 100 == 0:
            sides, errors = ({k: round(v, 2) for k, v in of.items()} for of in (trainer.side_losses, trainer.mix.errors))
            print(
                f"step {trainer.step} level {trainer.mix.level} loss {mean:.3f} seconds {time.monotonic() - began:.0f} {sides} {errors}",
                flush=True,
            )
        if trainer.step % options.save_every == 0:
            trainer.save()
    trainer.save()


if __name__ == "__main__":
    main()
