"""A tiny text model with a linear encoder: the smallest model that reads items, for tests of worker and engine without a plugin."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, Self

import numpy as np
import torch

from inset.checkpoint import Checkpoint
from inset.inputs import EngineRequest, ItemPlan, MultiModalFeature, PlaceholderRange, runs_from_mask
from inset.modeling.attention import own_attention, read_attention_layers, register_paged_attention
from inset.modeling.interfaces import AttentionLayerSpec, LoadOptions, ModelAdapter
from inset.sampling_params import SamplingParams
from inset.testing.step_driver import StepDriver
from inset.worker.model_runner import ModelRunner

__all__ = [
    "BLOCK_SIZE",
    "NUM_BLOCKS",
    "LinearAdapter",
    "build_driver",
    "build_linear_adapter",
    "build_runner",
    "make_feature",
    "make_request",
    "reference_answer",
]

BLOCK_SIZE: Final = 16
NUM_BLOCKS: Final = 512
_NUM_VALUES: Final = 8


class LinearAdapter(ModelAdapter):
    """A Llama-like model whose encoder multiplies each row of an item's ``values`` by a matrix.

    An item whose values are all 13 makes the encoder raise, one whose values are all 14 makes it lose a row.
    """

    def __init__(self, text_model: Any) -> None:
        generator = torch.Generator().manual_seed(1)
        self.text_model = text_model
        self.projection = torch.randn(_NUM_VALUES, text_model.config.hidden_size, generator=generator)
        self.head = torch.randn(text_model.config.hidden_size, text_model.config.vocab_size, generator=generator)
        self.batch_sizes: list[int] = []

    @classmethod
    def load(cls, checkpoint: Checkpoint, options: LoadOptions) -> Self:
        raise NotImplementedError

    @property
    def hidden_size(self) -> int:
        return int(self.text_model.config.hidden_size)

    @property
    def attention_layers(self) -> Sequence[AttentionLayerSpec]:
        return read_attention_layers(self.text_model.config)

    def encode(self, modality: str, items: Sequence[Mapping[str, torch.Tensor]]) -> Sequence[torch.Tensor]:
        self.batch_sizes.append(len(items))
        if any(bool((item["values"] == 13).all()) for item in items):
            raise RuntimeError("the encoder does not like thirteen")
        rows = [item["values"] @ self.projection for item in items]
        return [r[:-1] if bool((item["values"] == 14).all()) else r for r, item in zip(rows, items, strict=True)]

    def embed_input_ids(self, input_ids: torch.Tensor) -> torch.Tensor:
        embeds: torch.Tensor = self.text_model.embed_tokens(input_ids)
        return embeds

    def forward(self, inputs_embeds: torch.Tensor, position_ids: torch.Tensor, *, layer_embeds: torch.Tensor | None = None) -> torch.Tensor:
        states: torch.Tensor = self.text_model(inputs_embeds=inputs_embeds, position_ids=position_ids, use_cache=False).last_hidden_state[0]
        return states

    def compute_logits(self, hidden_states: torch.Tensor) -> torch.Tensor:
        return hidden_states @ self.head

    def plain_forward(self, input_ids: torch.Tensor) -> torch.Tensor:
        return self.plain_logits(self.embed_input_ids(input_ids))

    def plain_logits(self, inputs_embeds: torch.Tensor) -> torch.Tensor:
        """Returns ``(num_tokens, vocab_size)`` logits by the module's own attention."""
        with own_attention(self.text_model):
            return self.compute_logits(self.text_model(inputs_embeds=inputs_embeds[None], use_cache=False).last_hidden_state[0])


def build_linear_adapter(**changes: Any) -> LinearAdapter:
    """Returns a random tiny model; changes go into its config."""
    from transformers import AutoConfig, AutoModel

    torch.set_num_threads(1)
    options: dict[str, Any] = {
        "hidden_size": 32,
        "intermediate_size": 64,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "vocab_size": 96,
        "max_position_embeddings": 4096,
        "initializer_range": 0.3,
        "pad_token_id": 0,
        **changes,
    }
    torch.manual_seed(0)
    config = AutoConfig.for_model(options.pop("model_type", "llama"), **options)
    model = AutoModel.from_config(config, attn_implementation=register_paged_attention())
    return LinearAdapter(model.eval().requires_grad_(False))


def build_runner(adapter: ModelAdapter, **changes: Any) -> ModelRunner:
    """Returns a runner with room for a few thousand positions."""
    options: dict[str, Any] = {"max_num_seqs": 16, "max_model_len": 2048, "dtype": torch.float32, **changes}
    return ModelRunner(adapter, device=torch.device("cpu"), block_size=BLOCK_SIZE, num_blocks=NUM_BLOCKS, **options)


def build_driver(runner: ModelRunner) -> StepDriver:
    """Returns a driver for a runner of `build_runner`."""
    return StepDriver(runner, block_size=BLOCK_SIZE, num_blocks=NUM_BLOCKS)


def make_feature(offset: int, mask: Sequence[bool], *, name: str, fill: float | None = None, index: int = 0) -> MultiModalFeature:
    """Returns an item of random values whose identity is its name."""
    runs = runs_from_mask(mask)
    mm_hash = name.encode().ljust(32, b".")
    rng = np.random.default_rng(list(mm_hash))
    values = rng.normal(size=(sum(mask), _NUM_VALUES)).astype(np.float32)
    if fill is not None:
        values[:] = fill
    plan = ItemPlan(num_tokens=len(mask), num_embeds=sum(mask), is_embed=runs)
    placeholder = PlaceholderRange(offset, len(mask), runs)
    return MultiModalFeature(
        modality="image", item_index=index, mm_hash=mm_hash, placeholder=placeholder, data={"values": values}, plan=plan
    )


def make_request(request_id: str, num_tokens: int, features: Sequence[MultiModalFeature] = (), **sampling: Any) -> EngineRequest:
    """Returns a greedy request of random tokens, or one with other sampling options."""
    rng = np.random.default_rng(list(request_id.encode()))
    options = {"temperature": 0.0, "max_tokens": 12, **sampling}
    return EngineRequest(
        request_id=request_id,
        prompt_token_ids=rng.integers(3, 90, size=num_tokens).tolist(),
        mm_features=tuple(features),
        sampling_params=SamplingParams(**options),
        eos_token_ids=(2,),
    )


def reference_answer(adapter: LinearAdapter, request: EngineRequest) -> list[int]:
    """Returns the greedy answer of the plain module, one whole forward pass for each token.

    It ends early at a position where the two best logits are too close to tell.
    """
    embeds = adapter.embed_input_ids(torch.tensor(list(request.prompt_token_ids)))
    for feature in request.mm_features:
        assert feature.data is not None
        rows = torch.from_numpy(feature.data["values"]) @ adapter.projection
        positions = [feature.placeholder.offset + p for start, stop in feature.placeholder.runs for p in range(start, stop)]
        embeds[positions] = rows
    if request.prompt_embeds is not None:
        embeds = torch.from_numpy(request.prompt_embeds)
    answer: list[int] = []
    for _ in range(request.sampling_params.max_tokens or 0):
        logits = adapter.plain_logits(embeds)[-1]
        best = logits.topk(2)
        if best.values[0] - best.values[1] < 1e-4:
            break
        answer.append(int(best.indices[0]))
        embeds = torch.cat([embeds, adapter.embed_input_ids(best.indices[:1])])
    return answer
