"""What every model family must show; see docs/reference/conformance.md of Inset."""

from __future__ import annotations

from inset.testing.conformance.model import ModelConformance
from inset.testing.conformance.processor import ProcessorConformance

from inset_acme import plugin


class TestAcmeProcessor(ProcessorConformance):
    plugin = plugin


class TestAcmeModel(ModelConformance):
    plugin = plugin
