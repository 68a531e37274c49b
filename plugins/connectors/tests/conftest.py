"""What the tests of several connectors need."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from inset.api import MediaConfig, MediaConnector
from inset.media.fetcher import MediaFetcher
from inset.media.http import HttpConnector
from inset.media.local import FileConnector

MakeFetcher = Callable[..., MediaFetcher]


@pytest.fixture
def make_fetcher() -> Iterator[MakeFetcher]:
    """Makes fetchers with some connectors besides http: and file:, which are closed with the test."""
    with ExitStack() as stack:

        def make(*connectors: MediaConnector, **options: Any) -> MediaFetcher:
            config = MediaConfig(**{"allow_private_media_hosts": ("127.0.0.1",), **options})
            return stack.enter_context(MediaFetcher([*connectors, HttpConnector(), FileConnector()], config))

        yield make
