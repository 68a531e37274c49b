"""Rotary embeddings whose frequencies follow the longest sequence of a step, which a packed step of several requests cannot serve."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from inset.errors import ConfigError

__all__ = ["check_rotary_frequencies"]


def check_rotary_frequencies(text_config: Any, max_model_len: int | None) -> None:
    """Refuses a text model whose rotary frequencies could change while it serves.

    Source: transformers 5 chooses the frequencies of the types ``longrope`` and ``dynamic`` anew in each forward pass, by the largest
    position in it. Several requests share a pass and a prompt can take several, so an answer would depend on strangers and on chunks.

    Args:
        text_config: The transformers config of the text model.
        max_model_len: Longest request that will be served; None for all positions that the model has.

    Raises:
        ConfigError: Requests can be long enough for the frequencies to change; the type and the longest that is served are named.
    """
    num_positions = int(getattr(text_config, "max_position_embeddings", 0))
    for parameters in _rotary_parameters(getattr(text_config, "rope_parameters", None) or {}):
        rope_type = str(parameters["rope_type"])
        if rope_type == "longrope":
            longest = int(parameters.get("original_max_position_embeddings") or num_positions)
        elif "dynamic" in rope_type:
            longest = num_positions
        else:
            continue
        if (max_model_len or num_positions) > longest:
            raise ConfigError(
                f"The text model {text_config.model_type!r} has rotary embeddings of the type {rope_type!r}, which change for requests of "
                f"more than {longest} tokens and for all that are computed beside them. Choose --max-model-len {longest} or less."
            )


def _rotary_parameters(given: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """Yields the parameters of all layers, or those of each kind of layer."""
    if "rope_type" in given:
        yield given
    else:
        yield from (parameters for parameters in given.values() if isinstance(parameters, Mapping) and "rope_type" in parameters)
