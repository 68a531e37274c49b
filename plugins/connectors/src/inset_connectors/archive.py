"""Members of zip and tar archives that another connector brings: ``zip+file:///folder/archive.zip!/member.png``."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import ClassVar, Final

from inset.api import ByteStream, FetchLimits, MediaConnector, MediaPolicyError, MediaUrl
from inset_connectors.paths import decode_path
from inset_connectors.pieces import pull
from inset_connectors.tar_member import find_tar_member
from inset_connectors.zip_member import Member, find_zip_member

__all__ = ["ArchiveConnector"]

MARK: Final = "!/"

_FINDERS: Final[Mapping[str, Callable[[bytes, str, FetchLimits], Member]]] = {"tar": find_tar_member, "zip": find_zip_member}


class ArchiveConnector(MediaConnector):
    """Serves ``zip+`` and ``tar+`` before the URL of an archive, ``!/`` and a member behind it.

    Whatever connector serves the archive's own URL brings it, under the rules for that URL. Nothing is written to a disk. An archive, and
    what of a packed tar has to be unpacked to reach the member, may have as many bytes as any item; the member counts on its own.
    """

    schemes: ClassVar[tuple[str, ...]] = ("zip+*", "tar+*")

    async def open(self, url: MediaUrl, limits: FetchLimits) -> ByteStream:
        """Returns the bytes of a member.

        Raises:
            MediaPolicyError: The member's name is not a plain relative path, the member is no regular file, or the archive lies inside
                another one.
            TooLargeError: The archive or the member is over its limit.
            MediaFetchError: The archive is damaged, too big to look through, or has no such member.
        """
        archive, name = _split(url)
        archive_limits = replace(limits, max_bytes=self.context.config.max_item_download_bytes, validators=None)
        stream = await self.context.open(archive, archive_limits)
        try:
            data = b"".join([chunk async for chunk in stream.chunks])
        finally:
            await stream.aclose()
        find = _FINDERS[url.scheme.partition("+")[0]]
        member = await asyncio.to_thread(find, data, name, archive_limits)
        limits.check_size(member.num_bytes)
        return ByteStream(chunks=pull(member.pieces), num_bytes=member.num_bytes)


def _split(url: MediaUrl) -> tuple[MediaUrl, str]:
    """Returns the archive's URL and the member's name."""
    text, _, member = url.text.partition("+")[2].partition(MARK)
    if not member or MARK in member:
        message = f"{url.where}: one {MARK} stands between the URL of an archive and a member; write others as %21/."
        raise MediaPolicyError(message, stage="fetch")
    archive = MediaUrl.parse(text)
    if archive.scheme.partition("+")[0] in _FINDERS:
        raise MediaPolicyError(f"{url.where}: an archive inside another one is not opened.", stage="fetch")
    return archive, decode_path(member, url.where)
