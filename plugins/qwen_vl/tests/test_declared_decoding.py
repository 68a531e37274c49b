"""A family may say itself how its media is decoded; here one that takes the encoded bytes of a video as they are."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, ClassVar

import numpy as np
import pytest

from inset.api import (
    JSON,
    Checkpoint,
    DecodeSpec,
    InvalidRequestError,
    ItemPlan,
    ItemTensors,
    MediaConfig,
    MediaHeader,
    MediaIO,
    MultiModalProcessor,
    PlaceholderContent,
    ProcessingContext,
    ProcessingInfo,
    PromptReplacement,
    PromptUpdate,
)
from inset.cache.base import ProcessorCacheFront
from inset.cache.processor_only import ProcessorOnlyCacheFront
from inset.media.executor import MediaExecutor
from inset.processing.inputs import ProcessorInputs
from inset.processing.tokenizer import Tokenizer
from inset.testing.sample_clips import make_video
from inset_qwen_vl.media import video_io_factory

VIDEO = 6
CLIP = make_video(3)


class RawBytesIO(MediaIO[bytes]):
    """The identity: what is decoded are the encoded bytes, in windows of `window` bytes per token."""

    modality: ClassVar[str] = "video"

    def __init__(self, options: Mapping[str, JSON], config: MediaConfig) -> None:
        super().__init__(config)
        unknown = set(options) - {"video_decode"}
        if unknown or options.get("video_decode", "raw_bytes") != "raw_bytes":
            raise InvalidRequestError(f"This family decodes videos as raw_bytes alone, not {dict(options)}.")

    def get_decode_spec(self) -> DecodeSpec:
        return DecodeSpec({"video_decode": "raw_bytes"})

    def probe(self, data: bytes) -> MediaHeader:
        return MediaHeader(modality="video", format="raw", decoded_bytes=len(data))

    def load_bytes(self, data: bytes, header: MediaHeader | None = None) -> bytes:
        return data


class RawBytesInfo(ProcessingInfo):
    def get_supported_mm_limits(self) -> Mapping[str, int | None]:
        return {"video": None}

    def get_placeholder_text(self, modality: str, item_index: int) -> str:
        return "<|video_pad|>"

    def max_tokens_per_item(self, modality: str) -> int:
        return 1000


class RawBytesProcessor(MultiModalProcessor):
    def __init__(self, info: ProcessingInfo, *, pool: MediaExecutor, cache: ProcessorCacheFront | None = None) -> None:
        super().__init__(info, pool=pool, cache=cache)
        self.seen: list[bytes] = []

    def plan(self, modality: str, header: MediaHeader, *, options: Mapping[str, JSON]) -> ItemPlan:
        count = -(-header.decoded_bytes // 256)
        return ItemPlan(num_tokens=count, num_embeds=count, tensor_bytes=header.decoded_bytes, peak_bytes=header.decoded_bytes)

    def prompt_updates(self, plans: Mapping[str, Sequence[ItemPlan]]) -> Sequence[PromptUpdate]:
        contents = [PlaceholderContent([VIDEO] * plan.num_tokens) for plan in plans["video"]]
        return [PromptReplacement(modality="video", target=[VIDEO], contents=contents)]

    def materialize(self, modality: str, decoded: bytes, *, plan: ItemPlan, options: Mapping[str, JSON]) -> ItemTensors:
        self.seen.append(decoded)
        return {"encoded": np.frombuffer(decoded, np.uint8).copy()}


@pytest.fixture(params=[False, True], ids=["no cache", "cache"])
def processor(request: pytest.FixtureRequest, make_checkpoint: Callable[..., Checkpoint]) -> Iterator[RawBytesProcessor]:
    checkpoint = make_checkpoint()
    context = ProcessingContext(
        checkpoint=checkpoint, tokenizer=Tokenizer.from_checkpoint(checkpoint), media_io_factories={"video": RawBytesIO}
    )
    with MediaExecutor(image_threads=1, video_threads=1) as pool:
        cache = ProcessorOnlyCacheFront(capacity_bytes=1 << 24) if request.param else None
        yield RawBytesProcessor(RawBytesInfo(context), pool=pool, cache=cache)
        if cache is not None:
            cache.close()


def test_the_processor_gets_the_encoded_bytes_and_a_hit_gives_the_same_as_a_miss(processor: RawBytesProcessor) -> None:
    def apply(request_id: str) -> Any:
        return processor.apply(ProcessorInputs(request_id=request_id, prompt="a<|video_pad|>b", mm_data={"video": [CLIP]}))

    first, second = apply("miss"), apply("hit")
    assert set(processor.seen) == {CLIP}
    assert len(processor.seen) == (2 if processor.cache is None else 1)
    for prompt in (first, second):
        assert prompt.mm_kwargs["video"][0]["encoded"].tobytes() == CLIP
        assert prompt.prompt_token_ids == first.prompt_token_ids
        assert prompt.mm_hashes == first.mm_hashes


def test_the_way_of_decoding_is_part_of_the_name(processor: RawBytesProcessor, make_checkpoint: Callable[..., Checkpoint]) -> None:
    raw = processor.info.get_media_io("video").load_bytes_ref(CLIP)
    sampled = video_io_factory(make_checkpoint())({}, MediaConfig()).load_bytes_ref(CLIP)
    assert raw.key != sampled.key
    assert processor.info.get_media_io("video", {"video_decode": "raw_bytes"}).load_bytes_ref(CLIP).key == raw.key


def test_an_option_that_the_declared_decoder_does_not_know_is_refused(processor: RawBytesProcessor) -> None:
    with pytest.raises(InvalidRequestError, match="raw_bytes alone"):
        processor.info.get_media_io("video", {"num_frames": 4})
