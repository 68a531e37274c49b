from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from inset.errors import ConfigError
from inset.testing.linear_model import build_linear_adapter
from inset.worker.attention_check import check_paged_attention

CPU = torch.device("cpu")


@pytest.mark.parametrize("model_type", ["llama", "qwen2", "mistral"])
def test_served_models_pass(model_type: str) -> None:
    check_paged_attention(build_linear_adapter(model_type=model_type, sliding_window=20), device=CPU, dtype=torch.float32)


@pytest.mark.parametrize(
    ("setting", "value", "reason"),
    [
        ("scaling", 3.0, "differ"),
        ("is_causal", False, "attention to later positions"),
        ("layer_idx", None, "not packed and causal"),
    ],
)
def test_attention_of_another_kind_refuses_the_model_by_name(setting: str, value: object, reason: str) -> None:
    adapter = build_linear_adapter()
    kept = adapter.plain_forward

    def plain_forward(input_ids: torch.Tensor) -> torch.Tensor:
        logits = kept(input_ids)
        for layer in adapter.text_model.layers:  # after the plain run: only the paged one sees it
            setattr(layer.self_attn, setting, value)
        return logits

    adapter.plain_forward = plain_forward  # type: ignore[method-assign]
    with pytest.raises(ConfigError, match=f"LinearAdapter cannot be served: .*{reason}"):
        check_paged_attention(adapter, device=CPU, dtype=torch.float32)


def test_an_argument_that_changes_attention_is_refused_by_name() -> None:
    adapter = build_linear_adapter()
    kept: Callable[..., Any] = adapter.text_model.forward
    plain = adapter.plain_forward

    def plain_forward(input_ids: torch.Tensor) -> torch.Tensor:
        logits = plain(input_ids)
        adapter.text_model.forward = lambda **kwargs: kept(s_aux=torch.zeros(4), **kwargs)
        return logits

    adapter.plain_forward = plain_forward  # type: ignore[method-assign]
    with pytest.raises(ConfigError, match="'s_aux'"):
        check_paged_attention(adapter, device=CPU, dtype=torch.float32)
