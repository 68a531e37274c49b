"""Every option of Inset: frozen dataclasses, one per subject.

`inset.options` says how an option is spelt and read. The command line wins over the environment, the environment over the default.
"""

from __future__ import annotations

import difflib
import os
import typing
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from inset.errors import ConfigError
from inset.options import OptionsChecked, coerce_option, iter_options, option, read_environment

__all__ = ["CacheConfig", "Configs", "EngineConfig", "MediaConfig", "ModelConfig", "PluginConfig", "ServerConfig", "read_configs"]

MIB: Final = 1024**2
GIB: Final = 1024**3


def _cores_but_one() -> int:
    return max(1, (os.cpu_count() or 2) - 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class PluginConfig(OptionsChecked):
    """Which plugins load."""

    plugins: tuple[str, ...] | None = option(
        None, "Names of the plugins to load; unset loads all installed ones, empty only the built-ins."
    )
    no_plugins: tuple[str, ...] = option((), "Names of installed plugins to leave out.")
    strict_plugins: bool = option(False, "A plugin that fails to load is fatal, even if nobody named it.")
    trace_hooks: bool = option(False, "Print every hook call with its implementations and results to standard error.")


@dataclass(frozen=True, slots=True, kw_only=True)
class MediaConfig(OptionsChecked):
    """How media is fetched and decoded, and how much of it."""

    media_connector: tuple[str, ...] = option((), "Media connectors to enable besides data and http, by name.")
    media_connector_options: Mapping[str, Mapping[str, Any]] = option(dict, "Connector name -> its own options, as JSON.")
    allowed_media_domains: tuple[str, ...] = option(
        (), "Hosts that media may be fetched from, and schemes, such as ark:, whose URLs need not name one; empty allows every public host."
    )
    allow_private_media_hosts: tuple[str, ...] = option((), "Hosts that may resolve to private, loopback or link-local addresses.")
    allowed_local_media_path: Path | None = option(None, "Folder under which file: URLs may be read; unset refuses them all.")
    media_url_allow_redirects: bool = option(True, "Follow redirects, at most 10, each checked like the first URL.")
    max_item_download_bytes: int = option(256 * MIB, "Largest encoded item, in bytes after transfer decoding.", least=0)
    max_request_download_bytes: int = option(512 * MIB, "Most encoded bytes that one request may fetch.", least=0)
    max_item_decoded_bytes: int = option(
        512 * MIB, "Largest decoded item, in bytes, computed from its header before it is decoded.", least=0
    )
    max_request_decoded_bytes: int = option(GIB, "Most decoded bytes of one request.", least=0)
    max_process_decoded_bytes: int = option(4 * GIB, "Most decoded bytes that exist at one time in a process.", least=0)
    max_image_pixels: int = option(178_956_970, "Most pixels of one image.", least=0)
    max_video_decode_seconds: float = option(60.0, "Longest time that decoding one video or sound may take, in seconds.", least=0)
    max_audio_seconds: float = option(3600.0, "Longest audio item, in seconds of sound.", least=0)
    image_fetch_timeout_seconds: float = option(
        5.0, "Time-out of the first attempt to fetch an image; each further attempt has four times as long.", least=0
    )
    audio_fetch_timeout_seconds: float = option(10.0, "The same for audio.", least=0)
    video_fetch_timeout_seconds: float = option(30.0, "The same for video.", least=0)
    image_fetch_deadline_seconds: float = option(60.0, "Total time for fetching an image, all attempts together.", least=0)
    audio_fetch_deadline_seconds: float = option(90.0, "The same for audio.", least=0)
    video_fetch_deadline_seconds: float = option(300.0, "The same for video.", least=0)
    max_fetch_attempts: int = option(3, "How often fetching an item is tried.", least=1)
    download_cache_dir: Path | None = option(None, "Folder of the download cache; unset turns it off.")
    download_cache_bytes: int = option(5 * GIB, "Size of the download cache.", least=0)
    download_cache_age_seconds: float = option(86_400.0, "Age after which a cached download is fetched again.", least=0)
    trust_exif_image_id: bool = option(False, "Let an EXIF ImageID name an image instead of its bytes; a file can carry any.")
    image_threads: int = option(_cores_but_one, "Threads that decode images and audio; one core is left to what answers.", least=1)
    video_threads: int = option(_cores_but_one, "The same for videos.", least=1)
    media_io_kwargs: Mapping[str, Mapping[str, Any]] = option(
        dict, 'Modality -> decode options, as JSON, such as {"video": {"num_frames": 16}}.'
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelConfig(OptionsChecked):
    """Which checkpoint is served, and how."""

    model: str = option("", "Checkpoint folder, or the name of a checkpoint that an installed plugin ships.")
    served_model_name: str | None = option(None, "Name that clients use; the folder's name when unset.")
    dtype: str = option("auto", "auto, float32, bfloat16 or float16; auto is float32 on a CPU and the checkpoint's on a GPU.")
    device: str = option("auto", "auto, cpu, cuda or cuda:N.")
    max_model_len: int | None = option(None, "Longest prompt and answer together, in tokens; the checkpoint's when unset.", least=1)
    limit_mm_per_prompt: Mapping[str, int] = option(
        dict, 'Modality -> most items in one prompt, as JSON; 999 when unset, 0 disables, such as {"image": 4}.', least=0
    )
    mm_processor_kwargs: Mapping[str, Any] = option(dict, "Processor options for every request, as JSON.")
    chat_template: Path | None = option(None, "File with a Jinja chat template instead of the checkpoint's.")
    enable_mm_embeds: bool = option(False, "Accept precomputed embeddings instead of media; for trusted clients only.")
    enable_prompt_embeds: bool = option(False, "Accept precomputed prompt embeddings; for trusted clients only.")
    trust_request_mm_kwargs: bool = option(False, "Accept mm_processor_kwargs and media_io_kwargs in requests; for trusted clients only.")
    seed: int = option(0, "Seeds requests that bring none, in the order in which they come: a fresh engine draws the same again.")

    @property
    def name_for_clients(self) -> str:
        """The name under which the model is served."""
        return self.served_model_name or Path(self.model).expanduser().resolve().name


@dataclass(frozen=True, slots=True, kw_only=True)
class CacheConfig(OptionsChecked):
    """The processor cache."""

    mm_processor_cache_type: str | None = option(
        None, "lru, shm, processor_only, or a plugin's; chosen by the number of front ends when unset."
    )
    mm_processor_cache_gb: float = option(4.0, "Size of each half of the processor cache, in GiB; 0 turns it off.", least=0)
    mm_shm_cache_max_object_size_mb: int = option(128, "Largest object in the shm cache, in MiB.", least=0)

    @property
    def capacity_bytes(self) -> int:
        """`mm_processor_cache_gb` in bytes."""
        return int(self.mm_processor_cache_gb * GIB)


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineConfig(OptionsChecked):
    """Scheduling and memory of the engine core."""

    max_num_seqs: int = option(64, "Most requests in one step.", least=1)
    max_num_batched_tokens: int = option(2048, "Most tokens in one step.", least=1)
    enable_prefix_caching: bool = option(True, "Reuse the keys and values of equal prompt beginnings.")
    enable_chunked_prefill: bool = option(True, "Cut long prompts into several steps.")
    disable_chunked_mm_input: bool = option(False, "Never cut an item: its placeholder is computed in one step.")
    encoder_compute_budget: int | None = option(
        None, "Embeds that encoders may make in one step; max_num_batched_tokens or the largest item when unset.", least=1
    )
    encoder_cache_size: int | None = option(
        None,
        "Embeds that the encoder cache holds; as above when unset, or max_model_len where that is more and embeddings are accepted.",
        least=1,
    )
    kv_cache_bytes: int | None = option(None, "Memory for keys and values, in bytes; measured at start when unset.", least=0)
    block_size: int = option(16, "Tokens in one KV block.", least=1)
    engine_threads: int = option(_cores_but_one, "Torch threads of the engine core.", least=1)
    front_threads: int = option(1, "Torch threads of each front end.", least=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerConfig(OptionsChecked):
    """The HTTP server and its processes."""

    host: str = option("127.0.0.1", "Address to listen on.")
    port: int = option(8000, "Port to listen on; 0 takes a free one.", least=0, most=65_535)
    api_server_count: int = option(1, "Front-end processes on one port.", least=1)
    in_process: bool = option(False, "Run front end and engine core in one process.")
    api_key: tuple[str, ...] = option((), "API keys that clients must send one of; empty asks for none.")
    allowed_origins: tuple[str, ...] = option((), "Origins that browsers may call from (CORS).")
    max_request_body_bytes: int = option(256 * MIB, "Largest request body.", least=0)
    max_request_text_bytes: int = option(4 * MIB, "Most text of a request, in bytes: all of its body besides media.", least=0)
    max_request_values: int = option(
        250_000, "Most strings, lists, objects and commas in a request body; parsing more of them stops other requests.", least=0
    )
    max_held_body_bytes: int = option(
        GIB, "Most bytes of request bodies that one front end holds at one time, until their media are processed.", least=0
    )
    max_waiting_requests: int = option(
        256, "Most requests of one front end that are being prepared or wait for their first token.", least=0
    )
    request_timeout_seconds: float = option(600.0, "Longest time for a whole request.", least=0)
    engine_silence_seconds: float = option(
        15.0, "Longest time without a sign of life from the engine core, which gives one a second, before /health answers 503.", least=0
    )
    drain_timeout_seconds: float = option(30.0, "How long running requests may take after SIGTERM.", least=0)
    enable_admin_endpoints: bool = option(False, "Serve the endpoints that reset caches.")


@dataclass(frozen=True, slots=True, kw_only=True)
class Configs:
    """All options of one engine, by subject."""

    plugins: PluginConfig = field(default_factory=PluginConfig)
    media: MediaConfig = field(default_factory=MediaConfig)
    model: ModelConfig = field(default_factory=ModelConfig)
    cache: CacheConfig = field(default_factory=CacheConfig)
    engine: EngineConfig = field(default_factory=EngineConfig)
    server: ServerConfig = field(default_factory=ServerConfig)


def read_configs(options: Mapping[str, Any], environ: Mapping[str, str] | None = None) -> Configs:
    """Returns all configs: the given options by name, then the environment, then the defaults.

    Raises:
        ConfigError: There is no such option, with the nearest names, or a value has not the option's form.
    """
    hints = typing.get_type_hints(Configs)
    owners = {item.name: subject for subject, config in hints.items() for item in iter_options(config)}
    for name in options:
        if name not in owners:
            near = difflib.get_close_matches(name, owners)
            raise ConfigError(f"There is no option {name!r}." + (f" Did you mean {' or '.join(map(repr, near))}?" if near else ""))
    values = {}
    for subject, config in hints.items():
        given = {item.name: coerce_option(item, options[item.name]) for item in iter_options(config) if item.name in options}
        values[subject] = config(**{**read_environment(config, environ), **given})
    return Configs(**values)
