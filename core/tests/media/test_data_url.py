from __future__ import annotations

import asyncio
import base64
import binascii
import random
from collections.abc import Iterator

import pytest

from inset.config import MediaConfig
from inset.errors import MediaFetchError, TooLargeError
from inset.media.connector import MediaConnector
from inset.media.data_url import FRAMES_IN_A_ROW, SLICE_CHARACTERS, DataUrlConnector, iter_base64
from inset.media.fetcher import MediaFetcher
from inset.media.frame_list import pack_frames
from inset.media.stream import FetchLimits
from inset.media.url import MediaUrl
from inset.media.video import VideoIO
from inset.testing.conformance.connector import ConnectorConformance, ConnectorSource
from inset.testing.media_io import EncodedBytesIO, EncodedVideoIO
from inset.testing.sample_images import encode_image, make_pixels


class DataSource(ConnectorSource):
    def make_connector(self) -> MediaConnector:
        return DataUrlConnector()

    def publish(self, data: bytes) -> str:
        return "data:application/octet-stream;base64," + base64.b64encode(data).decode()


class TestConformance(ConnectorConformance):
    @pytest.fixture
    def source(self) -> DataSource:
        return DataSource()


@pytest.fixture
def fetcher() -> Iterator[MediaFetcher]:
    with MediaFetcher([DataUrlConnector()], MediaConfig()) as fetcher:
        yield fetcher


def read(fetcher: MediaFetcher, url: str) -> bytes:
    return fetcher.fetch_image(url, EncodedBytesIO()).data


@pytest.mark.parametrize(
    "url",
    [
        "data:image/png;base64,aGVsbG8=",
        "DATA:image/png;BASE64,aGVsbG8=",
        "data:image/png;charset=utf-8;base64,aGVsbG8=",
        'data:image/png;name="a b.png";x=1;Base64 ,aGVsbG8=',
        "data:;base64,aGVsbG8=",
        "data:image/png;base64,aGVsbG8",
        "data:image/png;base64, aGVs\r\nbG8=\n",
        "data:image/png;base64,a G\tV s\fb\vG 8",
        "data:image/png;base64,aGVsbG8 =",
        "data:text/html;base64,aGVsbG8=",
    ],
)
def test_spellings_that_clients_use_are_read(fetcher: MediaFetcher, url: str) -> None:
    assert read(fetcher, url) == b"hello"


@pytest.mark.parametrize("text", ["aGVsbG8h", "aGVsbG8", "aGVsbA"])
def test_missing_padding_is_repaired(fetcher: MediaFetcher, text: str) -> None:
    assert read(fetcher, f"data:;base64,{text}") == base64.b64decode(text + "=" * (-len(text) % 4))


@pytest.mark.parametrize(
    "url",
    [
        "data:image/png;base64,aGVsbG8==",
        "data:image/png;base64,aGVsbG8h=",
        "data:image/png;base64,aGVsbG8h====",
        "data:image/png;base64,aGVs=bG8=",
        "data:image/png;base64,aGVsbG8=aGVs",
        "data:image/png;base64,=",
        "data:image/png;base64,====",
        "data:image/png;base64,a",
        "data:image/png;base64,aGVsbG8ha",
        "data:image/png;base64,aGVs*G8=",
        "data:image/png;base64,_-_-",
        "data:image/png;base64,aGVsbG8%3D",
        "data:image/png;base64,aGVs\x00bG8=",
        "data:image/png;base64,a\u00e9Vs",
        "data:image/png;base64,aGVs,bG8=",
        "data:image/png;base64,\uff41GVs",
    ],
)
def test_what_is_not_base64_is_refused_without_being_shown(fetcher: MediaFetcher, url: str) -> None:
    with pytest.raises(MediaFetchError, match="not base64 of the standard alphabet") as caught:
        read(fetcher, url)
    assert "aGV" not in str(caught.value)


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("data:image/png;base64,", "^data: the answer is empty"),
        ("data:image/png;base64, \n", "empty"),
        ("data:image/png;base64", "no comma"),
        ("data:", "no comma"),
        ("data:,hello", "not base64"),
        ("data:image/svg+xml,<svg/>", "not base64"),
        ("data:image/png;base64;x=1,aGVsbG8=", "not base64"),
        ("data:image/pngbase64,aGVsbG8=", "not base64"),
        ("data:" + "x" * 2000 + ";base64,aGVs", "no comma"),
    ],
)
def test_malformed_url_is_refused_with_its_reason(fetcher: MediaFetcher, url: str, words: str) -> None:
    with pytest.raises(MediaFetchError, match=words):
        read(fetcher, url)


JUNK = [" " * 6_000_000, "=" * 6_000_000, "," * 6_000_000, "%" * 6_000_000, ";base64" * 850_000, "\u2603" * 6_000_000, "A" * 6_000_001]


@pytest.mark.parametrize("junk", JUNK, ids=["white", "padding", "commas", "percent", "base64", "snow", "lone letter"])
@pytest.mark.parametrize("prefix", ["data:image/png;base64,", "data:", "data:video/jpeg;base64,"])
def test_megabytes_of_junk_are_refused(fetcher: MediaFetcher, prefix: str, junk: str) -> None:
    with pytest.raises((MediaFetchError, TooLargeError)):
        read(fetcher, prefix + junk)


@pytest.mark.parametrize("num_bytes", [SLICE_CHARACTERS * 3 // 4 + extra for extra in range(-3, 4)])
@pytest.mark.parametrize("line", [0, 76])
def test_slices_meet_without_a_seam(fetcher: MediaFetcher, num_bytes: int, line: int) -> None:
    data = random.Random(num_bytes).randbytes(num_bytes)
    text = base64.encodebytes(data).decode() if line else base64.b64encode(data).decode()
    assert read(fetcher, "data:;base64," + text) == data


def decode_strictly(letters: str) -> bytes | None:
    """Returns what the standard library gives for letters without white space; None where it refuses, or padding is too much."""
    if letters.endswith("=") and len(letters) % 4 == 1:
        return None
    try:
        return base64.b64decode(letters + "=" * (-len(letters) % 4), validate=True)
    except binascii.Error:
        return None


def test_random_texts_decode_as_the_standard_library_does() -> None:
    rng = random.Random(7)
    for _ in range(2000):
        text = "".join(rng.choices("AZaz09+/=\n ,", k=rng.randrange(12)))
        decoded: bytes | None
        try:
            decoded = b"".join(iter_base64(text, 0, len(text)))
        except MediaFetchError:
            decoded = None
        assert decoded == decode_strictly("".join(text.split())), text


def test_cap_holds_before_the_rest_is_decoded(fetcher: MediaFetcher) -> None:
    url = "data:;base64," + base64.b64encode(bytes(3_000_000)).decode() + "****"
    with pytest.raises(TooLargeError):
        fetcher.fetch_image(url, EncodedBytesIO(max_bytes=1_000_000))


@pytest.mark.parametrize(
    "url",
    ["data:;base64," + "A" * 4 * SLICE_CHARACTERS, "data:video/jpeg;base64," + ",".join(["/9g"] * 4 * FRAMES_IN_A_ROW)],
    ids=["one", "frames"],
)
def test_the_event_loop_goes_on_between_pieces(url: str) -> None:
    async def scenario() -> None:
        turns: list[int] = []
        stream = await DataUrlConnector().open(MediaUrl.parse(url), FetchLimits(timeout_seconds=1, max_bytes=1 << 30))
        num_pieces = 0
        async for _ in stream.chunks:
            assert len(turns) == num_pieces
            num_pieces += 1
            asyncio.get_running_loop().call_soon(turns.append, num_pieces)
        assert num_pieces == 4

    asyncio.run(scenario())


def test_list_of_frames_becomes_one_payload(fetcher: MediaFetcher) -> None:
    frames = [b"\xff\xd8first", b"\xff\xd8second!", b"\xff\xd8third."]
    url = "data:video/jpeg;base64," + ",".join(base64.b64encode(frame).decode().rstrip("=") for frame in frames)
    assert fetcher.fetch_video(url, EncodedVideoIO()).data == pack_frames(frames)


def test_list_of_frames_decodes_to_a_video(fetcher: MediaFetcher) -> None:
    pictures = [encode_image(make_pixels(40, 30), "JPEG")] * 150
    url = "data:video/jpeg;base64," + ",".join(base64.b64encode(picture).decode() for picture in pictures)
    ref = fetcher.fetch_video(url, VideoIO({}, MediaConfig()))
    assert ref.header.num_frames == 150
    assert ref.decode().frames.shape == (150, 30, 40, 3)


@pytest.mark.parametrize("text", ["", "/9g,", ",/9g", "/9g,,/9g", "aGVsbG8=", "/9g,aGVsbG8="])
def test_list_with_something_else_than_pictures_is_refused(fetcher: MediaFetcher, text: str) -> None:
    with pytest.raises(MediaFetchError, match="list of base64 JPEG"):
        fetcher.fetch_video("data:video/jpeg;base64," + text, EncodedVideoIO())


def test_list_of_very_many_frames_is_refused(fetcher: MediaFetcher) -> None:
    with pytest.raises(TooLargeError, match="frames"):
        fetcher.fetch_video("data:video/jpeg;base64,/9g" + ",/9g" * 100_000, EncodedVideoIO())
