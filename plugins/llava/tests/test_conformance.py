"""The suites that every model family inherits, for LLaVA 1.5 and LLaVA-NeXT."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import ClassVar

import pytest

from inset.identity import JSON
from inset.testing.conformance.model import ModelConformance
from inset.testing.conformance.processor import ProcessorConformance
from inset_llava import plugin


class TestLlavaProcessor(ProcessorConformance):
    plugin = plugin
    options: ClassVar[Mapping[str, Mapping[str, JSON]]] = {"image": {"resample": 2}}

    @pytest.fixture
    def checkpoint_folder(self, tiny_checkpoint: Callable[..., Path]) -> Path:
        return tiny_checkpoint("llava")


class TestLlavaNextProcessor(ProcessorConformance):
    plugin = plugin
    options: ClassVar[Mapping[str, Mapping[str, JSON]]] = {"image": {"resample": 2}}

    @pytest.fixture
    def checkpoint_folder(self, tiny_checkpoint: Callable[..., Path]) -> Path:
        return tiny_checkpoint("next")


class TestLlavaModel(ModelConformance):
    plugin = plugin

    @pytest.fixture
    def checkpoint_folder(self, tiny_checkpoint: Callable[..., Path]) -> Path:
        return tiny_checkpoint("llava")


class TestLlavaNextModel(ModelConformance):
    plugin = plugin

    @pytest.fixture
    def checkpoint_folder(self, tiny_checkpoint: Callable[..., Path]) -> Path:
        return tiny_checkpoint("next")
