"""Trains the whole model to answer questions, starting from the vision tower that `vision.py` trained.

    python language.py --scenes FOLDER --vision FILE --checkpoint FOLDER --state FILE --steps 5000

The kinds of question that go wrong are asked more often. What is saved is a running mean of the weights.
"""

from __future__ import annotations

import argparse
import signal
import threading
import time
from collections import defaultdict
from pathlib import Path

import numpy as np
import torch
from tokenizers import Tokenizer
from torch import Tensor, nn
from transformers import LlavaForConditionalGeneration

from build import IMAGE, llava_config
from course import LEVELS, Mix, Pairs
from data import IGNORED, Picture, Pool, patch_labels, pixel_values
from packing import Batch, Encode, Row, collate, encoder, row_about_one, row_about_two, row_of_chat, row_of_turns
from questions import KINDS_FOR_TWO, Question, ask, ask_two
from vision import ATTENTION, PatchHeads, learning_rate

ROWS, QUESTIONS = 10, 9
TWO_ROWS, TWO_QUESTIONS = 7, 7


def questions_about(rng: np.random.Generator, picture: Picture, mix: Mix, count: int) -> list[Question]:
    """Returns up to `count` questions about one picture, and at least one."""
    found = [ask(rng, picture.shapes, kind) for kind in mix.kinds(rng, LEVELS[mix.level].kinds, count + 2)]
    known = [question for question in found if question is not None][:count]
    counting = ask(rng, picture.shapes, "counting")
    return known or ([] if counting is None else [counting])


def batch_of_one(rng: np.random.Generator, pool: Pool, mix: Mix, encode: Encode) -> Batch:
    """Returns a batch of rows about one picture each."""
    rows: list[Row] = [row_of_chat(rng, encode)]
    while len(rows) < ROWS:
        picture = pool.draw(rng)
        if len(picture.shapes) <= LEVELS[mix.level].most:
            rows.append(row_about_one(rng, picture, questions_about(rng, picture, mix, QUESTIONS), encode))
    return collate(rows)


def batch_of_two(rng: np.random.Generator, pairs: Pairs, mix: Mix, encode: Encode) -> Batch:
    """Returns a batch of rows about two pictures each."""
    rows: list[Row] = []
    while len(rows) < TWO_ROWS:
        pictures = pairs.draw(rng, LEVELS[mix.level].most)
        if rng.random() < 0.1:
            asked = (questions_about(rng, pictures[0], mix, 1), questions_about(rng, pictures[1], mix, TWO_QUESTIONS))
            rows.append(row_of_turns(rng, pictures, asked, encode))
            continue
        shapes = pictures[0].shapes, pictures[1].shapes
        found = [ask_two(rng, *shapes, kind) for kind in mix.kinds(rng, KINDS_FOR_TWO, TWO_QUESTIONS + 1)]
        rows.append(row_about_two(rng, pictures, [q for q in found if q is not None], encode))
    return collate(rows)


def forward(model: LlavaForConditionalGeneration, batch: Batch) -> tuple[Tensor, Tensor]:
    """Returns logits at the labelled positions (num_labels, vocab_size), and patch features (num_pictures, num_patches, hidden_size)."""
    inner = model.model
    features = inner.vision_tower(pixel_values=pixel_values(batch.pictures)).last_hidden_state[:, 1:]
    embeds = inner.language_model.embed_tokens(batch.input_ids)
    spliced = inner.multi_modal_projector(features).flatten(0, 1)
    embeds = embeds.masked_scatter((batch.input_ids == IMAGE)[..., None], spliced.to(embeds.dtype))
    hidden = inner.language_model(
        inputs_embeds=embeds, attention_mask=batch.mask, position_ids=batch.position_ids, use_cache=False
    ).last_hidden_state
    return model.lm_head(hidden[batch.labels != IGNORED]).float(), features


def answered_right(logits: Tensor, batch: Batch) -> list[bool]:
    """Returns for each question of the batch whether every token of its answer is the most likely one."""
    asked = batch.labels != IGNORED
    hits = logits.argmax(-1) == batch.labels[asked]
    right = torch.ones(len(batch.kinds), dtype=torch.bool)
    right[batch.asked[asked][~hits]] = False
    return right.tolist()


@torch.no_grad()
def held_out(model: LlavaForConditionalGeneration, pairs: Pairs, encode: Encode, batches: int = 4) -> dict[str, float]:
    """Returns the share of right answers for each kind of question, on scenes that training never saw."""
    rng, mix = np.random.default_rng(9), Mix(level=len(LEVELS) - 1)
    seen: dict[str, list[bool]] = defaultdict(list)
    for number in range(2 * batches):
        batch = batch_of_two(rng, pairs, mix, encode) if number % 2 else batch_of_one(rng, pairs.pool, mix, encode)
        for kind, ok in zip(batch.kinds, answered_right(forward(model, batch)[0], batch), strict=True):
            seen[kind].append(ok)
    return {kind: round(sum(oks) / len(oks), 3) for kind, oks in seen.items()}


def new_model(vision_state: Path) -> tuple[LlavaForConditionalGeneration, PatchHeads]:
    """Returns the model with a trained vision tower and a fresh language model."""
    config = llava_config()
    config.text_config.initializer_range = 0.05
    model = LlavaForConditionalGeneration(config)
    model.set_attn_implementation(ATTENTION)
    heads = PatchHeads(config.vision_config.hidden_size)
    state = torch.load(vision_state)
    model.model.vision_tower.load_state_dict(state["tower"])
    heads.load_state_dict(state["heads"])
    return model, heads


class Trainer:
    """The model, its optimiser and running mean, and how they are kept on disk."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.options = options
        self.model, self.heads = new_model(options.vision)
        tower = list(self.model.model.vision_tower.parameters()) + list(self.heads.parameters())
        ids = {id(p) for p in tower}
        rest = [p for p in self.model.parameters() if id(p) not in ids]
        groups = [{"params": rest, "scale": 1.0}, {"params": tower, "scale": options.tower_scale}]
        self.optimizer = torch.optim.AdamW(groups, betas=(0.9, 0.98), weight_decay=0.02, fused=True)
        self.mean = {name: value.clone() for name, value in self.model.state_dict().items()}
        self.mix, self.step = Mix(), 0
        if options.state.exists():
            state = torch.load(options.state, weights_only=False)
            self.model.load_state_dict(state["model"])
            self.heads.load_state_dict(state["heads"])
            self.optimizer.load_state_dict(state["optimizer"])
            self.mean, self.mix, self.step = state["mean"], Mix(state["errors"], state.get("level", 0)), state["step"]
            if options.renew_tower:
                self.renew_tower()
        self.encode = encoder(Tokenizer.from_file(str(options.checkpoint / "tokenizer.json")))
        self.pairs = Pairs(Pool(options.scenes, "train"))
        self.held_out = Pairs(Pool(options.scenes, "validation"))
        self.pairs.refresh()
        self.held_out.refresh()

    def renew_tower(self) -> None:
        """Takes the vision tower as the vision stage has left it by now."""
        state = torch.load(self.options.vision)
        self.model.model.vision_tower.load_state_dict(state["tower"])
        self.heads.load_state_dict(state["heads"])
        for parameter in (*self.model.model.vision_tower.parameters(), *self.heads.parameters()):
            self.optimizer.state.pop(parameter, None)
        for name, value in self.model.state_dict().items():
            self.mean[name].copy_(value)

    def train_step(self, along: float) -> float:
        """Learns from one batch; `along` says which part of the training lies behind. Returns the loss on the answers."""
        rng = np.random.default_rng([2, self.step])
        if rng.random() < LEVELS[self.mix.level].share_of_two:
            batch = batch_of_two(rng, self.pairs, self.mix, self.encode)
        else:
            batch = batch_of_one(rng, self.pairs.pool, self.mix, self.encode)
        with torch.autocast("cpu", torch.bfloat16):
            logits, features = forward(self.model, batch)
        loss = nn.functional.cross_entropy(logits, batch.labels[batch.labels != IGNORED])
        (loss + self.options.side * self._side_loss(rng, batch, features)).backward()
        self.mix.learn(batch.kinds, answered_right(logits.detach(), batch), along)
        for group in self.optimizer.param_groups:
            nn.utils.clip_grad_norm_(group["params"], 1.0)
            rate = learning_rate(self.step, along, peak=self.options.rate, floor=2e-5)
            group["lr"] = rate * group["scale"]
        self.optimizer.step()
        self.optimizer.zero_grad()
        self.step += 1
        keep = min(0.998, (self.step + 1) / (self.step + 10))
        with torch.no_grad():
            for name, value in self.model.state_dict().items():
                self.mean[name].lerp_(value, 1 - keep) if value.is_floating_point() else self.mean[name].copy_(value)
        return loss.item()

    def _side_loss(self, rng: np.random.Generator, batch: Batch, features: Tensor) -> Tensor:
        """Returns the loss of the patch heads on the pictures of the batch, and on some more that no question is asked about."""
        more = [self.pairs.pool.draw(rng) for _ in range(self.options.more_pictures)]
        with torch.autocast("cpu", torch.bfloat16):
            others = self.model.model.vision_tower(pixel_values=pixel_values(more)).last_hidden_state[:, 1:]
        return self.heads.loss(torch.cat([features, others]), patch_labels([*batch.pictures, *more]))

    def save(self) -> None:
        """Writes the state to resume from, and the checkpoint of the mean weights in float16; prints how it does on held-out scenes."""
        averaged = LlavaForConditionalGeneration(llava_config())
        averaged.load_state_dict(self.mean)
        print(f"held out at {self.step}: {held_out(averaged, self.held_out, self.encode)}", flush=True)
        averaged.half().save_pretrained(self.options.checkpoint)
        part = self.options.state.with_suffix(".part")
        parts = {"model": self.model, "heads": self.heads, "optimizer": self.optimizer}
        state = {name: value.state_dict() for name, value in parts.items()}
        torch.save({**state, "mean": self.mean, "errors": self.mix.errors, "level": self.mix.level, "step": self.step}, part)
        part.rename(self.options.state)


def main() -> None:
    """Runs the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in ("scenes", "vision", "checkpoint", "state"):
        parser.add_argument(f"--{name}", type=Path, required=True)
    parser.add_argument("--steps", type=int, default=5000)
    parser.add_argument("--minutes", type=float, default=10_000, help="finish in this time, with fewer steps if need be")
    parser.add_argument("--rate", type=float, default=1e-3)
    parser.add_argument("--tower-scale", type=float, default=0.5)
    parser.add_argument("--side", type=float, default=0.5)
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
            errors = {kind: round(error, 2) for kind, error in trainer.mix.errors.items()}
            print(
                f"step {trainer.step} level {trainer.mix.level} loss {mean:.3f} seconds {time.monotonic() - began:.0f} errors {errors}",
                flush=True,
            )
        if trainer.step % options.save_every == 0:
            trainer.save()
    trainer.save()


if __name__ == "__main__":
    main()
