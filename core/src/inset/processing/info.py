"""What the core asks a model family about itself: limits, options, decoders and identity."""

from __future__ import annotations

import json
import threading
from abc import ABC, abstractmethod
from collections import OrderedDict
from collections.abc import Mapping, Sized
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar, Final, final

from inset.config import MediaConfig
from inset.errors import ConfigError, InvalidRequestError, ItemLimitError
from inset.identity import JSON, canonical_json, framed_sha256
from inset.inputs import MODALITIES, MediaIOFactory

if TYPE_CHECKING:
    from inset.checkpoint import Checkpoint
    from inset.media.io import MediaIO
    from inset.processing.inputs import ProcessorInputs
    from inset.processing.tokenizer import Tokenizer

__all__ = ["DEFAULT_MM_LIMIT", "ProcessingContext", "ProcessingInfo"]

DEFAULT_MM_LIMIT: Final = 999
"""Most items of one modality in a prompt, where the operator says nothing and the model allows it."""

_MAX_MEDIA_IOS: Final = 64

_DEFAULT_HIDDEN_SIZE: Final = 4096
"""Hub checkpoints leave out what is the default. Source: transformers 5.24, the configs of Llama, Mistral, Mixtral, Qwen2 and Qwen3."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessingContext:
    """What a family's processing is built from.

    Attributes:
        checkpoint: The checkpoint's configs.
        tokenizer: The checkpoint's tokenizer.
        media_io_factories: Modality -> what makes a decoder from the media IO options of one request.
        mm_processor_kwargs: The operator's processor options, for every request.
        media_config: How media is decoded; its `media_io_kwargs` are the operator's decode options for every request.
        limit_mm_per_prompt: Modality -> most items that the operator allows in one prompt.
        max_model_len: Longest prompt and answer together, in tokens, or None where only the checkpoint limits it.
        distribution: The installed distribution that the family comes from.
        version: Its version; another one never reads what this one cached.
    """

    checkpoint: Checkpoint
    tokenizer: Tokenizer
    media_io_factories: Mapping[str, MediaIOFactory] = field(default_factory=dict)
    mm_processor_kwargs: Mapping[str, JSON] = field(default_factory=dict)
    media_config: MediaConfig = field(default_factory=MediaConfig)
    limit_mm_per_prompt: Mapping[str, int] = field(default_factory=dict)
    max_model_len: int | None = None
    distribution: str = ""
    version: str = ""


class ProcessingInfo(ABC):
    """A model family's facts for one checkpoint; built once, read from many threads.

    A family implements the abstract methods. What is final keeps limits, option scoping and decoder identity alike for all families.

    Attributes:
        video_needs_metadata: `VideoProcessorItems.get` shows metadata beside the frames.
        audio_sampling_rate: Rate that sound is resampled to, in samples per second, or None for its own.
        mixes_audio_down: Channels of sound become one.
    """

    video_needs_metadata: ClassVar[bool] = False
    audio_sampling_rate: ClassVar[int | None] = None
    mixes_audio_down: ClassVar[bool] = False

    def __init__(self, context: ProcessingContext) -> None:
        self.context = context
        self._media_ios: OrderedDict[tuple[str, bytes], MediaIO[Any]] = OrderedDict()
        self._lock = threading.Lock()

    @property
    def checkpoint(self) -> Checkpoint:
        """The checkpoint's configs."""
        return self.context.checkpoint

    @property
    def tokenizer(self) -> Tokenizer:
        """The checkpoint's tokenizer."""
        return self.context.tokenizer

    @property
    def hidden_size(self) -> int:
        """Width of the text model's embeddings; what precomputed embeddings must have."""
        return int(self._text_config.get("hidden_size") or _DEFAULT_HIDDEN_SIZE)

    @property
    def vocab_size(self) -> int:
        """Rows of the text model's embedding table: token ids lie below it, except where an item's embedding takes their place."""
        return int(self._text_config.get("vocab_size") or self.tokenizer.vocab_size)

    @property
    def max_model_len(self) -> int | None:
        """Longest prompt and answer together, in tokens: the operator's, else the checkpoint's, or None where neither says."""
        own: int | None = self._text_config.get("max_position_embeddings")
        return own if self.context.max_model_len is None else self.context.max_model_len

    @property
    def _text_config(self) -> Mapping[str, Any]:
        return self.checkpoint.config.get("text_config") or self.checkpoint.config

    @property
    def embed_size(self) -> int:
        """Width of a row that the encoder gives; more than `hidden_size` where later layers receive features of their own."""
        return self.hidden_size

    @abstractmethod
    def get_supported_mm_limits(self) -> Mapping[str, int | None]:
        """Returns modality -> most items in one prompt, None for no limit of the model's own; other modalities are not supported."""

    @abstractmethod
    def get_placeholder_text(self, modality: str, item_index: int) -> str:
        """Returns the text of one unexpanded placeholder, for chat templates that read content as a string.

        Args:
            modality: ``image``, ``video`` or ``audio``.
            item_index: Position among the request's items of this modality; some families number their placeholders.
        """

    @abstractmethod
    def max_tokens_per_item(self, modality: str) -> int:
        """Returns the prompt tokens of the largest item that the processor can make."""

    def processor_options(self, modality: str) -> frozenset[str]:
        """Returns the names of processor options that act on a modality; by default none. `plan` checks their values."""
        return frozenset()

    def detail_options(self, modality: str, detail: str, *, options: Mapping[str, JSON]) -> Mapping[str, JSON]:
        """Returns the processor options by which an item is made with more or less detail, on top of others; by default none.

        A client asks for it with each item, as OpenAI's ``image_url.detail``; it never gets more than the operator's options allow.

        Args:
            modality: ``image``, ``video`` or ``audio``.
            detail: ``low`` or ``high``; ``auto`` is what happens without it, and does not come here.
            options: The options that act on the modality: the operator's with the request's on top.
        """
        return {}

    def fingerprint_configs(self) -> Mapping[str, object]:
        """Returns the configs that decide what an item becomes; a family adds what it reads besides these."""
        checkpoint = self.checkpoint
        return {
            "config": checkpoint.config,
            "preprocessor_config": checkpoint.preprocessor_config,
            "video_preprocessor_config": checkpoint.video_preprocessor_config,
            "processor_config": checkpoint.processor_config,
        }

    @final
    @cached_property
    def fingerprint(self) -> bytes:
        """Identity of this processing, 32 bytes: the plugin's distribution and version, the class, and the configs it reads."""
        name = f"{type(self).__module__}.{type(self).__qualname__}"
        configs = json.dumps(self.fingerprint_configs(), sort_keys=True).encode()
        return framed_sha256(b"processing", self.context.distribution.encode(), self.context.version.encode(), name.encode(), configs)

    @final
    def get_mm_limits(self) -> dict[str, int]:
        """Returns modality -> most items in one prompt: what the operator allows, at most what the model does; 0 means disabled."""
        limits = {}
        for modality, model_limit in self.get_supported_mm_limits().items():
            allowed = self.context.limit_mm_per_prompt.get(modality, DEFAULT_MM_LIMIT)
            limits[modality] = allowed if model_limit is None else min(allowed, model_limit)
        return limits

    @final
    def check_mm_counts(self, mm_counts: Mapping[str, int]) -> None:
        """Checks the numbers of items of one prompt; call it before anything is downloaded.

        Raises:
            ItemLimitError: There are too many items of one modality, or the model does not take it.
        """
        limits = self.get_mm_limits()
        for modality, count in mm_counts.items():
            if count and modality not in limits:
                supported = ", ".join(limits) or "text alone"
                raise ItemLimitError(f"This model does not take {modality} input; it takes {supported}.", stage="parse", modality=modality)
            if count > limits.get(modality, 0):
                raise ItemLimitError(
                    f"At most {limits[modality]} {modality}(s) may be provided in one prompt.", stage="parse", modality=modality
                )

    @final
    def scope_processor_kwargs(self, mm_processor_kwargs: Mapping[str, JSON]) -> dict[str, dict[str, JSON]]:
        """Returns modality -> the options that act on it: the operator's with the request's on top.

        An option is given by its name alone, and then acts on every modality that knows it, or below the name of a modality, such as
        ``{"video": {"max_pixels": 50176}}``.

        Raises:
            InvalidRequestError: Nothing knows an option; the message lists the known ones.
        """
        known = {modality: self.processor_options(modality) for modality in self.get_supported_mm_limits()}
        scoped: dict[str, dict[str, JSON]] = {modality: {} for modality in known}
        for source in (self.context.mm_processor_kwargs, mm_processor_kwargs):
            common = {name: value for name, value in source.items() if name not in MODALITIES}
            self._check_known(common, frozenset().union(*known.values()), "")
            for modality in MODALITIES:
                names = known.get(modality, frozenset())
                own = source.get(modality, {})
                if not isinstance(own, Mapping):
                    raise InvalidRequestError(f"mm_processor_kwargs.{modality} must be an object of options.", stage="parse")
                self._check_known(own, names, f" for {modality}")
                if modality in known:
                    scoped[modality] |= {name: value for name, value in common.items() if name in names}
                    scoped[modality] |= own
        return scoped

    @final
    def item_options(self, inputs: ProcessorInputs, mm_counts: Mapping[str, Sized]) -> dict[str, list[dict[str, JSON]]]:
        """Returns modality -> the processor options of each item: those of the modality, and what its detail adds.

        Raises:
            InvalidRequestError: Nothing knows an option.
        """
        scoped = self.scope_processor_kwargs(inputs.mm_processor_kwargs)
        of_items: dict[str, list[dict[str, JSON]]] = {}
        for modality, items in mm_counts.items():
            details = inputs.mm_details.get(modality) or [None] * len(items)
            options = scoped[modality]
            of_items[modality] = [
                options if detail in (None, "auto") else {**options, **self.detail_options(modality, str(detail), options=options)}
                for detail in details
            ]
        return of_items

    @staticmethod
    def _check_known(options: Mapping[str, JSON], names: frozenset[str], scope: str) -> None:
        unknown = sorted(set(options) - names)
        if unknown:
            there_are = ", ".join(sorted(names)) or "none"
            raise InvalidRequestError(
                f"Unknown processor option(s){scope}: {', '.join(map(repr, unknown))}. Known: {there_are}.", stage="parse"
            )

    @final
    def get_media_io(self, modality: str, media_io_kwargs: Mapping[str, JSON] | None = None) -> MediaIO[Any]:
        """Returns the decoder of a modality for the decode options of one request, memoised by canonical options.

        Args:
            modality: ``image``, ``video`` or ``audio``.
            media_io_kwargs: The request's options of this modality; they win over the operator's.

        Raises:
            ItemLimitError: The model does not take this modality.
            InvalidRequestError: An option is unknown or out of range.
        """
        factory = self.context.media_io_factories.get(modality)
        if factory is None or modality not in self.get_supported_mm_limits():
            raise ItemLimitError(f"This model does not take {modality} input.", stage="parse", modality=modality)
        options = {**self.context.media_config.media_io_kwargs.get(modality, {}), **(media_io_kwargs or {})}
        key = (modality, canonical_json(options))
        with self._lock:
            media_io: MediaIO[Any] | None = self._media_ios.get(key)
            if media_io is None:
                media_io = factory(options, self.context.media_config)
                self._media_ios[key] = media_io
            self._media_ios.move_to_end(key)
            while len(self._media_ios) > _MAX_MEDIA_IOS:
                self._media_ios.popitem(last=False)
        return media_io

    @final
    def check_options(self) -> None:
        """Checks the operator's limits and options, once, at start; `check_operator_options` calls it and checks values.

        Raises:
            ConfigError: A limit is below 0, something names a modality that there is not or that the model does not take, or nothing
                knows a processor option.
        """
        supported = self.get_supported_mm_limits()
        context = self.context
        for name, given in (
            ("limit_mm_per_prompt", context.limit_mm_per_prompt),
            ("media_io_kwargs", context.media_config.media_io_kwargs),
        ):
            if unknown := sorted(set(given) - set(MODALITIES)):
                raise ConfigError(f"{name} names {', '.join(map(repr, unknown))}; the modalities are {', '.join(MODALITIES)}.")
        for modality, limit in self.context.limit_mm_per_prompt.items():
            if limit < 0:
                raise ConfigError(f"limit_mm_per_prompt.{modality} is {limit}; 0 disables a modality.")
            if limit and modality not in supported:
                takes = ", ".join(supported) or "text alone"
                raise ConfigError(f"limit_mm_per_prompt names {modality!r}, which this model does not take. It takes {takes}.")
        try:
            self.scope_processor_kwargs({})
        except InvalidRequestError as error:
            raise ConfigError(f"mm_processor_kwargs: {error.message}") from error
