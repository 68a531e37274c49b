"""Client names of items, over every type of cache: an alias for bytes that were seen, and never for others."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from inset.cache.base import ProcessorCacheFront
from inset.cache.lru import LruCacheFront
from inset.errors import InvalidRequestError, MediaDecodeError, MediaNotCachedError, UuidConflictError
from inset.processing.processor import MultiModalProcessor
from inset.testing.image_requests import finish, image_inputs

MakeProcessor = Callable[..., MultiModalProcessor]
MakePng = Callable[..., bytes]


class Uuids:
    """Requests with one picture, or none, under a uuid."""

    def __init__(self, processor: MultiModalProcessor) -> None:
        self.processor = processor

    def send(self, data: object, uuid: str = "a", **fields: Any) -> Any:
        return finish(self.processor, image_inputs([data], mm_uuids={"image": [uuid]}, **fields))


@pytest.fixture
def uuids(make_processor: MakeProcessor, cache: ProcessorCacheFront) -> Uuids:
    return Uuids(make_processor(cache))


def test_a_uuid_stands_for_bytes_that_were_seen(uuids: Uuids, png: MakePng, work: Any) -> None:
    first = uuids.send(png())
    again = uuids.send(None)
    assert again.mm_hashes == first.mm_hashes
    assert again.prompt_token_ids == first.prompt_token_ids
    assert work.num_decodes == 1


def test_a_uuid_that_is_unknown_or_somebody_elses_is_409(uuids: Uuids, png: MakePng) -> None:
    uuids.send(png(), api_key="one", cache_salt="s")
    for fields in ({}, {"api_key": "two", "cache_salt": "s"}, {"api_key": "one"}, {"api_key": "one", "cache_salt": "t"}):
        with pytest.raises(MediaNotCachedError) as caught:
            uuids.send(None, **fields)
        assert (caught.value.status, caught.value.item_index) == (409, 0)
    assert uuids.send(None, api_key="one", cache_salt="s").mm_hashes


def test_other_bytes_under_a_uuid_that_is_bound_are_400_and_never_the_old_item(uuids: Uuids, png: MakePng) -> None:
    first = uuids.send(png(seed=1))
    with pytest.raises(UuidConflictError) as caught:
        uuids.send(png(seed=2))
    assert (caught.value.status, caught.value.code, caught.value.item_index) == (400, "uuid_conflict", 0)
    assert uuids.send(None).mm_hashes == first.mm_hashes


def test_once_the_item_is_gone_the_uuid_is_409_and_free_for_other_bytes(uuids: Uuids, png: MakePng, cache: ProcessorCacheFront) -> None:
    uuids.send(png(seed=1))
    cache.reset()
    with pytest.raises(MediaNotCachedError):
        uuids.send(None)
    second = uuids.send(png(seed=2))
    assert uuids.send(None).mm_hashes == second.mm_hashes


def test_the_same_bytes_under_other_options_are_no_conflict_and_another_item(uuids: Uuids, png: MakePng) -> None:
    first = uuids.send(png())
    second = uuids.send(png(), mm_processor_kwargs={"bright": 1})
    assert first.mm_hashes != second.mm_hashes
    assert uuids.send(None, mm_processor_kwargs={"bright": 1}).mm_hashes == second.mm_hashes
    with pytest.raises(MediaNotCachedError):
        uuids.send(None, mm_processor_kwargs={"bright": 2})


def test_a_request_that_failed_binds_no_uuid(uuids: Uuids, png: MakePng) -> None:
    with pytest.raises(MediaDecodeError):
        uuids.send(png(64, 64)[:-40])
    with pytest.raises(MediaNotCachedError):
        uuids.send(None)


def test_a_uuid_list_of_another_length_is_refused(make_processor: MakeProcessor, cache: ProcessorCacheFront, png: MakePng) -> None:
    with pytest.raises(InvalidRequestError, match="uuid"):
        make_processor(cache).apply(image_inputs([png()], mm_uuids={"image": []}))


def test_a_uuid_alone_cannot_be_sent_again_once_its_item_is_gone(make_processor: MakeProcessor, png: MakePng) -> None:
    cache = LruCacheFront(capacity_bytes=1024**2)
    processor = make_processor(cache)
    uuids = Uuids(processor)
    uuids.send(png())
    with processor.apply_phase1(image_inputs([None], request_id="again", mm_uuids={"image": ["a"]})) as state:
        state.wait_decodes()
        processor.apply_phase2(state)
        cache.release("again")
        cache.reset()
        with pytest.raises(MediaNotCachedError):
            processor.restart(state)
