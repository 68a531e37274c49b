"""Fixtures of the processing tests: a byte-level tokenizer, and a tiny model family that counts its work."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tokenizers

from inset.cache.base import ProcessorCacheFront
from inset.cache.lru import LruCacheFront
from inset.cache.processor_only import ProcessorOnlyCacheFront
from inset.cache.shm import ShmCacheFront
from inset.checkpoint import Checkpoint
from inset.config import MediaConfig
from inset.errors import InvalidRequestError
from inset.identity import JSON
from inset.inputs import ItemPlan, ItemTensors, MediaIOFactory, runs_from_mask
from inset.media.decoded import ImagePixels, VideoFrames
from inset.media.executor import MediaExecutor
from inset.media.header import MediaHeader
from inset.media.image import ImageIO
from inset.processing.info import ProcessingContext, ProcessingInfo
from inset.processing.processor import MultiModalProcessor
from inset.processing.prompt_updates import PlaceholderContent, PromptReplacement, PromptUpdate
from inset.processing.tokenizer import Tokenizer
from inset.testing.sample_images import encode_image, make_pixels

SPECIAL = ("<s>", "</s>", "<image>", "<|im_start|>", "<|im_end|>", "<|pad|>", "<video>")
NON_SPECIAL = ("<tool_call>", "</tool_call>")
TIME_LIMIT_SECONDS = 30.0


def make_byte_level_json() -> str:
    """Returns the tokenizer.json of a small byte-level BPE with special and non-special added tokens."""
    tokenizer = tokenizers.Tokenizer(tokenizers.models.BPE())
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = tokenizers.decoders.ByteLevel()
    trainer = tokenizers.trainers.BpeTrainer(
        vocab_size=400, initial_alphabet=tokenizers.pre_tokenizers.ByteLevel.alphabet(), show_progress=False
    )
    tokenizer.train_from_iterator(["what is in the image ? a red square on a blue ground . user assistant system"] * 4, trainer)
    tokenizer.add_special_tokens(list(SPECIAL))
    tokenizer.add_tokens([tokenizers.AddedToken(text, special=False, normalized=False) for text in NON_SPECIAL])
    tokenizer.post_processor = tokenizers.processors.TemplateProcessing(
        single="<s> $A", special_tokens=[("<s>", tokenizer.token_to_id("<s>"))]
    )
    return str(tokenizer.to_str())


@pytest.fixture(scope="session")
def tokenizer_json() -> str:
    return make_byte_level_json()


@pytest.fixture(scope="session")
def tokenizer(tokenizer_json: str) -> Tokenizer:
    named = {"bos_token": "<s>", "eos_token": "</s>"}
    end = json.loads(tokenizer_json)["added_tokens"][1]["id"]
    return Tokenizer(tokenizer_json, eos_token_ids=[end], named_tokens=named)


class TinyInfo(ProcessingInfo):
    """Images and videos, at most three videos."""

    def get_supported_mm_limits(self) -> Mapping[str, int | None]:
        return {"image": None, "video": 3}

    def get_placeholder_text(self, modality: str, item_index: int) -> str:
        return f"<{modality}>"

    def max_tokens_per_item(self, modality: str) -> int:
        return 1000

    def processor_options(self, modality: str) -> frozenset[str]:
        return frozenset({"bright", "rows"}) if modality == "image" else frozenset({"rows"})


class Work:
    """Counts decodes and materialisations, and can hold a decode until it may go on."""

    def __init__(self) -> None:
        self.num_decodes = 0
        self.num_materialised = 0
        self.entered = threading.Event()
        self.may_go_on = threading.Event()
        self.may_go_on.set()
        self.lock = threading.Lock()

    def decode(self) -> None:
        with self.lock:
            self.num_decodes += 1
        self.entered.set()
        assert self.may_go_on.wait(TIME_LIMIT_SECONDS)


class TinyProcessor(MultiModalProcessor):
    """One embed per 8 columns of pixels, and a separator behind each row of embeds; a video has one row per frame."""

    work: Work

    def plan(self, modality: str, header: MediaHeader, *, options: Mapping[str, JSON]) -> ItemPlan:
        assert header.width is not None
        rows = options.get("rows", header.num_frames or 1)
        if not isinstance(rows, int) or rows < 1:
            raise InvalidRequestError(f"rows must be at least 1, not {rows!r}.")
        columns = -(-header.width // 8)
        mask = ([True] * columns + [False]) * rows
        return ItemPlan(
            num_tokens=len(mask),
            num_embeds=columns * rows,
            is_embed=runs_from_mask(mask),
            grid=(1, rows, columns),
            tensor_bytes=header.decoded_bytes,
            peak_bytes=2 * header.decoded_bytes,
            is_exact=modality == "image",
        )

    def prompt_updates(self, plans: Mapping[str, Sequence[ItemPlan]]) -> Sequence[PromptUpdate]:
        tokenizer = self.info.tokenizer
        separator = tokenizer.token_to_id("<|pad|>") or 0
        updates: list[PromptUpdate] = []
        for modality, modality_plans in plans.items():
            token = tokenizer.token_to_id(f"<{modality}>") or 0
            contents = []
            for plan in modality_plans:
                tokens = [separator] * plan.num_tokens
                for start, stop in plan.is_embed or ((0, plan.num_tokens),):
                    tokens[start:stop] = [token] * (stop - start)
                contents.append(PlaceholderContent(tokens, plan.is_embed))
            updates.append(PromptReplacement(modality=modality, target=[token], contents=contents))
        return updates

    def materialize(self, modality: str, decoded: ImagePixels | VideoFrames, *, plan: ItemPlan, options: Mapping[str, JSON]) -> ItemTensors:
        with self.work.lock:
            self.work.num_materialised += 1
        pixels = decoded.frames if isinstance(decoded, VideoFrames) else decoded
        if options.get("bright") == "fail":
            raise ZeroDivisionError("a mistake of the family")
        return {"pixel_values": np.array(pixels)}


@pytest.fixture
def work() -> Work:
    return Work()


@pytest.fixture
def pool() -> Iterator[MediaExecutor]:
    with MediaExecutor(image_threads=4, video_threads=1) as executor:
        yield executor


@pytest.fixture
def image_io(work: Work) -> MediaIOFactory:
    """The core's own image decoder; counts what it decodes."""

    class CountingImageIO(ImageIO):
        def load_bytes(self, data: bytes, header: MediaHeader | None = None) -> ImagePixels:
            work.decode()
            return super().load_bytes(data, header)

    return CountingImageIO


MakeProcessor = Callable[..., MultiModalProcessor]


@pytest.fixture
def make_processor(tokenizer: Tokenizer, pool: MediaExecutor, work: Work, image_io: MediaIOFactory) -> MakeProcessor:
    """Builds the tiny family's processor; keyword arguments go into its context."""

    def make(cache: ProcessorCacheFront | None = None, **context: Any) -> MultiModalProcessor:
        checkpoint = Checkpoint(Path(), {"model_type": "tiny", "text_config": {"hidden_size": 4}})
        fields: dict[str, Any] = {
            "checkpoint": checkpoint,
            "tokenizer": tokenizer,
            "media_io_factories": {"image": image_io},
            "media_config": MediaConfig(),
            **context,
        }
        processor = TinyProcessor(TinyInfo(ProcessingContext(**fields)), pool=pool, cache=cache)
        processor.work = work
        return processor

    return make


@pytest.fixture
def png() -> Callable[..., bytes]:
    """Makes an encoded picture; other seeds give other pixels of the same size."""

    def make(width: int = 16, height: int = 8, seed: int = 0) -> bytes:
        pixels = make_pixels(width, height)
        pixels[0, 0] = (seed % 256, seed // 256, 7)
        return encode_image(pixels, "PNG")

    return make


@pytest.fixture(params=[LruCacheFront, ProcessorOnlyCacheFront, ShmCacheFront])
def cache(request: pytest.FixtureRequest) -> Iterator[ProcessorCacheFront]:
    """The front half of each type of cache, a MiB large."""
    front: ProcessorCacheFront = request.param(capacity_bytes=1024**2)
    yield front
    front.close()
