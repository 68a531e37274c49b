from __future__ import annotations

import threading

import pytest
import torch

from inset.errors import InvariantError
from inset.modeling.forward_context import PackedAttention, current_attention, forward_context


class Named(PackedAttention):
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
        raise NotImplementedError


def test_outside_a_context_there_is_no_attention() -> None:
    with pytest.raises(InvariantError, match="outside a forward context"):
        current_attention()


def fail_inside(attention: PackedAttention) -> None:
    with forward_context(attention):
        assert current_attention() is attention
        raise KeyError


def test_contexts_nest_and_end_even_when_the_model_raises() -> None:
    outer, inner = Named(), Named()
    with forward_context(outer):
        with pytest.raises(KeyError):
            fail_inside(inner)
        assert current_attention() is outer


def test_engines_in_two_threads_never_see_each_other() -> None:
    barrier = threading.Barrier(2, timeout=10)
    seen: dict[str, bool] = {}

    def run(name: str) -> None:
        own = Named()
        with forward_context(own):
            barrier.wait()
            seen[name] = current_attention() is own
            barrier.wait()

    threads = [threading.Thread(target=run, args=(name,)) for name in ("a", "b")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=10)
    assert seen == {"a": True, "b": True}
