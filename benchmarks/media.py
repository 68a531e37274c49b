"""How long media take to probe, name and decode, beside plain Pillow, PyAV and soundfile: ``python -m benchmarks.media``.

Each figure is the least of several rounds, in milliseconds of CPU time of all threads, which hold on a busy machine too; those of
fetching are times on the clock. A ratio below 1 means that Inset takes less than the plain library.
"""

from __future__ import annotations

import argparse
import base64
import io
import time
from collections.abc import Callable, Mapping, Set
from functools import partial
from typing import Any

import av
import numpy as np
import soundfile
from PIL import Image

from inset.config import MediaConfig
from inset.media.audio import AudioIO
from inset.media.fetcher import MediaFetcher
from inset.media.image import ImageIO
from inset.media.io import MediaIO
from inset.media.video import VideoIO
from inset.plugins import get_default_host
from inset.testing.media_server import MediaServer
from inset.testing.sample_clips import encode_sound, encode_sound_track, make_tone, make_video
from inset.testing.sample_images import encode_image

CONFIG = MediaConfig(allow_private_media_hosts=("127.0.0.1",))
SIZES = ((640, 480), (1280, 720), (4000, 3000))
IMAGES: Mapping[str, Mapping[str, int]] = {
    "JPEG": {"quality": 90},
    "PNG": {"compress_level": 1},
    "WEBP": {"quality": 80, "method": 0},
    "AVIF": {"quality": 60, "speed": 10},
    "GIF": {},
    "BMP": {},
}
VIDEO_SECONDS, VIDEO_FPS, SPARSE_FRAMES, DENSE_FRAMES = 60, 30, 8, 300


def least_ms(work: Callable[[], object], rounds: int, *, clock: Callable[[], float] = time.process_time) -> float:
    """Returns the least time of several calls by a clock, in milliseconds."""
    times = []
    for _ in range(rounds):
        started = clock()
        work()
        times.append(clock() - started)
    return min(times) * 1000


def photograph(width: int, height: int) -> Image.Image:
    """Returns a smooth picture with some noise, which compresses about as a photograph does."""
    random = np.random.default_rng(0)
    coarse = Image.fromarray(random.integers(0, 255, (height // 16 + 1, width // 16 + 1, 3), dtype=np.uint8))
    smooth = np.asarray(coarse.resize((width, height), Image.Resampling.BICUBIC), dtype=np.int16)
    return Image.fromarray(np.clip(smooth + random.integers(-6, 7, smooth.shape, dtype=np.int16), 0, 255).astype(np.uint8))


def print_row(name: str, media_io: MediaIO[Any], data: bytes, plain: Callable[[], object], rounds: int) -> None:
    """Measures one item and prints its line."""
    header = media_io.probe(data)
    probe = least_ms(lambda: media_io.probe(data), max(rounds, 20))
    named = least_ms(lambda: media_io.load_bytes_ref(data), max(rounds, 20))
    decode = plainly = float("inf")
    for _ in range(rounds):  # in turns, so that a busy neighbour slows down both
        decode = min(decode, least_ms(lambda: media_io.load_bytes(data, header), 1))
        plainly = min(plainly, least_ms(plain, 1))
    print(f"{name:28}{len(data) / 1e6:9.2f}{probe:9.3f}{max(0.0, named - probe):9.3f}{decode:10.2f}{plainly:10.2f}{decode / plainly:8.2f}")


def print_head(title: str, plain: str) -> None:
    """Prints the head of a table."""
    print(f"\n{title:28}{'MB':>9}{'probe':>9}{'hash':>9}{'decode':>10}{plain:>10}{'ratio':>8}")


def measure_images(rounds: int) -> None:
    """Prints images per format and size."""
    print_head("image", "Pillow")
    media_io = ImageIO({}, CONFIG)
    for width, height in SIZES:
        picture = photograph(width, height)
        for name, options in IMAGES.items():
            data = encode_image(picture, name, **options)

            def plain(data: bytes = data) -> object:
                return np.array(Image.open(io.BytesIO(data)).convert("RGB"))

            print_row(f"{name} {width}x{height}", media_io, data, plain, rounds)


def measure_videos(rounds: int) -> None:
    """Prints sparse and dense samples of a minute of video, beside decoding everything and converting the same frames."""
    print_head(f"video, {VIDEO_SECONDS} s, 640x360", "PyAV all")
    for keyframe_every in (30, 250, 1_000_000):
        data = make_video(
            VIDEO_SECONDS * VIDEO_FPS,
            codec="libx264",
            width=640,
            height=360,
            keyframe_every=keyframe_every,
            options={"preset": "veryfast", "x264-params": f"keyint={keyframe_every}:min-keyint={keyframe_every}:scenecut=0"},
        )
        for num_frames in (SPARSE_FRAMES, DENSE_FRAMES):
            media_io = VideoIO({"num_frames": num_frames}, CONFIG)
            distance = "one keyframe" if keyframe_every > 1000 else f"keyframe/{keyframe_every}"
            chosen = set(media_io.probe(data).frame_indices)
            print_row(f"{num_frames} frames, {distance}", media_io, data, partial(decode_all, data, chosen), rounds)


def decode_all(data: bytes, chosen: Set[int]) -> list[object]:
    """Decodes every frame with PyAV alone and converts the chosen ones."""
    with av.open(io.BytesIO(data)) as container:
        return [frame.to_ndarray(format="rgb24") for index, frame in enumerate(container.decode(video=0)) if index in chosen]


def read_sound(data: bytes) -> object:
    """Reads samples with soundfile alone."""
    return soundfile.read(io.BytesIO(data), dtype="float32")


def measure_audio(rounds: int) -> None:
    """Prints a minute of stereo sound per format, beside soundfile, or PyAV where that cannot read it."""
    print_head("audio, 60 s, stereo", "plain")
    tone = make_tone(60 * 48_000, num_channels=2, sampling_rate=48_000)
    media_io = AudioIO({}, CONFIG)
    for name in ("WAV", "FLAC", "OGG"):
        data = encode_sound(tone, name, sampling_rate=48_000)
        print_row(name, media_io, data, partial(read_sound, data), rounds)
    data = encode_sound_track(tone, container="mp4", codec="aac", sampling_rate=48_000)

    def plain() -> object:
        with av.open(io.BytesIO(data)) as container:
            return [frame.to_ndarray() for frame in container.decode(audio=0)]

    print_row("AAC in MP4", media_io, data, plain, rounds)


def measure_fetch(rounds: int) -> None:
    """Prints what fetching adds to naming, for a data: URL and for HTTP on the loopback interface."""
    data = encode_image(photograph(1280, 720), "JPEG", quality=90)
    media_io = ImageIO({}, CONFIG)
    inline = "data:image/jpeg;base64," + base64.b64encode(data).decode()
    named = least_ms(lambda: media_io.load_bytes_ref(data), rounds * 5, clock=time.perf_counter)
    registry = get_default_host().registries.media_connectors
    with MediaFetcher.build(registry, CONFIG) as fetcher, MediaServer() as server:
        picture = server.serve("/picture.jpg", data)
        print(f"\nfetch of a 720p JPEG, {len(data) / 1e6:.2f} MB")
        for name, url in (("data: URL", inline), ("http, loopback", picture)):
            fetched = least_ms(partial(fetcher.fetch_image, url, media_io), rounds * 5, clock=time.perf_counter)
            print(f"{name:28}{fetched:9.2f} ms, of which naming {named:.2f} ms")


def main() -> None:
    """Measures and prints."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--only", choices=("images", "videos", "audio", "fetch"))
    args = parser.parse_args()
    for name, measure in {"images": measure_images, "videos": measure_videos, "audio": measure_audio, "fetch": measure_fetch}.items():
        if args.only in (None, name):
            measure(args.rounds)


if __name__ == "__main__":
    main()
