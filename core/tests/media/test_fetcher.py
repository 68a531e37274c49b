from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, ClassVar

import pytest

from inset.config import MediaConfig
from inset.errors import (
    InvariantError,
    MediaDecodeError,
    MediaFetchError,
    MediaPolicyError,
    MediaTimeoutError,
    OverloadedError,
    PluginContractError,
    TooLargeError,
)
from inset.media import fetcher as fetcher_module
from inset.media.connector import MediaConnector
from inset.media.executor import MediaExecutor
from inset.media.fetcher import FetchItem, MediaFetcher
from inset.media.header import MediaHeader
from inset.media.http import HttpConnector
from inset.media.stream import ByteStream, FetchLimits
from inset.media.url import MediaUrl
from inset.testing.conformance.connector import make_budget
from inset.testing.media_io import EncodedAudioIO, EncodedBytesIO, EncodedVideoIO
from inset.testing.media_server import MediaServer, Reply
from inset.testing.waiting import wait_until, wait_until_waiting
from inset.testing.watched_connector import watch

WAIT_SECONDS = 20.0
SHORT: dict[str, Any] = {"image_fetch_timeout_seconds": 0.3, "image_fetch_deadline_seconds": 0.6}


async def give(*pieces: Any) -> AsyncIterator[bytes]:
    for piece in pieces:
        yield piece


class CarelessConnector(MediaConnector):
    """Forgets every limit; what it does wrong is the host of the URL."""

    schemes: ClassVar[tuple[str, ...]] = ("careless",)

    def __init__(self) -> None:
        self.num_pieces = 0
        self.release = threading.Event()

    async def open(self, url: MediaUrl, limits: FetchLimits) -> ByteStream:
        method: Any = getattr(self, f"open_{(url.host or '').replace('-', '_')}")
        return await method(url, limits)  # type: ignore[no-any-return]

    async def open_fine(self, url: MediaUrl, limits: FetchLimits) -> ByteStream:
        return ByteStream(chunks=give(b"fine"))

    async def open_endless(self, url: MediaUrl, limits: FetchLimits) -> ByteStream:
        async def pour() -> AsyncIterator[bytes]:
            while True:
                self.num_pieces += 1
                yield bytes(10_000)

        return ByteStream(chunks=pour())

    async def open_lying(self, url: MediaUrl, limits: FetchLimits) -> ByteStream:
        return ByteStream(chunks=give(b"more than was said"), num_bytes=4)

    async def open_boastful(self, url: MediaUrl, limits: FetchLimits) -> ByteStream:
        return ByteStream(chunks=give(b"fine"), num_bytes=1 << 50)

    async def open_asleep(self, url: MediaUrl, limits: FetchLimits) -> ByteStream:
        await asyncio.Event().wait()
        raise AssertionError

    async def open_stubborn(self, url: MediaUrl, limits: FetchLimits) -> ByteStream:
        while not self.release.is_set():
            try:
                await asyncio.sleep(0.01)
            except asyncio.CancelledError:
                continue
        raise AssertionError

    async def open_blocking(self, url: MediaUrl, limits: FetchLimits) -> ByteStream:
        self.release.wait(20)
        return ByteStream(chunks=give(b"late"))

    async def open_drip(self, url: MediaUrl, limits: FetchLimits) -> ByteStream:
        async def drip() -> AsyncIterator[bytes]:
            while True:
                await asyncio.sleep(0.01)
                yield b"x"

        return ByteStream(chunks=drip())

    async def open_nothing(self, url: MediaUrl, limits: FetchLimits) -> None:
        return None

    async def open_text(self, url: MediaUrl, limits: FetchLimits) -> ByteStream:
        return ByteStream(chunks=give("text"))

    async def open_unchanged(self, url: MediaUrl, limits: FetchLimits) -> ByteStream:
        return ByteStream(chunks=give(), is_unchanged=True)

    async def open_bug(self, url: MediaUrl, limits: FetchLimits) -> ByteStream:
        raise KeyError("/secret/path?signature=s3cr3t")

    async def open_exit(self, url: MediaUrl, limits: FetchLimits) -> ByteStream:
        raise SystemExit(3)

    async def open_late_bug(self, url: MediaUrl, limits: FetchLimits) -> ByteStream:
        async def fail() -> AsyncIterator[bytes]:
            yield b"x"
            raise ZeroDivisionError

        return ByteStream(chunks=fail())

    async def open_bad_close(self, url: MediaUrl, limits: FetchLimits) -> ByteStream:
        async def close() -> None:
            raise RuntimeError

        return ByteStream(chunks=give(b"fine"), close=close)

    async def open_inner(self, url: MediaUrl, limits: FetchLimits) -> ByteStream:
        return await self.context.http.open(MediaUrl.parse("http://127.0.0.1/latest/meta-data"), limits)

    async def open_deadlock(self, url: MediaUrl, limits: FetchLimits) -> ByteStream:
        self.fetch_image("careless://fine/", EncodedBytesIO())
        raise AssertionError

    async def open_nested(self, url: MediaUrl, limits: FetchLimits) -> ByteStream:
        ref = await self.fetch_image_async("careless://fine/", EncodedBytesIO())
        return ByteStream(chunks=give(bytearray(ref.data), memoryview(b"!")))


@pytest.fixture
def careless() -> Iterator[CarelessConnector]:
    connector = CarelessConnector()
    with MediaFetcher([connector], MediaConfig(max_item_download_bytes=100_000, **SHORT)):
        yield connector
        connector.release.set()


@pytest.mark.parametrize(
    ("url", "error_class", "words"),
    [
        ("careless://endless/", TooLargeError, "100000"),
        ("careless://boastful/", TooLargeError, "100000"),
        ("careless://lying/", MediaFetchError, "18 bytes arrived of 4"),
        ("careless://asleep/", MediaTimeoutError, "time"),
        ("careless://stubborn/", MediaTimeoutError, "deadline"),
        ("careless://blocking/", MediaTimeoutError, "deadline"),
        ("careless://drip/", MediaTimeoutError, "time"),
        ("careless://nothing/", MediaFetchError, "NoneType, not a ByteStream"),
        ("careless://text/", MediaFetchError, "TypeError"),
        ("careless://unchanged/", MediaFetchError, "nothing is known"),
        ("careless://bug/", MediaFetchError, "KeyError"),
        ("careless://exit/", MediaFetchError, "SystemExit"),
        ("careless://late-bug/", MediaFetchError, "ZeroDivisionError"),
        ("careless://inner/", MediaPolicyError, "loopback"),
        ("careless://deadlock/", InvariantError, "await"),
    ],
)
def test_connector_that_forgets_every_limit_exceeds_none(
    careless: CarelessConnector, url: str, error_class: type[Exception], words: str, caplog: pytest.LogCaptureFixture
) -> None:
    with pytest.raises(error_class, match=words) as caught:
        careless.fetch_image(url, EncodedBytesIO())
    assert "s3cr3t" not in str(caught.value)
    assert "s3cr3t" not in caplog.text
    careless.release.set()
    assert careless.fetch_audio("careless://fine/", EncodedAudioIO()).data == b"fine", "the next fetch is served"
    assert careless.num_pieces <= 11


def test_failing_close_harms_nothing(careless: CarelessConnector) -> None:
    assert careless.fetch_image("careless://bad-close/", EncodedBytesIO()).data == b"fine"


def test_connector_may_fetch_through_the_core_and_give_any_buffer(careless: CarelessConnector) -> None:
    assert careless.fetch_image("careless://nested/", EncodedBytesIO()).data == b"fine!"


@pytest.mark.parametrize("name", ["fetch_image", "fetch_video_and_audio_async", "load_from_url", "context", "attach"])
def test_surface_cannot_be_overridden(name: str) -> None:
    """So that no connector loses a decoder, a cap or a key."""
    with pytest.raises(PluginContractError, match=name):
        type("Clever", (CarelessConnector,), {name: lambda self: None})


@pytest.mark.parametrize("schemes", ["http", (), ("HTTP",), ("a b",), ("zip*",), ("*",), None])
def test_schemes_must_be_a_tuple_of_lower_case_names(schemes: object) -> None:
    with pytest.raises(PluginContractError, match="schemes"):
        type("Wrong", (CarelessConnector,), {"schemes": schemes})


def test_connector_belongs_to_one_fetcher(careless: CarelessConnector) -> None:
    with pytest.raises(InvariantError, match="another MediaFetcher"):
        MediaFetcher([careless], MediaConfig())
    with pytest.raises(InvariantError, match="before a MediaFetcher"):
        CarelessConnector().fetch_image("careless://fine/", EncodedBytesIO())
    with pytest.raises(InvariantError, match="before a MediaFetcher"):
        _ = CarelessConnector().context


def test_connector_that_cannot_be_opened_is_tried_again_next_time() -> None:
    class Locked(CarelessConnector):
        schemes: ClassVar[tuple[str, ...]] = ("locked",)
        is_locked = True

        async def aopen(self) -> None:
            if self.is_locked:
                raise OSError("no key")

    connector = Locked()
    with MediaFetcher([connector], MediaConfig()) as fetcher:
        with pytest.raises(InvariantError, match="cannot be opened"):
            fetcher.fetch_image("locked://fine/", EncodedBytesIO())
        connector.is_locked = False
        assert fetcher.fetch_image("locked://fine/", EncodedBytesIO()).data == b"fine"


def test_header_that_no_thread_reads_in_time_is_our_own_overload(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fetcher_module, "GRACE_SECONDS", 0.05)
    gate = threading.Event()
    with MediaExecutor(image_threads=1, video_threads=1) as executor:
        executor.submit("image", gate.wait)
        with MediaFetcher([CarelessConnector()], MediaConfig(**SHORT), executor=executor) as fetcher:
            with pytest.raises(OverloadedError, match="No media thread") as caught:
                fetcher.fetch_image("careless://fine/", EncodedBytesIO())
            assert (caught.value.status, caught.value.stage, caught.value.modality) == (503, "probe", "image")
            with pytest.raises(OverloadedError, match="No media thread"):
                asyncio.run(fetcher.fetch_image_async("careless://fine/", EncodedBytesIO()))
        gate.set()


def test_closed_fetcher_says_so_and_closes_twice() -> None:
    fetcher = MediaFetcher([CarelessConnector()], MediaConfig())
    fetcher.fetch_image("careless://fine/", EncodedBytesIO())
    fetcher.close()
    fetcher.close()
    with pytest.raises(InvariantError, match="closed"):
        fetcher.fetch_image("careless://fine/", EncodedBytesIO())


def test_closing_ends_what_still_waits() -> None:
    fetcher = MediaFetcher([CarelessConnector()], MediaConfig())
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(fetcher.fetch_image, "careless://asleep/", EncodedBytesIO())
        wait_until_waiting(fetcher, 1)
        fetcher.close()
        with pytest.raises(OverloadedError, match="closing down"):
            waiting.result(20)


def test_closing_is_not_taken_for_a_cancellation_of_the_caller() -> None:
    fetcher = MediaFetcher([CarelessConnector()], MediaConfig())

    async def wait() -> None:
        fetch = asyncio.create_task(fetcher.fetch_image_async("careless://asleep/", EncodedBytesIO()))
        await asyncio.to_thread(wait_until_waiting, fetcher, 1)
        await asyncio.to_thread(fetcher.close)
        with pytest.raises(OverloadedError, match="closing down"):
            await fetch

    asyncio.run(asyncio.wait_for(wait(), 20))


def test_cancellation_that_comes_together_with_the_bytes_is_not_lost(media_server: MediaServer) -> None:
    gate = threading.Event()
    url = media_server.serve("/held", Reply(body=b"held", gate=gate))

    async def scenario(fetcher: MediaFetcher, thread: ThreadPoolExecutor) -> None:
        fetch = asyncio.ensure_future(fetcher.fetch_image_async(url, EncodedBytesIO()))
        await asyncio.to_thread(media_server.wait_for_requests, "/held")
        gate.set()  # from here on this loop stands still, until the bytes wait for it
        wait_until(lambda: fetcher.num_waiting == 0)
        thread.submit(fetcher.fetch_image, "careless://fine", EncodedBytesIO()).result(WAIT_SECONDS)
        fetch.cancel()
        with pytest.raises(asyncio.CancelledError):
            await fetch

    config = MediaConfig(allow_private_media_hosts=("127.0.0.1",))
    with MediaFetcher([HttpConnector(), CarelessConnector()], config) as fetcher, ThreadPoolExecutor(1) as thread:
        asyncio.run(scenario(fetcher, thread))


@pytest.mark.parametrize("failure", [ZeroDivisionError, SystemExit])
def test_decoder_that_fails_in_its_probe_is_a_decode_error(careless: CarelessConnector, failure: type[BaseException]) -> None:
    class BrokenIO(EncodedBytesIO):
        def probe(self, data: bytes) -> MediaHeader:
            raise failure

    with pytest.raises(MediaDecodeError, match=failure.__name__) as caught:
        careless.fetch_image("careless://fine/", BrokenIO())
    assert (caught.value.status, caught.value.stage, caught.value.modality) == (422, "probe", "image")


def test_loop_of_the_caller_is_never_held_up(careless: CarelessConnector) -> None:
    """A connector blocks the media loop; the caller's own loop goes on ticking meanwhile."""

    async def tick_while_fetching() -> int:
        fetch = asyncio.create_task(careless.fetch_image_async("careless://blocking/", EncodedBytesIO()))
        ticks = 0
        while ticks < 20:
            await asyncio.sleep(0.001)
            ticks += 1
        assert not fetch.done()
        careless.release.set()
        await asyncio.gather(fetch, return_exceptions=True)
        return ticks

    assert asyncio.run(tick_while_fetching()) == 20


def test_one_caller_with_a_later_deadline_outlives_a_shared_fetch() -> None:
    """Who joins a fetch that then runs out of its own time still has all of his."""
    connector = watch(CarelessConnector())
    with MediaFetcher([connector], MediaConfig(**{**SHORT, "max_fetch_attempts": 1})) as fetcher, ThreadPoolExecutor(2) as pool:
        connector.is_held = True
        first = pool.submit(fetcher.fetch_image, "careless://fine/", EncodedBytesIO())
        connector.wait_for("num_opens", 1)
        budget = make_budget()
        second = pool.submit(fetcher.fetch_image, "careless://fine/", EncodedBytesIO(), budget=budget)
        connector.wait_for("num_opens", 2)
        connector.is_held = False
        with pytest.raises(MediaTimeoutError):
            first.result(20)
        assert second.result(20).data == b"fine"
        assert budget.downloaded_bytes == len(b"fine")


def test_one_url_as_video_and_as_audio_at_the_same_time_is_downloaded_once() -> None:
    connector = watch(CarelessConnector())
    with MediaFetcher([connector], MediaConfig()) as fetcher, ThreadPoolExecutor(2) as pool:
        connector.is_held = True
        video_io, audio_io = EncodedVideoIO(setting="frames"), EncodedAudioIO(setting="track")
        video = pool.submit(fetcher.fetch_video, "careless://fine/", video_io)
        audio = pool.submit(fetcher.fetch_audio, "careless://fine/", audio_io)
        wait_until_waiting(fetcher, 2)
        connector.is_held = False
        assert (video.result(20).key, audio.result(20).key) == (video_io.load_bytes_ref(b"fine").key, audio_io.load_bytes_ref(b"fine").key)
    assert connector.num_opens == 1


def test_hundred_items_are_fetched_at_once(media_server: MediaServer) -> None:
    config = MediaConfig(allow_private_media_hosts=("127.0.0.1",))
    urls = [media_server.serve(f"/{number}", b"%d" % number) for number in range(100)]
    with MediaFetcher([HttpConnector()], config) as fetcher:
        refs = asyncio.run(fetcher.fetch_all_async([FetchItem(url, (EncodedBytesIO(),)) for url in urls]))
    assert [ref.data for (ref,) in refs] == [b"%d" % number for number in range(100)]


def test_first_failing_item_hangs_up_on_the_others(media_server: MediaServer) -> None:
    config = MediaConfig(allow_private_media_hosts=("127.0.0.1",))
    gate = threading.Event()
    slow = media_server.serve("/slow", Reply(is_stalled=True, content_length="10"))
    bad = media_server.serve("/bad", Reply(status=404, gate=gate))
    with MediaFetcher([HttpConnector()], config) as fetcher, ThreadPoolExecutor(1) as pool:
        items = [FetchItem(slow, (EncodedBytesIO(),)), FetchItem(bad, (EncodedBytesIO(),))]
        request = pool.submit(asyncio.run, fetcher.fetch_all_async(items))
        media_server.wait_for_requests("/slow")
        media_server.wait_for_requests("/bad")
        gate.set()
        with pytest.raises(MediaFetchError, match=r"image 1: .*answered 404"):
            request.result(20)
        wait_until(lambda: fetcher.num_waiting == 0)


def test_budget_is_not_spent_by_an_item_that_is_refused(careless: CarelessConnector) -> None:
    budget = make_budget(1000)
    with pytest.raises(MediaPolicyError):
        careless.fetch_image("careless://user@fine/", EncodedBytesIO(), budget=budget)
    assert budget.downloaded_bytes == 0


@pytest.mark.parametrize("url", ["gopher://example.com/", "ftp://example.com/", "javascript:alert(1)", "blob:x", "s3://bucket/key"])
def test_scheme_that_nobody_serves_is_refused_with_those_that_are(careless: CarelessConnector, url: str) -> None:
    with pytest.raises(MediaPolicyError, match="served are careless:"):
        careless.fetch_image(url, EncodedBytesIO())


def test_unused_fetcher_has_started_no_thread() -> None:
    before = threading.active_count()
    with MediaFetcher([CarelessConnector()], MediaConfig()):
        assert threading.active_count() == before
