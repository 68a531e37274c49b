"""The one composition root: from options to a core, an engine core, and an engine around both."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from inset.checkpoint import Checkpoint, load_checkpoint
from inset.config import Configs, ModelConfig, read_configs
from inset.engine.async_llm import AsyncLLM
from inset.engine.cache_types import CACHE_WITHOUT_ENGINE, choose_cache_type, make_cache_front, make_cache_halves
from inset.engine.chat_template import ChatTemplate
from inset.engine.core import Core
from inset.engine.core_client import InProcessClient
from inset.engine.limits import resolve_limits, resolve_max_model_len
from inset.engine.process.control import Hello
from inset.engine.process.zmq_client import ZmqClient
from inset.engine.renderer import Renderer
from inset.engine.warm_up import warm_up
from inset.errors import ConfigError, MissingExtraError
from inset.inputs import MODALITIES, MediaIOFactory
from inset.media.budget import ProcessBudget
from inset.media.executor import MediaExecutor
from inset.media.fetcher import MediaFetcher
from inset.plugins import PluginHost
from inset.processing.registry import build_processor
from inset.processing.tokenizer import Tokenizer
from inset.sampling_params import SamplingParams

if TYPE_CHECKING:
    from inset.cache.base import ProcessorCacheFront
    from inset.engine.engine_core import EngineCore

__all__ = [
    "build_core",
    "build_engine",
    "build_engine_from",
    "build_front",
    "find_checkpoint",
    "load_model_setup",
    "open_core",
    "open_core_from",
]

_NUM_PLAN_THREADS: Final = 2
"""Threads that render and plan what gets no answer: enough to keep them moving, and too few to take the cores from chats."""


def find_checkpoint(model: str, host: PluginHost) -> Checkpoint:
    """Returns the checkpoint of a folder, or of a name that an installed plugin ships.

    Raises:
        ConfigError: It is neither; the names that there are stand in the message.
    """
    folder = Path(model).expanduser()
    if folder.is_dir():
        return load_checkpoint(folder)
    checkpoints = host.registries.checkpoints
    if model in checkpoints:
        return load_checkpoint(checkpoints.get(model).locate())
    names = ", ".join(sorted(checkpoints.view())) or "none"
    raise ConfigError(f"{model!r} is neither a folder nor a shipped checkpoint. Shipped by installed plugins: {names}.")


def default_sampling_params(checkpoint: Checkpoint) -> SamplingParams:
    """Returns what the checkpoint's generation config says about sampling; what it leaves open is greedy unless it samples."""
    stated = checkpoint.generation_config
    names = ("temperature", "top_p", "top_k", "min_p", "repetition_penalty")
    values: dict[str, Any] = {name: stated[name] for name in names if stated.get(name) is not None}
    if not stated.get("do_sample", bool(values)):
        values["temperature"] = 0.0
    return SamplingParams(**values)


def build_core(
    configs: Configs,
    host: PluginHost,
    checkpoint: Checkpoint,
    *,
    cache: ProcessorCacheFront | None,
    has_engine: bool = True,
    is_local: bool = False,
) -> Core:
    """Returns what fetches and processes for one checkpoint.

    Args:
        configs: All options.
        host: The plugins.
        checkpoint: The checkpoint.
        cache: Front half of the processor cache, or None; the core closes it.
        has_engine: An engine half belongs to it; without one, it keeps the tensors itself.
        is_local: Its callers are in this process, and may hand over finished embeddings whatever the options say.

    Raises:
        ConfigError: The checkpoint or an option cannot be served.
        UnknownNameError: No plugin serves this model_type.
    """
    tokenizer = Tokenizer.from_checkpoint(checkpoint)
    template = _chat_template(configs.model, checkpoint, tokenizer)
    media_executor = MediaExecutor(
        image_threads=configs.media.image_threads,
        video_threads=configs.media.video_threads,
        torch_threads=configs.engine.front_threads,
    )
    built = build_processor(
        host.registries.processors,
        checkpoint,
        media_io_factories=_MediaIOFactories(host, checkpoint),
        pool=media_executor,
        cache=cache,
        model_config=configs.model,
        media_config=configs.media,
        tokenizer=tokenizer,
    )
    processor = built.processor
    max_model_len = resolve_max_model_len(configs.model, checkpoint)
    accepts_embeds = is_local or configs.model.enable_mm_embeds or configs.model.enable_prompt_embeds
    return Core(
        renderer=Renderer(tokenizer, processor.info, template, max_model_len=max_model_len),
        processor=processor,
        tokenizer=tokenizer,
        fetcher=MediaFetcher.build(host.registries.media_connectors, configs.media, executor=media_executor),
        media_executor=media_executor,
        work_executor=ThreadPoolExecutor(max(2, os.cpu_count() or 2), thread_name_prefix="inset-work"),
        plan_executor=ThreadPoolExecutor(_NUM_PLAN_THREADS, thread_name_prefix="inset-plan"),
        process_budget=ProcessBudget(configs.media.max_process_decoded_bytes),
        media_config=configs.media,
        cache=cache,
        has_engine=has_engine,
        limits=resolve_limits(configs.engine, processor.info, max_model_len=max_model_len, accepts_embeds=accepts_embeds),
        default_sampling_params=default_sampling_params(checkpoint),
    )


class _MediaIOFactories(Mapping[str, MediaIOFactory]):
    """Asks the plugins for a modality's decoder when the model first needs it: a model of pictures never imports a video decoder."""

    def __init__(self, host: PluginHost, checkpoint: Checkpoint) -> None:
        self._host = host
        self._checkpoint = checkpoint
        self._found: dict[str, MediaIOFactory] = {}

    def __getitem__(self, modality: str) -> MediaIOFactory:
        if modality not in MODALITIES:
            raise KeyError(modality)
        if modality not in self._found:
            self._found[modality] = self._host.get_media_io(modality, self._checkpoint)
        return self._found[modality]

    def __iter__(self) -> Iterator[str]:
        return iter(MODALITIES)

    def __len__(self) -> int:
        return len(MODALITIES)


def _chat_template(config: ModelConfig, checkpoint: Checkpoint, tokenizer: Tokenizer) -> ChatTemplate | None:
    text = checkpoint.chat_template
    if config.chat_template is not None:
        if not config.chat_template.is_file():
            raise ConfigError(f"--chat-template: there is no file {config.chat_template.name!r}.")
        text = config.chat_template.read_text("utf-8")
    return None if text is None else ChatTemplate(text, special_tokens=tokenizer.named_tokens)


def open_core(*, model: str, **options: Any) -> Core:
    """Returns what fetches and processes for one checkpoint, with plugins of its own and without an engine; the caller closes it.

    Args:
        model: Checkpoint folder, or the name of a shipped checkpoint.
        **options: Options of `inset.config` by name.

    Raises:
        ConfigError: An option or the checkpoint cannot be served.
        PluginError: A plugin that was named cannot be loaded, or nothing serves this checkpoint.
    """
    if options.get("mm_processor_cache_type") not in (None, CACHE_WITHOUT_ENGINE):  # in the environment it is meant for servers
        raise ConfigError(f"A core without an engine keeps tensors itself: mm_processor_cache_type must be {CACHE_WITHOUT_ENGINE}.")
    return open_core_from(read_configs({"model": model, **options}))


def open_core_from(configs: Configs) -> Core:
    """Returns the core of `open_core` for options that have been read.

    Raises:
        InsetError: As `open_core`.
    """
    host = PluginHost(configs.plugins)
    checkpoint = find_checkpoint(configs.model.model, host)
    cache = make_cache_front(CACHE_WITHOUT_ENGINE, configs.cache, host) if configs.cache.mm_processor_cache_gb > 0 else None
    return build_core(configs, host, checkpoint, cache=cache, has_engine=False, is_local=True)


def build_engine(*, model: str, **options: Any) -> AsyncLLM:
    """Returns an engine for callers in this process, all of it here; it is started and closed by the caller.

    Args:
        model: Checkpoint folder, or the name of a shipped checkpoint.
        **options: Options of `inset.config` by name; those of the server change nothing.

    Raises:
        ConfigError: An option or the checkpoint cannot be served.
        PluginError: A plugin that was named cannot be loaded, or nothing serves this checkpoint.
        MissingExtraError: ``inset[engine]`` is not installed.
    """
    return build_engine_from(read_configs({"model": model, **options}), is_local=True)


def build_engine_from(configs: Configs, *, is_local: bool = False) -> AsyncLLM:
    """Returns the engine of `build_engine` for options that have been read.

    Args:
        configs: All options.
        is_local: Callers are in this process: they may hand over finished embeddings, and see themselves to how many prompts wait.

    Raises:
        InsetError: As `build_engine`.
    """
    build_engine_core, use_threads = load_model_setup()
    host = PluginHost(configs.plugins)
    checkpoint = find_checkpoint(configs.model.model, host)
    cache_type = choose_cache_type(configs.cache, num_fronts=1, host=host)
    front, engine = (None, None) if cache_type is None else make_cache_halves(cache_type, configs.cache, host)
    core = build_core(configs, host, checkpoint, cache=front, is_local=is_local)
    try:
        engine_core = build_engine_core(configs, host, checkpoint, limits=core.limits, cache=engine)
    except BaseException:
        core.close()
        raise
    client = InProcessClient(engine_core, prepare=partial(use_threads, configs.engine.engine_threads))
    most = None if is_local else configs.server.max_waiting_requests
    return AsyncLLM(core, client, max_waiting_requests=most, seed=configs.model.seed)


def build_front(configs: Configs, folder: Path, *, front_id: str, num_fronts: int = 1) -> AsyncLLM:
    """Returns a front end of an engine core that runs in a process of its own; it is started and closed by the caller.

    Blocks until the engine core has loaded its model.

    Args:
        configs: The options that the engine core has too.
        folder: Where the engine core's sockets are; see `EngineProcess`.
        front_id: Unique among the front ends of this engine core.
        num_fronts: How many front ends there are.

    Raises:
        ConfigError: An option or the checkpoint cannot be served, here or there.
        PluginError: A plugin that was named cannot be loaded, or nothing serves this checkpoint.
        EngineDeadError: The engine core ended before it was ready.
    """
    os.environ.setdefault("OMP_NUM_THREADS", str(configs.engine.front_threads))  # read once, when torch loads here
    host = PluginHost(configs.plugins)
    checkpoint = find_checkpoint(configs.model.model, host)
    cache_type = choose_cache_type(configs.cache, num_fronts=num_fronts, host=host)
    front = None if cache_type is None else make_cache_front(cache_type, configs.cache, host)
    core = build_core(configs, host, checkpoint, cache=front)
    try:
        hello = Hello(
            front_id=front_id,
            resolved=[list(entry) for entry in host.resolved],
            cache_type=cache_type,
            max_model_len=core.limits.max_model_len,
            encoder_compute_budget=core.limits.encoder_compute_budget,
            encoder_cache_size=core.limits.encoder_cache_size,
        )
        with ThreadPoolExecutor(1, thread_name_prefix="inset-warm-up") as warming:  # beside the engine core, which loads its model
            warming.submit(warm_up, core)
            client = ZmqClient(folder, hello=hello, export=None if front is None else front.export())
    except BaseException:
        core.close()
        raise
    seed = f"{configs.model.seed}:{front_id}"  # front ends do not repeat each other
    return AsyncLLM(core, client, max_waiting_requests=configs.server.max_waiting_requests, seed=seed)


def load_model_setup() -> tuple[Callable[..., EngineCore], Callable[[int], None]]:
    """Imports what loads and runs a model: torch, transformers, scheduler and worker.

    Raises:
        MissingExtraError: ``inset[engine]`` is not installed.
    """
    os.environ.setdefault("GOMP_SPINCOUNT", "0")  # read once, when torch loads: idle threads must not spin on cores that others need
    try:
        from inset.engine.model_setup import build_engine_core, use_threads
    except ImportError as error:
        raise MissingExtraError(f"Running a model needs the extra `inset[engine]`: pip install 'inset[engine]' ({error}).") from error
    return build_engine_core, use_threads
