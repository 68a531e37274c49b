"""What every media connector must show: inherit `ConnectorConformance` and give it a `source` fixture.

The cases are numbered; ``docs/reference/media-fetching.md`` lists them under the same numbers.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any, NamedTuple

import pytest

from inset.config import MediaConfig
from inset.errors import ClientError, MediaFetchError, MediaPolicyError, MediaTimeoutError, TooLargeError, TransientFetchError
from inset.media.budget import ProcessBudget, RequestBudget
from inset.media.connector import MediaConnector
from inset.media.fetcher import FetchItem, MediaFetcher
from inset.media.url import MediaUrl
from inset.testing.media_io import EncodedAudioIO, EncodedBytesIO, EncodedVideoIO
from inset.testing.waiting import wait_until_waiting
from inset.testing.watched_connector import WatchedConnector, watch

__all__ = ["ConnectorConformance", "ConnectorSource", "make_budget"]

PAYLOAD = bytes(range(256)) * 40
SECRET = "b0a7c0de"  # noqa: S105  # what must not be seen in a message
WAIT_SECONDS = 30.0


class ConnectorSource(ABC):
    """How the suite reaches the connector under test and puts something behind its URLs."""

    @abstractmethod
    def make_connector(self) -> MediaConnector:
        """Returns a new connector."""

    @abstractmethod
    def publish(self, data: bytes) -> str:
        """Puts bytes where the connector finds them, and returns their URL; each call another one."""

    def make_missing_url(self) -> str | None:
        """Returns a URL of nothing, with the text ``b0a7c0de`` in its path or query; None where nothing can be missing."""
        return None

    def publish_redirect(self, target: str) -> str | None:
        """Returns a URL that redirects to another one; None for a connector that follows none."""
        return None

    def get_config_options(self) -> Mapping[str, Any]:
        """Returns the media options under which the connector works."""
        return {}


class Bench(NamedTuple):
    """A fetcher with nothing but the connector under test, and that connector."""

    fetcher: MediaFetcher
    connector: WatchedConnector


def make_budget(max_bytes: int = 1 << 30) -> RequestBudget:
    """Returns the budget of a request that may fetch so many bytes."""
    return RequestBudget(MediaConfig(max_request_download_bytes=max_bytes), ProcessBudget(1 << 30))


class ConnectorConformance:
    """Inherited tests of a `MediaConnector`; a subclass has a fixture `source` that returns a `ConnectorSource`."""

    @pytest.fixture
    def bench(self, source: ConnectorSource) -> Iterator[Bench]:
        """The connector under test with short pauses."""
        with self.make_bench(source) as bench:
            yield bench

    @contextmanager
    def make_bench(self, source: ConnectorSource, **options: Any) -> Iterator[Bench]:
        """Makes a bench under further media options."""
        connector = watch(source.make_connector())
        with MediaFetcher([connector], MediaConfig(**{**source.get_config_options(), **options})) as fetcher:
            yield Bench(fetcher, connector)

    @pytest.mark.parametrize("num_bytes", [1, 2, 3, 4, 65_537, 3_000_000])
    def test_01_bytes_arrive_whole(self, bench: Bench, source: ConnectorSource, num_bytes: int) -> None:
        data = (PAYLOAD * (num_bytes // len(PAYLOAD) + 1))[:num_bytes]
        assert bench.fetcher.fetch_image(source.publish(data), EncodedBytesIO()).data == data

    def test_02_reference_is_not_decoded_and_has_the_decoders_key(self, bench: Bench, source: ConnectorSource) -> None:
        media_io = EncodedBytesIO(setting="mine")
        ref = bench.fetcher.fetch_image(source.publish(PAYLOAD), media_io)
        assert media_io.num_decodes == 0
        assert not ref.is_decoded
        assert ref.key == media_io.load_bytes_ref(PAYLOAD).key
        assert ref.key != EncodedBytesIO(setting="other").load_bytes_ref(PAYLOAD).key
        assert ref.decode() == PAYLOAD
        assert media_io.num_decodes == 1

    def test_03_one_download_serves_two_decoders(self, bench: Bench, source: ConnectorSource) -> None:
        video_io, audio_io = EncodedVideoIO(setting="frames"), EncodedAudioIO(setting="track")
        video, audio = bench.fetcher.fetch_video_and_audio(source.publish(PAYLOAD), video_io, audio_io)
        assert bench.connector.num_opens == 1
        assert video.key == video_io.load_bytes_ref(PAYLOAD).key
        assert audio.key == audio_io.load_bytes_ref(PAYLOAD).key
        assert (video.spec, audio.spec) == (video_io.get_decode_spec(), audio_io.get_decode_spec())

    def test_04_all_forms_give_the_same_reference(self, source: ConnectorSource) -> None:
        """The connector's own calls and the fetcher's, sync and async, for each modality."""
        url = source.publish(PAYLOAD)
        with self.make_bench(source) as (fetcher, connector):

            async def fetch_all_ways() -> list[bytes]:
                keys = []
                for surface in (fetcher, connector):
                    refs = [
                        await surface.fetch_image_async(url, EncodedBytesIO()),
                        await surface.fetch_video_async(url, EncodedBytesIO()),
                        await surface.fetch_audio_async(url, EncodedBytesIO()),
                        await surface.load_from_url_async(url, EncodedBytesIO()),
                        *await surface.fetch_video_and_audio_async(url, EncodedBytesIO(), EncodedBytesIO()),
                    ]
                    keys += [ref.key for ref in refs]
                return keys

            keys = asyncio.run(fetch_all_ways())
            for surface in (fetcher, connector):
                refs = [surface.fetch_image, surface.fetch_video, surface.fetch_audio, surface.load_from_url]
                keys += [fetch(url, EncodedBytesIO()).key for fetch in refs]
        assert set(keys) == {EncodedBytesIO().load_bytes_ref(PAYLOAD).key}

    def test_05_item_at_the_cap_passes_and_one_byte_more_is_refused(self, bench: Bench, source: ConnectorSource) -> None:
        url = source.publish(PAYLOAD)
        assert bench.fetcher.fetch_image(url, EncodedBytesIO(max_bytes=len(PAYLOAD))).data == PAYLOAD
        with pytest.raises(TooLargeError) as caught:
            bench.fetcher.fetch_image(url, EncodedBytesIO(max_bytes=len(PAYLOAD) - 1))
        assert (caught.value.status, caught.value.stage, caught.value.modality) == (413, "fetch", "image")

    def test_06_smaller_cap_of_two_decoders_holds(self, bench: Bench, source: ConnectorSource) -> None:
        url = source.publish(PAYLOAD)
        for caps in [(len(PAYLOAD) - 1, 1 << 20), (1 << 20, len(PAYLOAD) - 1)]:
            with pytest.raises(TooLargeError):
                bench.fetcher.fetch_video_and_audio(url, EncodedVideoIO(max_bytes=caps[0]), EncodedAudioIO(max_bytes=caps[1]))

    def test_07_budget_of_the_request_counts_each_download_once(self, bench: Bench, source: ConnectorSource) -> None:
        budget = make_budget(len(PAYLOAD) * 2)
        bench.fetcher.fetch_image(source.publish(PAYLOAD), EncodedBytesIO(), budget=budget)
        bench.fetcher.fetch_video_and_audio(source.publish(PAYLOAD), EncodedVideoIO(), EncodedAudioIO(), budget=budget)
        assert budget.downloaded_bytes == len(PAYLOAD) * 2
        with pytest.raises(TooLargeError):
            bench.fetcher.fetch_image(source.publish(b"x"), EncodedBytesIO(), budget=budget)

    def test_08_bytes_of_a_failed_attempt_count_once(self, bench: Bench, source: ConnectorSource) -> None:
        bench.connector.failures = [TransientFetchError("not now"), ConnectionResetError()]
        budget = make_budget(len(PAYLOAD))
        assert bench.fetcher.fetch_image(source.publish(PAYLOAD), EncodedBytesIO(), budget=budget).data == PAYLOAD
        assert bench.connector.num_opens == 3
        assert budget.downloaded_bytes == len(PAYLOAD)

    def test_09_attempts_end(self, source: ConnectorSource) -> None:
        with self.make_bench(source, max_fetch_attempts=2) as (fetcher, connector):
            connector.failures = [TransientFetchError("not now")] * 5
            with pytest.raises(MediaFetchError, match="not now Tried 2 times"):
                fetcher.fetch_image(source.publish(PAYLOAD), EncodedBytesIO())
            assert connector.num_opens == 2

    def test_10_deadline_ends_a_fetch_that_hangs(self, source: ConnectorSource) -> None:
        with self.make_bench(source, image_fetch_timeout_seconds=0.02, image_fetch_deadline_seconds=0.1) as (fetcher, connector):
            connector.is_held = True
            with pytest.raises(MediaTimeoutError) as caught:
                fetcher.fetch_image(source.publish(PAYLOAD), EncodedBytesIO())
            assert (caught.value.status, caught.value.code, caught.value.modality) == (422, "media_timeout", "image")
            connector.is_held = False
            assert fetcher.fetch_audio(source.publish(PAYLOAD), EncodedAudioIO()).data == PAYLOAD

    def test_11_callers_at_the_same_time_share_one_fetch(self, bench: Bench, source: ConnectorSource) -> None:
        """Unless the URL is the payload itself; each budget counts the bytes."""
        url, num_callers = source.publish(PAYLOAD), 8
        budgets = [make_budget() for _ in range(num_callers)]
        bench.connector.is_held = True
        with ThreadPoolExecutor(num_callers) as pool:
            futures = [pool.submit(bench.fetcher.fetch_image, url, EncodedBytesIO(), budget=budget) for budget in budgets]
            bench.connector.wait_for("num_opens", 1 if bench.connector.is_shared else num_callers)
            wait_until_waiting(bench.fetcher, num_callers)
            bench.connector.is_held = False
            assert {future.result(WAIT_SECONDS).data for future in futures} == {PAYLOAD}
        assert bench.connector.num_opens == (1 if bench.connector.is_shared else num_callers)
        assert {budget.downloaded_bytes for budget in budgets} == {len(PAYLOAD)}

    def test_12_who_leaves_does_not_disturb_the_others(self, bench: Bench, source: ConnectorSource) -> None:
        url = source.publish(PAYLOAD)

        async def leave_one() -> bytes:
            bench.connector.is_held = True
            first = asyncio.create_task(bench.fetcher.fetch_image_async(url, EncodedBytesIO()))
            second = asyncio.create_task(bench.fetcher.fetch_image_async(url, EncodedBytesIO()))
            await asyncio.to_thread(wait_until_waiting, bench.fetcher, 2)
            first.cancel()
            await asyncio.gather(first, return_exceptions=True)
            bench.connector.is_held = False
            return (await second).data

        assert asyncio.run(leave_one()) == PAYLOAD
        assert bench.connector.num_cancelled == (0 if bench.connector.is_shared else 1)

    def test_13_last_one_to_leave_cancels_the_fetch(self, bench: Bench, source: ConnectorSource) -> None:
        url = source.publish(PAYLOAD)

        async def leave_all() -> None:
            bench.connector.is_held = True
            tasks = [asyncio.create_task(bench.fetcher.fetch_image_async(url, EncodedBytesIO())) for _ in range(3)]
            await asyncio.to_thread(wait_until_waiting, bench.fetcher, 3)
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            await asyncio.to_thread(bench.connector.wait_for, "num_cancelled")

        asyncio.run(leave_all())
        bench.connector.is_held = False
        assert bench.fetcher.fetch_image(url, EncodedBytesIO()).data == PAYLOAD

    def test_14_spent_budget_of_one_caller_leaves_the_others_alone(self, bench: Bench, source: ConnectorSource) -> None:
        url = source.publish(PAYLOAD)
        bench.connector.is_held = True
        with ThreadPoolExecutor(2) as pool:
            poor = pool.submit(bench.fetcher.fetch_image, url, EncodedBytesIO(), budget=make_budget(len(PAYLOAD) - 1))
            rich = pool.submit(bench.fetcher.fetch_image, url, EncodedBytesIO(), budget=make_budget())
            wait_until_waiting(bench.fetcher, 2)
            bench.connector.is_held = False
            assert rich.result(WAIT_SECONDS).data == PAYLOAD
            with pytest.raises(TooLargeError):
                poor.result(WAIT_SECONDS)

    def test_15_first_failing_item_of_a_request_cancels_the_others(self, bench: Bench, source: ConnectorSource) -> None:
        items = [
            FetchItem(source.publish(PAYLOAD), (EncodedAudioIO(),)),
            FetchItem(source.publish(PAYLOAD), (EncodedBytesIO(),)),
            FetchItem("http://user:secret@host/", (EncodedBytesIO(),)),
        ]
        bench.connector.is_held = True
        with pytest.raises(MediaPolicyError) as caught:
            asyncio.run(asyncio.wait_for(bench.fetcher.fetch_all_async(items), WAIT_SECONDS))
        assert (caught.value.modality, caught.value.item_index) == ("image", 1)
        bench.connector.is_held = False

    def test_16_items_of_a_request_come_back_in_order(self, bench: Bench, source: ConnectorSource) -> None:
        payloads = [bytes([65 + number]) * 10 for number in range(8)]
        items = [FetchItem(source.publish(data), (EncodedBytesIO(), EncodedAudioIO())) for data in payloads]
        refs = asyncio.run(bench.fetcher.fetch_all_async(items))
        assert [(image.data, audio.data) for image, audio in refs] == [(data, data) for data in payloads]

    def test_17_host_allow_list_holds(self, source: ConnectorSource) -> None:
        url = source.publish(PAYLOAD)
        parsed = MediaUrl.parse(url)
        if parsed.scheme in ("data", "file"):
            pytest.skip("the URLs of this scheme lead nowhere else")
        name = f"{parsed.scheme}:" if parsed.host is None else f"{parsed.host}."
        with self.make_bench(source, allowed_media_domains=("elsewhere.example",)) as (fetcher, connector):
            with pytest.raises(MediaPolicyError, match="--allowed-media-domains"):
                fetcher.fetch_image(url, EncodedBytesIO())
            assert connector.num_opens == 0
        with self.make_bench(source, allowed_media_domains=("elsewhere.example", name.upper())) as (fetcher, connector):
            assert fetcher.fetch_image(url, EncodedBytesIO()).data == PAYLOAD

    def test_18_what_is_missing_is_said_without_secrets(self, bench: Bench, source: ConnectorSource) -> None:
        url = source.make_missing_url()
        if url is None:
            pytest.skip("nothing can be missing under this scheme")
        with pytest.raises(ClientError) as caught:
            bench.fetcher.fetch_image(url, EncodedBytesIO())
        assert caught.value.status in (400, 422)
        assert SECRET not in str(caught.value)

    def test_19_every_stream_is_closed(self, bench: Bench, source: ConnectorSource) -> None:
        url = source.publish(PAYLOAD)
        bench.fetcher.fetch_image(url, EncodedBytesIO())
        assert (bench.connector.num_opens, bench.connector.num_streams_closed) == (1, 1)
        with pytest.raises(TooLargeError):
            bench.fetcher.fetch_image(url, EncodedBytesIO(max_bytes=1))
        assert bench.connector.num_opens - bench.connector.num_streams_closed in (0, 1)  # one that refuses early opens no stream

    def test_20_connector_is_opened_and_closed_once(self, source: ConnectorSource) -> None:
        with self.make_bench(source) as (fetcher, connector):
            assert connector.num_opened == 0, "it opens on first use"
            with ThreadPoolExecutor(4) as pool:
                refs = pool.map(lambda url: fetcher.fetch_image(url, EncodedBytesIO()), [source.publish(PAYLOAD) for _ in range(8)])
                assert {ref.data for ref in refs} == {PAYLOAD}
            fetcher.close()
        assert (connector.num_opened, connector.num_closed) == (1, 1)

    @pytest.mark.parametrize("target", ["file:///etc/hostname", "data:,x", "http://10.0.0.1/", "http://[::ffff:7f00:1]/", "//user@host/"])
    def test_21_redirects_lead_nowhere_that_is_not_allowed(self, bench: Bench, source: ConnectorSource, target: str) -> None:
        url = source.publish_redirect(target)
        if url is None:
            pytest.skip("this connector follows no redirects")
        with pytest.raises(MediaPolicyError):
            bench.fetcher.fetch_image(url, EncodedBytesIO())

    def test_22_an_empty_item_is_an_error(self, bench: Bench, source: ConnectorSource) -> None:
        with pytest.raises(MediaFetchError, match="empty"):
            bench.fetcher.fetch_image(source.publish(b""), EncodedBytesIO())
