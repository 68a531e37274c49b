"""Tests of building a processor from what plugins registered."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from inset.checkpoint import Checkpoint
from inset.config import ModelConfig
from inset.errors import ConfigError, PluginContractError, PluginLoadError, UnknownNameError
from inset.inputs import MediaIOFactory
from inset.media.executor import MediaExecutor
from inset.media.header import MediaHeader
from inset.processing.dummy_inputs import DummyInputsBuilder
from inset.processing.info import ProcessingInfo
from inset.processing.processor import MultiModalProcessor
from inset.processing.registry import build_processor
from inset.processing.tokenizer import Tokenizer
from inset.registry import Owner, ProcessorRegistry

CHECKPOINT = Checkpoint(Path(), {"model_type": "tiny", "text_config": {"hidden_size": 4}})


class TinyDummyInputs(DummyInputsBuilder):
    def get_largest_header(self, modality: str) -> MediaHeader:
        return MediaHeader(modality=modality, width=800, height=8, num_frames=1, decoded_bytes=800 * 8 * 3)


@pytest.fixture
def registry(monkeypatch: pytest.MonkeyPatch, make_processor: Any) -> ProcessorRegistry:
    """Registers the tiny family under a module that can be imported."""
    import sys
    import types

    processor = make_processor()
    module = types.ModuleType("tiny_family")
    vars(module).update(Processor=type(processor), Info=type(processor.info), Dummy=TinyDummyInputs, number=3)
    monkeypatch.setitem(sys.modules, "tiny_family", module)
    registry = ProcessorRegistry()
    registry.owner = Owner("tiny", "inset-tiny", "1.2.3")
    registry.register("tiny", processor="tiny_family:Processor", info="tiny_family:Info", dummy_inputs="tiny_family:Dummy")
    return registry


def build(registry: ProcessorRegistry, pool: MediaExecutor, tokenizer: Tokenizer, image_io: MediaIOFactory, **options: Any) -> Any:
    return build_processor(
        registry,
        CHECKPOINT,
        media_io_factories={"image": image_io},
        pool=pool,
        tokenizer=tokenizer,
        model_config=ModelConfig(**options),
    )


def test_a_registered_family_is_built_with_its_owner_and_the_operators_options(
    registry: ProcessorRegistry, pool: MediaExecutor, tokenizer: Tokenizer, image_io: MediaIOFactory
) -> None:
    built = build(registry, pool, tokenizer, image_io, limit_mm_per_prompt={"image": 5}, max_model_len=64, mm_processor_kwargs={"rows": 2})
    assert isinstance(built.processor, MultiModalProcessor)
    info = built.processor.info
    assert isinstance(info, ProcessingInfo)
    assert info.get_mm_limits()["image"] == 5
    assert (info.context.max_model_len, info.context.distribution, info.context.version) == (64, "inset-tiny", "1.2.3")
    assert built.dummy_inputs.get_largest_plan(built.processor, "image").num_embeds == 200


def test_the_largest_item_is_really_processed(
    registry: ProcessorRegistry, pool: MediaExecutor, tokenizer: Tokenizer, image_io: MediaIOFactory, work: Any
) -> None:
    built = build(registry, pool, tokenizer, image_io)
    built.processor.work = work
    item = built.dummy_inputs.make_largest_item(built.processor, "image")
    assert item.tensors["pixel_values"].shape == (8, 800, 3)
    assert item.plan.num_embeds == 100
    assert built.dummy_inputs.make_largest_item(built.processor, "video").tensors["pixel_values"].shape == (1, 8, 800, 3)


def test_an_option_that_cannot_be_served_is_refused_at_start(
    registry: ProcessorRegistry, pool: MediaExecutor, tokenizer: Tokenizer, image_io: MediaIOFactory
) -> None:
    with pytest.raises(ConfigError, match="Unknown processor option"):
        build(registry, pool, tokenizer, image_io, mm_processor_kwargs={"dark": 1})
    with pytest.raises(ConfigError, match="limit_mm_per_prompt"):
        build(registry, pool, tokenizer, image_io, limit_mm_per_prompt={"audio": 1})
    with pytest.raises(ConfigError, match="rows must be at least 1"):
        build(registry, pool, tokenizer, image_io, mm_processor_kwargs={"rows": 0})


def test_a_model_type_that_nobody_serves_names_what_there_is(pool: MediaExecutor, tokenizer: Tokenizer, image_io: MediaIOFactory) -> None:
    with pytest.raises(UnknownNameError, match=r"no processor 'tiny'.*Install the plugin"):
        build(ProcessorRegistry(), pool, tokenizer, image_io)


@pytest.mark.parametrize(
    ("field", "target", "error"),
    [
        ("info", "no_such_module:Info", PluginLoadError),
        ("info", "tiny_family:Missing", PluginContractError),
        ("info", "tiny_family:number", PluginContractError),
        ("processor", "tiny_family:Info", PluginContractError),
        ("dummy_inputs", "tiny_family:Processor", PluginContractError),
    ],
)
def test_a_registration_of_something_else_is_the_plugins_fault(
    registry: ProcessorRegistry,
    pool: MediaExecutor,
    tokenizer: Tokenizer,
    image_io: MediaIOFactory,
    field: str,
    target: str,
    error: type[Exception],
) -> None:
    broken = ProcessorRegistry()
    broken.owner = Owner("tiny", "inset-tiny", "1")
    whole = {"processor": "tiny_family:Processor", "info": "tiny_family:Info", "dummy_inputs": "tiny_family:Dummy"}
    broken.register("tiny", **{**whole, field: target})
    with pytest.raises(error):
        build(broken, pool, tokenizer, image_io)
