"""From media parts to what the processor takes: references to fetched or given bytes, objects, embeddings."""

from __future__ import annotations

import asyncio
import stat
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias
from urllib.parse import urlsplit

from inset.engine.content_parts import MediaPart
from inset.engine.embeds import read_embeds
from inset.errors import InsetError, MediaFetchError
from inset.media.gather import gather_or_cancel

if TYPE_CHECKING:
    from inset.engine.stage_times import StageTimes
    from inset.media.budget import RequestBudget
    from inset.media.executor import MediaExecutor
    from inset.media.fetcher import MediaFetcher
    from inset.media.io import MediaIO

__all__ = ["MediaLoader", "group_by_modality"]

GetMediaIO: TypeAlias = "Callable[[str], MediaIO[Any]]"

_MIN_SCHEME_LENGTH = 2  # one letter before a colon is a drive, not a scheme


class MediaLoader:
    """Loads the media of requests; lives as long as its core."""

    def __init__(self, fetcher: MediaFetcher, executor: MediaExecutor) -> None:
        self._fetcher = fetcher
        self._executor = executor

    async def load(
        self, parts: Sequence[MediaPart], get_media_io: GetMediaIO, *, budget: RequestBudget, stages: StageTimes
    ) -> list[object]:
        """Returns what each part stands for; the first part that fails cancels the others.

        Args:
            parts: Media parts; those named by a uuid alone give None.
            get_media_io: Modality -> decoder under the options of the request.
            budget: Counts what is downloaded.
            stages: Takes the times of ``fetch`` and ``probe``.

        Raises:
            ClientError: A part cannot be had; modality, index and place are named.
        """
        positions = _positions(parts)
        load = _Load(self._fetcher, self._executor, get_media_io, budget, stages)
        return await gather_or_cancel([load.one(part, position) for part, position in zip(parts, positions, strict=True)])


@dataclass(frozen=True, slots=True)
class _Load:
    """The loading of one request's media."""

    fetcher: MediaFetcher
    executor: MediaExecutor
    get_media_io: GetMediaIO
    budget: RequestBudget
    stages: StageTimes

    async def one(self, part: MediaPart, item_index: int) -> object:
        """Returns what a part stands for."""
        try:
            if part.kind == "url":
                return await self._fetch(str(part.source), self.get_media_io(part.modality))
            if part.kind == "object":
                return await self._read(part)
            if part.kind == "embeds":
                return await self._on_executor("image", partial(read_embeds, part.source))
            return part.source
        except InsetError as error:
            raise error.locate(modality=part.modality, item_index=item_index, parameter=part.parameter)  # noqa: B904 - the same error

    async def _read(self, part: MediaPart) -> object:
        """Reads what a caller in this process handed over: a path, a URL, encoded bytes, or decoded media, which pass as they are."""
        source = part.source
        media_io = self.get_media_io(part.modality)
        if isinstance(source, str) and len(urlsplit(source).scheme) >= _MIN_SCHEME_LENGTH:
            return await self._fetch(source, media_io)
        if isinstance(source, str | Path):
            with self.stages.timed("fetch"):
                source = await self._on_executor(part.modality, partial(_read_file, Path(source), part.modality, self.budget))
        if isinstance(source, bytes | bytearray | memoryview):
            with self.stages.timed("probe"):
                return await self._on_executor(part.modality, partial(media_io.load_bytes_ref, bytes(source)))
        return source

    async def _fetch(self, url: str, media_io: MediaIO[Any]) -> object:
        started, probes = time.perf_counter(), list[float]()
        try:
            (ref,) = await self.fetcher.run_async(url, (media_io,), media_io.modality, self.budget, on_probed=probes.append)
        finally:
            self.stages.add("fetch", time.perf_counter() - started - sum(probes))
        self.stages.add("probe", sum(probes))
        return ref

    async def _on_executor(self, modality: str, work: Callable[[], object]) -> object:
        return await asyncio.wrap_future(self.executor.submit(modality, work))


def group_by_modality(parts: Sequence[MediaPart], values: Sequence[Any]) -> dict[str, list[Any]]:
    """Returns modality -> the values of its parts, in order."""
    grouped: dict[str, list[Any]] = {}
    for part, value in zip(parts, values, strict=True):
        grouped.setdefault(part.modality, []).append(value)
    return grouped


def _positions(parts: Sequence[MediaPart]) -> list[int]:
    """Returns the position of each part among the parts of its modality."""
    counts: dict[str, int] = {}
    positions = []
    for part in parts:
        positions.append(counts.get(part.modality, 0))
        counts[part.modality] = positions[-1] + 1
    return positions


def _read_file(path: Path, modality: str, budget: RequestBudget) -> bytes:
    try:
        status = path.stat()
        if not stat.S_ISREG(status.st_mode):  # a pipe or a device might never end
            raise MediaFetchError(f"The {modality} path leads to something that is not a regular file.", stage="fetch")
        budget.add_downloaded(status.st_size)
        return path.read_bytes()
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or "no path is spelled like this"
        raise MediaFetchError(f"The {modality} file cannot be read: {reason}.", stage="fetch") from error
