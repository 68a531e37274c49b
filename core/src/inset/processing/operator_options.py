"""Whether the operator's options can be served: found out at start, by what the first request would do with them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from inset.errors import ConfigError, InvalidRequestError
from inset.media.header import MediaHeader

if TYPE_CHECKING:
    from inset.processing.processor import MultiModalProcessor

__all__ = ["check_operator_options"]

_SIDE: Final = 64
_SMALL_ITEMS: Final = {
    "image": MediaHeader(modality="image", width=_SIDE, height=_SIDE, decoded_bytes=3 * _SIDE * _SIDE),
    "video": MediaHeader(
        modality="video",
        width=_SIDE,
        height=_SIDE,
        num_frames=4,
        total_num_frames=4,
        fps=1.0,
        frame_indices=(0, 1, 2, 3),
        timestamps_seconds=(0.0, 1.0, 2.0, 3.0),
        duration_seconds=4.0,
        decoded_bytes=3 * 4 * _SIDE * _SIDE,
    ),
    "audio": MediaHeader(
        modality="audio", sampling_rate=16_000, num_channels=1, num_samples=16_000, duration_seconds=1.0, decoded_bytes=4 * 16_000
    ),
}
"""Modality -> the header of an item that every model takes."""


def check_operator_options(processor: MultiModalProcessor) -> None:
    """Checks limits and names, then values: by making the decoders, and by planning a small item of each enabled modality.

    What no option concerns is left alone, so that no decoder is loaded before a request needs it.

    Raises:
        ConfigError: As `ProcessingInfo.check_options`, or an option has a value that every item would be refused for.
    """
    info = processor.info
    info.check_options()
    decode_options, factories = info.context.media_config.media_io_kwargs, info.context.media_io_factories
    scoped = info.scope_processor_kwargs({})
    for modality in (modality for modality, limit in info.get_mm_limits().items() if limit):
        with _refusing("media_io_kwargs"):
            if decode_options.get(modality) and factories.get(modality) is not None:
                info.get_media_io(modality)
        with _refusing(f"mm_processor_kwargs for {modality}s"):
            if scoped[modality]:
                plan = processor.plan(modality, _SMALL_ITEMS[modality], options=scoped[modality])
                _check_reach(modality, plan.num_tokens, info.max_model_len)


def _check_reach(modality: str, num_tokens: int, max_model_len: int | None) -> None:
    if max_model_len is not None and num_tokens > max_model_len:
        raise ConfigError(
            f"mm_processor_kwargs make even a small {modality} of {_SIDE}x{_SIDE} pixels take {num_tokens} tokens, and the context holds "
            f"{max_model_len}."
        )


@contextmanager
def _refusing(name: str) -> Iterator[None]:
    try:
        yield
    except InvalidRequestError as error:
        raise ConfigError(f"{name}: {error.message}") from error
