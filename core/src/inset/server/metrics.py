"""What the server counts and times, for Prometheus."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final

from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.multiprocess import MultiProcessCollector
from prometheus_client.registry import Collector

if TYPE_CHECKING:
    from inset.engine.async_llm import AsyncLLM
    from inset.outputs import RequestOutput

__all__ = ["CONTENT_TYPE", "Metrics"]

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"

_SECONDS: Final = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0)
_GAUGES: Final = ("num_used_blocks", "num_blocks", "num_encoder_cache_embeds", "encoder_cache_size")


class Metrics:
    """The metrics of one front end, in a registry of its own.

    Several front ends count into files that they share, so that each of them shows the sums; what only one of them knows bears its name.

    Args:
        engine: Whose gauges are shown.
        front_id: The name of this front end where there are several, which have ``PROMETHEUS_MULTIPROC_DIR`` set; None where it is alone.
    """

    def __init__(self, engine: AsyncLLM, *, front_id: str | None = None) -> None:
        info = engine.core.processor.info
        self._plugin = info.context.distribution
        self._registry = CollectorRegistry()
        self._page = self._registry
        if front_id is not None:
            self._page = CollectorRegistry()
            MultiProcessCollector(self._page)  # type: ignore[no-untyped-call]
        self._page.register(_EngineCollector(engine, front_id))
        self._requests = Counter("inset_requests", "HTTP requests by route and status.", ("route", "status"), registry=self._registry)
        self._request_seconds = Histogram(
            "inset_request_seconds", "Time from arrival to the last byte.", ("route",), buckets=_SECONDS, registry=self._registry
        )
        self._stage_seconds = Histogram(
            "inset_stage_seconds",
            "Time that requests spent in one stage.",
            ("stage", "modality", "plugin"),
            buckets=_SECONDS,
            registry=self._registry,
        )
        self._prompt_tokens = Counter("inset_prompt_tokens", "Prompt positions by modality.", ("modality",), registry=self._registry)
        self._restarts = Counter("inset_front_end_restarts", "Front ends that replaced one that had ended.", registry=self._registry)
        self._completion_tokens = Counter("inset_completion_tokens", "Generated tokens.", registry=self._registry)

    def count_request(self, route: str, status: int, seconds: float) -> None:
        """Notes one HTTP request that has ended."""
        self._requests.labels(route, str(status)).inc()
        self._request_seconds.labels(route).observe(seconds)

    def count_restart(self) -> None:
        """Notes that this front end takes the place of one that has ended."""
        self._restarts.inc()

    def count_answer(self, output: RequestOutput) -> None:
        """Notes the stages and tokens of one finished answer."""
        by_modality = output.usage.prompt_tokens_by_modality
        modality = "+".join(sorted(by_modality)) or "text"
        for stage, seconds in output.stage_seconds.items():
            self._stage_seconds.labels(stage, modality, self._plugin).observe(seconds)
        self._prompt_tokens.labels("text").inc(output.usage.prompt_tokens - sum(by_modality.values()))
        for name, count in by_modality.items():
            self._prompt_tokens.labels(name).inc(count)
        self._completion_tokens.inc(output.usage.completion_tokens)

    def render(self) -> bytes:
        """Returns the metrics page."""
        return generate_latest(self._page)


class _EngineCollector(Collector):
    """Reads the engine's own gauges and counters when the page is asked for."""

    def __init__(self, engine: AsyncLLM, front_id: str | None) -> None:
        self._engine = engine
        self._labels = {} if front_id is None else {"front_end": front_id}

    def collect(self) -> Iterator[Any]:
        engine, stats = self._engine, self._engine.stats
        yield _gauge("inset_engine_alive", "1 while the engine core answers.", engine.is_alive)
        yield self._own_gauge("inset_engine_silent_seconds", "Since the engine core's last sign of life.", engine.client.seconds_silent)
        yield self._own_gauge("inset_requests_preprocessing", "Requests that are fetched, decoded or processed.", engine.num_preparing)
        yield self._own_gauge("inset_requests_unfinished", "Prompts of this front end that the engine core has.", engine.num_unfinished)
        yield _gauge("inset_engine_requests_running", "Answers that take part in steps.", stats.num_running)
        yield _gauge("inset_engine_requests_waiting", "Answers that wait for their first step.", stats.num_waiting)
        for name, value in stats.values.items():
            if name in _GAUGES:
                yield _gauge(f"inset_engine_{name.removeprefix('num_')}", _words(name), value)
            elif name not in ("num_running", "num_waiting"):
                yield _counter(f"inset_engine_{name.removeprefix('num_')}", _words(name), value)
        yield from self._collect_cache()

    def _collect_cache(self) -> Iterator[Any]:
        cache = self._engine.core.cache
        if cache is None:
            return
        stats = cache.stats
        for name in ("hits", "misses", "inserts", "evictions"):
            yield self._own_counter(f"inset_mm_cache_{name}", f"Processor cache: {name}.", getattr(stats, f"num_{name}"))
        for name, value in (("items", stats.num_items), ("bytes", stats.num_bytes), ("capacity_bytes", stats.capacity_bytes)):
            yield self._own_gauge(f"inset_mm_cache_{name}", f"Processor cache: {name.replace('_', ' ')}.", value)
        yield self._own_gauge("inset_mm_cache_leases", "Items of the processor cache that requests still use.", stats.num_leases)

    def _own_gauge(self, name: str, text: str, value: float) -> GaugeMetricFamily:
        """A gauge of this front end alone."""
        family = GaugeMetricFamily(name, text, labels=list(self._labels))
        family.add_metric(list(self._labels.values()), value)
        return family

    def _own_counter(self, name: str, text: str, value: float) -> CounterMetricFamily:
        """A counter of this front end alone."""
        family = CounterMetricFamily(name, text, labels=list(self._labels))
        family.add_metric(list(self._labels.values()), value)
        return family


def _gauge(name: str, text: str, value: float) -> GaugeMetricFamily:
    return GaugeMetricFamily(name, text, value=value)


def _counter(name: str, text: str, value: float) -> CounterMetricFamily:
    return CounterMetricFamily(name, text, value=value)


def _words(name: str) -> str:
    return f"Engine core: {name.removeprefix('num_').replace('_', ' ')}."
