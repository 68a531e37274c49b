"""Fetch and decode in one call, for scripts: the same policy and limits as in a server, from the same options in the environment."""

from __future__ import annotations

import atexit
import functools
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from inset.config import MediaConfig
from inset.identity import JSON
from inset.media.fetcher import MediaFetcher
from inset.media.io import MediaIO, default_media_io
from inset.media.ref import MediaRef
from inset.options import read_environment
from inset.plugins import get_default_host

if TYPE_CHECKING:
    from inset.media.decoded import AudioSamples, ImagePixels, VideoFrames

__all__ = ["fetch_audio", "fetch_image", "fetch_video", "get_default_fetcher"]


@functools.cache
def get_default_fetcher() -> MediaFetcher:
    """Returns the fetcher that the offline helpers share; it is made with the first call and closed when the process ends.

    Raises:
        ConfigError: A variable of the environment (INSET_*) has not the form of its option.
    """
    config = MediaConfig(**read_environment(MediaConfig))
    fetcher = MediaFetcher.build(get_default_host().registries.media_connectors, config)
    atexit.register(fetcher.close)
    return fetcher


def fetch_image(image_url: str, image_io_kwargs: Mapping[str, JSON] | None = None, *, fetcher: MediaFetcher | None = None) -> ImagePixels:
    """Returns the pixels of an image: ``(height, width, 3)`` uint8 RGB in [0, 255], upright.

    Args:
        image_url: A data: or http(s): URL, or one of another scheme that the options enable.
        image_io_kwargs: Decode options, over those of ``INSET_MEDIA_IO_KWARGS``.
        fetcher: What fetches; one with the options of the environment when None.

    Raises:
        ClientError: What went wrong, as for `inset.media.connector.FetchSurface`.
    """
    pixels: ImagePixels = _fetch("image", image_url, image_io_kwargs, fetcher)
    return pixels


def fetch_video(video_url: str, video_io_kwargs: Mapping[str, JSON] | None = None, *, fetcher: MediaFetcher | None = None) -> VideoFrames:
    """Returns the frames of a video and where they lay in it; arguments and errors as for `fetch_image`."""
    frames: VideoFrames = _fetch("video", video_url, video_io_kwargs, fetcher)
    return frames


def fetch_audio(audio_url: str, audio_io_kwargs: Mapping[str, JSON] | None = None, *, fetcher: MediaFetcher | None = None) -> AudioSamples:
    """Returns the samples of a sound and their rate; arguments and errors as for `fetch_image`."""
    samples: AudioSamples = _fetch("audio", audio_url, audio_io_kwargs, fetcher)
    return samples


def _fetch(modality: str, url: str, options: Mapping[str, JSON] | None, fetcher: MediaFetcher | None) -> Any:
    source = fetcher or get_default_fetcher()
    media_io: MediaIO[Any] = default_media_io(
        modality, {**source.config.media_io_kwargs.get(modality, {}), **(options or {})}, source.config
    )
    ref: MediaRef[Any] = source.load_from_url(url, media_io)
    return ref.decode()
