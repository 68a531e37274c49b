"""Times a decode step of 8 sequences of about 600 tokens with a LLaVA of 3 million parameters, against its modules alone.

Run as ``python benchmarks/step.py [--threads N] [--profile]``. "Modules alone" is the same packed batch through the same text model and
head with an attention that does nothing, and the choice of the largest logits: what no cache or sampler can go below. "Own cache" is
the text model as transformers runs it, with its dynamic cache and fused attention, for sequences of one length. Figures
are CPU time, which a busy neighbour touches least.
Prints CPU milliseconds per step (median and 10th percentile of alternating runs) and their ratio.
"""

from __future__ import annotations

import argparse
import cProfile
import pstats
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import torch

from inset.checkpoint import load_checkpoint
from inset.inputs import EngineRequest
from inset.modeling.attention import register_paged_attention
from inset.modeling.forward_context import PackedAttention, forward_context
from inset.modeling.interfaces import LoadOptions, ModelAdapter
from inset.modeling.transformers_adapter import TransformersAdapter
from inset.sampling_params import SamplingParams
from inset.step import CachedRequestData, NewRequestData, SchedulerOutput
from inset.testing.tiny_checkpoints import build_tiny_llava
from inset.worker.model_runner import ModelRunner
from inset_llava.model import LlavaAdapter

NUM_SEQUENCES = 8
NUM_TOKENS = 600
BLOCK_SIZE = 16
BLOCKS_EACH = 64
CPU = torch.device("cpu")
TEXT_CONFIG = {
    "hidden_size": 192,
    "intermediate_size": 512,
    "num_hidden_layers": 6,
    "num_attention_heads": 6,
    "num_key_value_heads": 2,
    "vocab_size": 1024,
}


class NoAttention(PackedAttention):
    """Gives back the queries."""

    def attend(
        self,
        layer_idx: int,
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        *,
        scaling: float,
        sliding_window: int | None = None,
        softcap: float | None = None,
    ) -> torch.Tensor:
        """Does nothing."""
        return query.transpose(0, 1).contiguous()


def load(folder: Path) -> LlavaAdapter:
    """Builds and loads the benchmark's checkpoint."""
    build_tiny_llava(folder, text_config=TEXT_CONFIG, initializer_range=0.05)
    options = LoadOptions(CPU, torch.float32, register_paged_attention())
    return LlavaAdapter.load(load_checkpoint(folder), options)


def runner_step(adapter: ModelAdapter) -> Callable[[], None]:
    """Returns a function that runs one decode step of all sequences."""
    runner = ModelRunner(
        adapter,
        device=CPU,
        dtype=torch.float32,
        block_size=BLOCK_SIZE,
        num_blocks=NUM_SEQUENCES * BLOCKS_EACH,
        max_num_seqs=64,
        max_model_len=BLOCK_SIZE * BLOCKS_EACH,
    )
    requests = [
        EngineRequest(
            request_id=str(i),
            prompt_token_ids=[(7 * i + p) % 200 + 20 for p in range(NUM_TOKENS - 3 * i)],
            sampling_params=SamplingParams(temperature=0, max_tokens=256),
        )
        for i in range(NUM_SEQUENCES)
    ]
    new = [NewRequestData(r, (), tuple(range(i * BLOCKS_EACH, (i + 1) * BLOCKS_EACH)), 0) for i, r in enumerate(requests)]
    runner.execute(SchedulerOutput(scheduled_new_reqs=new, num_scheduled_tokens={r.request_id: len(r.prompt_token_ids) for r in requests}))
    lengths = {r.request_id: len(r.prompt_token_ids) for r in requests}
    counts = dict.fromkeys(lengths, 1)

    def step() -> None:
        known = [CachedRequestData(request_id, (), length) for request_id, length in lengths.items()]
        runner.execute(SchedulerOutput(scheduled_cached_reqs=known, num_scheduled_tokens=counts))
        for request_id in lengths:
            lengths[request_id] += 1

    return step


def modules_step(adapter: ModelAdapter) -> Callable[[], None]:
    """Returns a function that runs the modules alone for as many tokens."""
    input_ids = torch.arange(NUM_SEQUENCES)
    position_ids = torch.arange(NUM_TOKENS, NUM_TOKENS + NUM_SEQUENCES)[None]

    def step() -> None:
        with torch.inference_mode(), forward_context(NoAttention()):
            hidden_states = adapter.forward(adapter.embed_input_ids(input_ids)[None], position_ids)
            adapter.compute_logits(hidden_states).argmax(-1).tolist()

    return step


def own_cache_step(adapter: TransformersAdapter) -> Callable[[], None]:
    """Returns a function that runs the text model with transformers' dynamic cache."""
    from transformers import DynamicCache

    text_model = adapter.text_model
    input_ids = torch.arange(NUM_SEQUENCES)[:, None]
    cache = DynamicCache()
    text_model.set_attn_implementation("sdpa")
    with torch.inference_mode():
        text_model(input_ids=input_ids.expand(-1, NUM_TOKENS), cache=cache, use_cache=True)

    def step() -> None:
        with torch.inference_mode():
            hidden_states = text_model(input_ids=input_ids, cache=cache, use_cache=True).last_hidden_state[:, -1]
            adapter.compute_logits(hidden_states).argmax(-1).tolist()

    return step


def measure(steps: dict[str, Callable[[], None]], rounds: int) -> dict[str, list[float]]:
    """Returns CPU milliseconds per step by name; the steps alternate, so that a busy neighbour hits both."""
    times: dict[str, list[float]] = {name: [] for name in steps}
    for _ in range(rounds):
        for name, step in steps.items():
            started = time.process_time()
            step()
            times[name].append(1e3 * (time.process_time() - started))
    return times


def main() -> None:
    """Prints the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=200)
    parser.add_argument("--profile", action="store_true")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    with tempfile.TemporaryDirectory() as folder:
        adapter = load(Path(folder))
        steps = {
            "modules alone": modules_step(adapter),
            "own cache": own_cache_step(load(Path(folder))),
            "model runner": runner_step(adapter),
        }
        measure(steps, 10)
        if options.profile:
            with cProfile.Profile() as profile:
                for _ in range(100):
                    steps["model runner"]()
            pstats.Stats(profile).sort_stats("tottime").print_stats(35)
            return
        times = measure(steps, options.rounds)
    for name, values in times.items():
        print(f"{name:14} {statistics.median(values):6.2f} ms  (p10 {statistics.quantiles(values, n=10)[0]:.2f})")
    runner = statistics.median(times.pop("model runner"))
    for name, values in times.items():
        print(f"model runner / {name:14} {runner / statistics.median(values):5.2f}")


if __name__ == "__main__":
    main()
