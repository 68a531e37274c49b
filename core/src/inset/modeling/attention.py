"""The attention function that transformers modules call: it passes packed batches on to the step that runs."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

from inset.errors import ConfigError
from inset.modeling.forward_context import current_attention
from inset.modeling.interfaces import AttentionLayerSpec

if TYPE_CHECKING:
    import torch

__all__ = ["PAGED_ATTENTION", "own_attention", "read_attention_layers", "register_paged_attention"]

PAGED_ATTENTION: Final = "inset_paged"
"""The name under which transformers knows our attention."""

# What modules hand over besides the tensors that has no say in the result of attention.
_HARMLESS: Final = frozenset({"position_ids", "cache_position", "use_cache", "output_attentions", "output_hidden_states", "return_dict"})


def register_paged_attention() -> str:
    """Registers the attention function with transformers, and returns its name; calling it again changes nothing."""
    from transformers import AttentionInterface

    AttentionInterface.register(PAGED_ATTENTION, _attend)
    return PAGED_ATTENTION


def _attend(
    module: torch.nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    scaling: float | None = None,
    dropout: float = 0.0,
    sliding_window: int | None = None,
    softcap: float | None = None,
    is_causal: bool | None = None,
    **others: Any,
) -> tuple[torch.Tensor, None]:
    layer_idx = getattr(module, "layer_idx", None)
    is_causal = getattr(module, "is_causal", True) if is_causal is None else is_causal
    unknown = [name for name, given in others.items() if given is not None and given is not False and name not in _HARMLESS]
    if unknown or layer_idx is None or not is_causal or attention_mask is not None or dropout or query.shape[0] != 1:
        raise _refusal(module, unknown, is_causal=bool(is_causal), has_mask=attention_mask is not None)
    output = current_attention().attend(
        layer_idx,
        query[0],
        key[0],
        value[0],
        scaling=query.shape[-1] ** -0.5 if scaling is None else scaling,
        sliding_window=sliding_window,
        softcap=softcap,
    )
    return output[None], None


def _refusal(module: torch.nn.Module, unknown: list[str], *, is_causal: bool, has_mask: bool) -> ConfigError:
    reasons = [f"the argument {name!r}" for name in unknown]
    if not is_causal:
        reasons.append("attention to later positions")
    if has_mask:
        reasons.append("a mask of its own")
    return ConfigError(
        f"{type(module).__name__} asks for {' and '.join(reasons) or 'attention that is not packed and causal'}, "
        "which paged attention does not serve; choose a checkpoint with full or sliding-window attention."
    )


@contextmanager
def own_attention(text_model: Any) -> Iterator[None]:
    """Lets a transformers text model use its module's own attention for a while, to compare with."""
    text_model.set_attn_implementation("eager")
    try:
        yield
    finally:
        text_model.set_attn_implementation(PAGED_ATTENTION)


def read_attention_layers(text_config: Any) -> tuple[AttentionLayerSpec, ...]:
    """Returns the decoder layers that a transformers text config describes.

    Raises:
        ConfigError: A layer has neither full nor sliding-window attention; its kind is named.
    """
    num_heads = int(text_config.num_attention_heads)
    num_kv_heads = int(getattr(text_config, "num_key_value_heads", None) or num_heads)
    head_dim = int(getattr(text_config, "head_dim", None) or text_config.hidden_size // num_heads)
    num_layers = int(text_config.num_hidden_layers)
    window = getattr(text_config, "sliding_window", None)
    kinds = getattr(text_config, "layer_types", None) or ["sliding_attention" if window else "full_attention"] * num_layers
    others = sorted(set(kinds) - {"full_attention", "sliding_attention"})
    if others:
        raise ConfigError(
            f"The text model {text_config.model_type!r} has layers of the kind {', '.join(others)}; "
            "only full and sliding-window attention are served."
        )
    return tuple(AttentionLayerSpec(num_kv_heads, head_dim, window if kind == "sliding_attention" else None) for kind in kinds)
