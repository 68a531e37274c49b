"""What every cache type must do, in one process and in two; see docs/how-to/write-a-cache-type.md of Inset."""

from __future__ import annotations

from inset.testing.conformance.processor_cache import ProcessorCacheConformance

from inset_acme.cache import AcmeCacheEngine, AcmeCacheFront


class TestAcme(ProcessorCacheConformance):
    front_class = AcmeCacheFront
    engine_class = AcmeCacheEngine
