"""Which frames are sampled: held against transformers' own arithmetic, and against real files."""

from __future__ import annotations

import random
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from inset.config import MediaConfig
from inset.errors import ConfigError, InvalidRequestError
from inset.media.sampling import VideoFacts
from inset_qwen_vl.config import SamplingConfig
from inset_qwen_vl.media import Qwen2VLSampler, Qwen3VLSampler, video_io_factory

TakeFunction = Callable[[str, str], Any]
MakeCheckpoint = Callable[..., Any]


def facts(num_frames: int, fps: float) -> VideoFacts:
    return VideoFacts(
        num_frames=num_frames,
        fps=fps,
        duration_seconds=num_frames / fps,
        width=8,
        height=8,
        timestamps_seconds=[index / fps for index in range(num_frames)],
    )


def theirs(config: SamplingConfig) -> Any:
    return SimpleNamespace(
        num_frames=config.num_frames,
        fps=config.fps,
        min_frames=config.min_frames,
        max_frames=config.max_frames,
        temporal_patch_size=config.temporal_patch_size,
    )


def random_case(rng: random.Random) -> tuple[SamplingConfig, VideoFacts]:
    num_frames = rng.choice([rng.randint(4, 40), rng.randint(4, 3000)])
    low = rng.randint(2, 9)
    config = SamplingConfig(
        fps=rng.choice([0.5, 1.0, 2.0, 2.0, 3.7, 30.0]), min_frames=low, max_frames=rng.choice([low, low + 1, 32, 33, 768])
    )
    return config, facts(num_frames, rng.choice([0.3, 1.0, 12.5, 24.0, 29.97, 30000 / 1001, 60.0]))


def test_second_generation_frames_equal_those_of_transformers(take_function: TakeFunction) -> None:
    sample_frames = take_function("Qwen2VLVideoProcessor", "sample_frames")
    rng = random.Random(1)
    for _ in range(3000):
        config, video = random_case(rng)
        metadata = SimpleNamespace(total_num_frames=video.num_frames, fps=video.fps)
        expected = sample_frames(theirs(config), metadata).tolist()
        own = Qwen2VLSampler(config).sample(video)
        assert list(own) == [index for index in expected if index < video.num_frames], (config, video)
        assert len(own) % 2 == 0
        count = rng.randint(2, video.num_frames)
        if round(count / 2) * 2 > video.num_frames:
            continue
        expected = sample_frames(theirs(SamplingConfig()), metadata, num_frames=count).tolist() if count else []
        own = Qwen2VLSampler(SamplingConfig(num_frames=count)).sample(video)
        assert list(own) == [index for index in expected if index < video.num_frames], (count, video)
        assert len(own) == round(count / 2) * 2


def test_third_generation_frames_equal_those_of_transformers(take_function: TakeFunction) -> None:
    sample_frames = take_function("Qwen3VLVideoProcessor", "sample_frames")
    rng = random.Random(2)
    for _ in range(3000):
        config, video = random_case(rng)
        metadata = SimpleNamespace(total_num_frames=video.num_frames, fps=video.fps)
        assert list(Qwen3VLSampler(config).sample(video)) == sample_frames(theirs(config), metadata).tolist(), (config, video)
        count = rng.randint(1, 2 * video.num_frames)
        self = SimpleNamespace(fps=None, min_frames=4, max_frames=768)
        own = Qwen3VLSampler(SamplingConfig(num_frames=count)).sample(video)
        assert list(own) == sample_frames(self, metadata, num_frames=count).tolist()


@pytest.mark.parametrize(
    ("num_frames", "fps", "config", "expected"),
    [
        (93, 30.0, SamplingConfig(), [0, 15, 31, 46, 62, 77]),
        (1, 30.0, SamplingConfig(), [0]),
        (2, 30.0, SamplingConfig(), [0, 1]),
        (3, 30.0, SamplingConfig(), [0, 1]),
        (5, 30.0, SamplingConfig(), [0, 1, 2, 3]),
        (8, 1.0, SamplingConfig(), [0, 1, 2, 3, 4, 5, 6, 7]),
        (100, 10.0, SamplingConfig(max_frames=4), [0, 25, 50, 75]),
        (100, 10.0, SamplingConfig(max_frames=5), [0, 25, 50, 75]),
        (3, 10.0, SamplingConfig(num_frames=8), [0, 1, 2]),
        (9, 10.0, SamplingConfig(num_frames=1), [0, 4]),
    ],
)
def test_second_generation_frames_of_known_videos(num_frames: int, fps: float, config: SamplingConfig, expected: list[int]) -> None:
    assert list(Qwen2VLSampler(config).sample(facts(num_frames, fps))) == expected


@pytest.mark.parametrize(
    ("num_frames", "fps", "config", "expected"),
    [
        (93, 30.0, SamplingConfig(), [0, 18, 37, 55, 74, 92]),
        (1, 30.0, SamplingConfig(), [0]),
        (3, 30.0, SamplingConfig(), [0, 1, 2]),
        (5, 30.0, SamplingConfig(), [0, 1, 3, 4]),
        (100, 10.0, SamplingConfig(max_frames=4), [0, 33, 66, 99]),
        (9, 10.0, SamplingConfig(num_frames=3), [0, 4, 8]),
        (9, 10.0, SamplingConfig(num_frames=1), [0]),
    ],
)
def test_third_generation_frames_of_known_videos(num_frames: int, fps: float, config: SamplingConfig, expected: list[int]) -> None:
    assert list(Qwen3VLSampler(config).sample(facts(num_frames, fps))) == expected


@pytest.mark.parametrize("sampler", [Qwen2VLSampler, Qwen3VLSampler])
def test_a_rate_beyond_all_numbers_takes_every_frame(sampler: Any) -> None:
    assert list(sampler(SamplingConfig(fps=1e308)).sample(facts(8, 0.1))) == list(range(8))


def settings(checkpoint: Any, options: dict[str, Any]) -> dict[str, Any]:
    spec: Any = video_io_factory(checkpoint)(options, MediaConfig()).get_decode_spec().settings
    return {"sampler": spec["sampler"], **spec["sampler_settings"]}


@pytest.mark.parametrize(("family", "name"), [("qwen2_vl", "qwen2_vl"), ("qwen2_5_vl", "qwen2_vl"), ("qwen3_vl", "qwen3_vl")])
def test_the_checkpoints_own_sampling_is_the_default_and_options_win(make_checkpoint: MakeCheckpoint, family: str, name: str) -> None:
    patch_size = 16 if family == "qwen3_vl" else 14
    checkpoint = make_checkpoint(family, video={"fps": 3, "min_frames": 6, "max_frames": 100, "patch_size": patch_size})
    default = settings(checkpoint, {})
    assert default == {"sampler": name, "fps": 3, "num_frames": None, "min_frames": 6, "max_frames": 100, "temporal_patch_size": 2}
    assert settings(checkpoint, {"fps": 1, "max_frames": 8}) == {**default, "fps": 1.0, "max_frames": 8}
    assert settings(checkpoint, {"num_frames": 12}) == {**default, "num_frames": 12}
    assert settings(checkpoint, {"max_frames": 2})["min_frames"] == 2
    assert settings(checkpoint, {"min_frames": 300})["max_frames"] == 300
    fixed = make_checkpoint(family, video={"num_frames": 5, "patch_size": patch_size})
    assert settings(fixed, {})["num_frames"] == 5
    assert settings(fixed, {"fps": 1})["num_frames"] is None


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"num_frames": 0}, "num_frames must be at least 1"),
        ({"fps": 0}, "fps must be a number above 0"),
        ({"fps": 2, "num_frames": 4}, "left out where fps is given"),
        ({"min_frames": 9, "max_frames": 4}, "at most max_frames, which is 4"),
        ({"frames": 9}, "frames"),
    ],
)
def test_wrong_decode_options_are_refused_by_name(make_checkpoint: MakeCheckpoint, options: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidRequestError, match=message):
        video_io_factory(make_checkpoint())(options, MediaConfig())


def test_a_config_that_cannot_be_sampled_by_is_refused_at_start(make_checkpoint: MakeCheckpoint) -> None:
    with pytest.raises(ConfigError, match="cannot be sampled"):
        video_io_factory(make_checkpoint(video={"fps": -1}))
