"""Requests about images, for tests of a processor without an engine."""

from __future__ import annotations

from typing import Any

from inset.inputs import ProcessedPrompt
from inset.processing.inputs import ProcessorInputs
from inset.processing.processor import MultiModalProcessor

__all__ = ["finish", "image_inputs"]


def image_inputs(mm_data: object = None, *, request_id: str = "r", **fields: Any) -> ProcessorInputs:
    """Returns what a processor takes: one image, or a list of them, and a prompt with a placeholder for each."""
    items = mm_data if isinstance(mm_data, list) else [mm_data]
    prompt = "<image>" * len(items)
    return ProcessorInputs(request_id=request_id, prompt=prompt, mm_data={"image": items}, **fields)


def finish(processor: MultiModalProcessor, request: ProcessorInputs) -> ProcessedPrompt:
    """Processes a request and reports it as released by the engine."""
    prompt = processor.apply(request)
    assert processor.cache is not None
    processor.cache.release(request.request_id)
    return prompt
