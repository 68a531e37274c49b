"""What passes between processes arrives as it was sent, without pickle."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as stn

from inset.engine.messages import (
    AbortRequests,
    AddRequests,
    CacheMessage,
    CacheMissed,
    DiscardCommit,
    EngineStats,
    Heartbeat,
    ItemsReset,
    Reset,
    ResetDone,
    ResetItems,
    StepDone,
)
from inset.engine.wire import decode_frames, encode_frames, known_classes
from inset.errors import InvariantError
from inset.inputs import EngineRequest, ItemPlan, MultiModalFeature, PlaceholderRange
from inset.outputs import EngineOutput
from inset.sampling_params import SamplingParams
from inset.step import RequestFailure, TokenLogprobs


def there_and_back(value: Any) -> Any:
    return decode_frames([bytes(frame) for frame in encode_frames(value)])


def request() -> EngineRequest:
    placeholder = PlaceholderRange(3, 7, ((1, 3), (4, 6)))
    plan = ItemPlan(num_tokens=7, num_embeds=4, is_embed=((1, 3), (4, 6)), grid=(1, 2, 2), details={"sizes": (3, 4), "scale": 0.5})
    feature = MultiModalFeature(
        modality="image", item_index=0, mm_hash=b"\x00" * 32, placeholder=placeholder, data=None, handle=(1, 5, b"x"), plan=plan
    )
    return EngineRequest(
        request_id="a",
        prompt_token_ids=tuple(range(20)),
        mm_features=(feature,),
        sampling_params=SamplingParams(temperature=0, logit_bias={5: 1.5}, stop=("x",), seed=2**63),
        eos_token_ids=(1, 2),
        cache_salt="salt",
    )


@pytest.mark.parametrize(
    "message",
    [
        AddRequests("c", (request(),)),
        AbortRequests(("a", "b")),
        Reset("prefix_cache", "r"),
        ItemsReset("r"),
        ResetItems("r"),
        ResetDone("r"),
        Heartbeat(2**40, EngineStats(num_waiting=3)),
        DiscardCommit("c"),
        CacheMissed("c", ((b"h" * 32, 3),)),
        StepDone(
            (
                EngineOutput(request_id="a", new_token_ids=(5,), logprobs=(TokenLogprobs(5, -0.5, ((5, -0.5), (6, -1.0))),)),
                EngineOutput(request_id="b", finish_reason="error", failure=RequestFailure("no", "image", 1)),
            ),
            EngineStats(num_running=1, values={"blocks": 3.0}),
        ),
    ],
)
def test_messages_arrive_equal_and_masks_survive(message: Any) -> None:
    assert there_and_back(message) == message


def test_what_all_answers_share_travels_once() -> None:
    array = np.arange(100)
    feature = dataclasses.replace(request().mm_features[0], data={"x": array})
    first = dataclasses.replace(request(), mm_features=(feature,), prompt_token_ids=list(range(1000)))
    message = AddRequests("c", [dataclasses.replace(first, request_id=str(index)) for index in range(8)])
    frames = encode_frames(message)
    assert len(frames) == 2
    back = decode_frames(frames)
    assert [(item.request_id, item.prompt_token_ids) for item in back.requests] == [(str(index), tuple(range(1000))) for index in range(8)]
    assert all(np.array_equal(item.mm_features[0].data["x"], array) for item in back.requests)


@given(
    stn.arrays(
        st.sampled_from([np.uint8, np.int64, np.float32, np.float16, np.bool_]), stn.array_shapes(min_dims=0, min_side=0, max_dims=4)
    )
)
def test_arrays_arrive_bit_for_bit_and_read_only(array: np.ndarray[Any, Any]) -> None:
    back = there_and_back(CacheMessage({"x": array, "other": [1, "a", b"b", None, array]})).message
    assert back["x"].dtype == array.dtype
    assert back["x"].shape == array.shape
    assert back["x"].tobytes() == array.tobytes()
    assert not back["x"].flags.writeable
    assert back["other"][4].tobytes() == array.tobytes()


def test_arrays_that_are_not_contiguous_arrive_as_they_look() -> None:
    array = np.arange(24, dtype=np.int32).reshape(4, 6)[:, ::2].T
    assert (there_and_back(array) == array).all()


def test_arrays_are_sent_without_a_copy() -> None:
    array = np.zeros((64, 64), np.uint8)
    frame = encode_frames(CacheMessage(array))[1]
    array[0, 0] = 7
    assert bytes(frame)[0] == 7


@pytest.mark.parametrize("value", [object(), CacheMessage({1, 2}), CacheMessage(lambda: None), Exception("x")])
def test_what_is_not_a_value_may_not_travel(value: Any) -> None:
    with pytest.raises(InvariantError, match="cannot travel"):
        encode_frames(value)


@pytest.mark.parametrize("frames", [[b""], [b"\xc1"], [b"\x93\x01\xa4Evil\x90"], [b"\x94\x02\xa2|u\x91\x01\x05"]])
def test_frames_of_others_are_refused(frames: list[bytes]) -> None:
    with pytest.raises(InvariantError, match="cannot be read"):
        decode_frames(frames)


def test_every_class_that_travels_is_a_frozen_value() -> None:
    for cls in known_classes().values():
        assert dataclasses.is_dataclass(cls)
        assert cls.__dataclass_params__.frozen  # type: ignore[attr-defined]
