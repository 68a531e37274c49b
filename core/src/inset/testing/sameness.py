"""Whether two processings gave the same, bit for bit."""

from __future__ import annotations

from inset.inputs import ItemTensors, ProcessedPrompt

__all__ = ["assert_same_prompt", "assert_same_tensors"]


def assert_same_tensors(given: ItemTensors | None, expected: ItemTensors | None) -> None:
    """Compares names, dtypes, shapes and bits."""
    assert given is not None
    assert expected is not None
    assert set(given) == set(expected)
    for name, array in given.items():
        assert (array.dtype, array.shape) == (expected[name].dtype, expected[name].shape), name
        assert array.tobytes() == expected[name].tobytes(), name


def assert_same_prompt(given: ProcessedPrompt, expected: ProcessedPrompt) -> None:
    """Compares everything that an engine would read, tensors bit for bit."""
    assert list(given.prompt_token_ids) == list(expected.prompt_token_ids)
    assert given.mm_hashes == expected.mm_hashes
    assert given.mm_placeholders == expected.mm_placeholders
    assert given.mm_plans == expected.mm_plans
    for modality, items in expected.mm_kwargs.items():
        for item, other in zip(given.mm_kwargs[modality], items, strict=True):
            assert_same_tensors(item, other)
