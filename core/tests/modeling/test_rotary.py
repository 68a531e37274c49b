from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Self

import pytest
import torch

from inset.checkpoint import Checkpoint
from inset.errors import ConfigError
from inset.modeling import loading
from inset.modeling.interfaces import LoadOptions
from inset.modeling.loading import build_module, load_adapter
from inset.modeling.rotary import check_rotary_frequencies
from inset.modeling.transformers_adapter import TransformersAdapter

CPU = torch.device("cpu")

LONG = {"rope_type": "longrope", "rope_theta": 1e4, "short_factor": [1.0] * 8, "long_factor": [4.0] * 8, "factor": 2.0}
LONG["original_max_position_embeddings"] = 64
DYNAMIC = {"rope_type": "dynamic", "rope_theta": 1e4, "factor": 2.0}


def config(rope_parameters: dict[str, Any] | None, **changes: Any) -> Any:
    from transformers import LlamaConfig

    sizes = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 1, "num_attention_heads": 2, "vocab_size": 50}
    return LlamaConfig(**sizes, max_position_embeddings=128, rope_parameters=rope_parameters, **changes)


@pytest.mark.parametrize(("parameters", "max_model_len"), [(LONG, None), (LONG, 65), (LONG, 128), (DYNAMIC, 129)])
def test_frequencies_that_would_change_while_serving_refuse_the_model_by_name(
    parameters: dict[str, Any], max_model_len: int | None
) -> None:
    from transformers import LlamaModel

    longest = 64 if parameters is LONG else 128
    with pytest.raises(ConfigError, match=f"'llama' has .*{parameters['rope_type']!r}.* --max-model-len {longest} or less"):
        build_module(LlamaModel, config(parameters), LoadOptions(CPU, torch.float32, "eager", max_model_len))


@pytest.mark.parametrize(
    ("parameters", "max_model_len"),
    [
        (LONG, 64),
        (DYNAMIC, 128),
        (DYNAMIC, None),
        (None, None),
        ({"rope_type": "linear", "rope_theta": 1e4, "factor": 2.0}, None),
        ({"rope_type": "yarn", "rope_theta": 1e4, "factor": 2.0, "original_max_position_embeddings": 64}, None),
    ],
)
def test_frequencies_that_stay_are_served(parameters: dict[str, Any] | None, max_model_len: int | None) -> None:
    check_rotary_frequencies(config(parameters), max_model_len)


def test_an_adapter_that_builds_its_module_by_itself_is_checked_too(monkeypatch: pytest.MonkeyPatch) -> None:
    class OwnAdapter(TransformersAdapter):
        @classmethod
        def load(cls, checkpoint: Checkpoint, options: LoadOptions) -> Self:
            configs = SimpleNamespace(text_config=config(DYNAMIC), get_text_config=lambda: config(DYNAMIC))
            return cls(SimpleNamespace(model=SimpleNamespace(language_model=None), config=configs))

        def encode(self, modality: str, items: Sequence[Mapping[str, torch.Tensor]]) -> Sequence[torch.Tensor]:
            return []

    monkeypatch.setattr(loading, "load_object", lambda target: OwnAdapter)
    checkpoint = Checkpoint(folder=Path("nowhere"), config={})
    assert isinstance(load_adapter("own", checkpoint, LoadOptions(CPU, torch.float32, "eager", 128)), OwnAdapter)
    with pytest.raises(ConfigError, match="dynamic"):
        load_adapter("own", checkpoint, LoadOptions(CPU, torch.float32, "eager", 129))


def test_each_kind_of_layer_is_checked() -> None:
    text_config = config(None)
    text_config.rope_parameters = {"full_attention": LONG, "sliding_attention": {"rope_type": "default", "rope_theta": 1e4}}
    with pytest.raises(ConfigError, match="longrope"):
        check_rotary_frequencies(text_config, None)


@pytest.mark.parametrize(("parameters", "longest"), [(LONG, 64), (DYNAMIC, 128)])
def test_frequencies_change_in_transformers_behind_the_longest_request_that_is_served(parameters: dict[str, Any], longest: int) -> None:
    from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding

    rotary = LlamaRotaryEmbedding(config(parameters))

    def beside(position: int) -> torch.Tensor:
        cosines: torch.Tensor = rotary(torch.zeros(1, 1, 32), torch.tensor([[0, 1, 2, 3, position]]))[0][0, :4]
        return cosines

    assert torch.equal(beside(longest - 1), beside(4))
    assert not torch.equal(beside(longest), beside(4))
