from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from inset.errors import ConfigError
from inset.modeling.attention import PAGED_ATTENTION, read_attention_layers, register_paged_attention
from inset.modeling.interfaces import AttentionLayerSpec


def config(**changes: Any) -> SimpleNamespace:
    return SimpleNamespace(**{"model_type": "made-up", "hidden_size": 64, "num_attention_heads": 4, "num_hidden_layers": 2, **changes})


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, [AttentionLayerSpec(4, 16)] * 2),
        ({"num_key_value_heads": 2, "head_dim": 32}, [AttentionLayerSpec(2, 32)] * 2),
        ({"sliding_window": 7}, [AttentionLayerSpec(4, 16, 7)] * 2),
        (
            {"sliding_window": 7, "layer_types": ["full_attention", "sliding_attention"]},
            [AttentionLayerSpec(4, 16), AttentionLayerSpec(4, 16, 7)],
        ),
    ],
)
def test_layers_are_read_from_a_text_config(changes: dict[str, Any], expected: list[AttentionLayerSpec]) -> None:
    assert list(read_attention_layers(config(**changes))) == expected


@pytest.mark.parametrize("kind", ["linear_attention", "chunked_attention"])
def test_other_kinds_of_layers_are_refused_by_name(kind: str) -> None:
    with pytest.raises(ConfigError, match=f"'made-up' has layers of the kind {kind}"):
        read_attention_layers(config(layer_types=["full_attention", kind]))


def test_registering_twice_changes_nothing() -> None:
    from transformers import AttentionInterface

    assert register_paged_attention() == register_paged_attention() == PAGED_ATTENTION
    assert PAGED_ATTENTION in AttentionInterface().valid_keys()
