"""What callers may hand in, and that nothing of it harms the engine."""

from __future__ import annotations

import asyncio
import io
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from inset import LLM, SamplingParams
from inset.config import read_configs
from inset.engine.build import build_engine_from
from inset.engine.prompts import ChatPrompt, TextPrompt
from inset.errors import EncoderError, InvalidRequestError, ItemTooLargeError
from inset_llava.model import LlavaAdapter

GREEDY = SamplingParams(temperature=0, max_tokens=8, ignore_eos=True)
HIDDEN_SIZE = 64
NUM_EMBEDS = 16
Picture = Callable[..., Image.Image]


@pytest.fixture
def llm(make_llm: Any) -> LLM:
    made: LLM = make_llm()
    return made


def ask(*content: Any) -> list[dict[str, Any]]:
    return [{"role": "user", "content": list(content)}]


def answer(llm: LLM, prompt: Any) -> list[int]:
    outputs = llm.chat(prompt, GREEDY) if isinstance(prompt, list) else llm.generate(prompt, GREEDY)
    return outputs[0].outputs[0].token_ids


def rows(count: int = NUM_EMBEDS, seed: int = 0) -> Any:
    return np.random.default_rng(seed).normal(0, 0.1, (count, HIDDEN_SIZE)).astype(np.float32)


@pytest.mark.parametrize(
    "prompt",
    [
        {"prompt_token_ids": [10**6]},
        {"prompt_token_ids": [5, -1]},
        {"prompt_token_ids": ["a"]},
        {"prompt_token_ids": [1.5]},
        {"prompt_token_ids": 5},
        TextPrompt(prompt_token_ids=[10**6]),
        {"prompt_embeds": rows(3)[:, :8]},
        {"prompt_embeds": [[1.0]]},
        {"prompt_embeds": rows(3) * np.inf},
        {"prompt": "a", "multi_modal_data": [1]},
        {"prompt": "<image>", "multi_modal_data": {"image": rows(), "image_embeds": rows()}},
        {"prompt": "<image>", "multi_modal_data": {"image": None}},
    ],
    ids=str,
)
def test_what_the_model_cannot_read_is_refused_and_the_engine_goes_on(llm: LLM, prompt: Any) -> None:
    with pytest.raises(InvalidRequestError):
        answer(llm, prompt)
    assert answer(llm, {"prompt": "hello"})


def test_token_ids_may_come_as_any_whole_numbers(llm: LLM) -> None:
    assert answer(llm, {"prompt_token_ids": np.array([5, 6])}) == answer(llm, {"prompt_token_ids": (5, 6)})


def test_prompt_embeddings_answer_alike_in_any_type_and_as_the_only_part_of_a_chat(llm: LLM) -> None:
    given = rows(5)
    forms = [given, given.astype(np.float64), torch.from_numpy(given), torch.from_numpy(given).double()]
    answers = [answer(llm, {"prompt_embeds": form}) for form in forms]
    answers.append(answer(llm, ask({"type": "prompt_embeds", "prompt_embeds": given})))
    assert answers == answers[:1] * 5
    assert answer(llm, {"prompt_embeds": torch.from_numpy(given).bfloat16()})
    assert answer(llm, {"prompt_embeds": rows(5, seed=1)}) != answers[0]


def test_prompt_embeddings_beside_other_parts_stand_where_they_were_put(llm: LLM) -> None:
    given = {"type": "prompt_embeds", "prompt_embeds": rows(3)}
    other = {"type": "prompt_embeds", "prompt_embeds": rows(3, seed=1)}
    answers = [llm.chat(ask(*parts), GREEDY)[0] for parts in (("hello", given), (given, "hello"), ("hello", other))]
    assert len({len(output.prompt_token_ids) for output in answers}) == 1
    assert len({tuple(output.outputs[0].token_ids) for output in answers}) == 3


def test_embeddings_of_pictures_answer_alike_under_every_name(llm: LLM) -> None:
    given = rows()
    forms: list[Any] = [
        {"image": given},
        {"image": [given]},
        {"image": given[None]},
        {"image": {"image_embeds": given}},
        {"image_embeds": given},
        {"image_embeds": [torch.from_numpy(given)]},
    ]
    answers = [answer(llm, {"prompt": "<image> what?", "multi_modal_data": form}) for form in forms]
    assert answers == answers[:1] * len(forms)
    assert answer(llm, {"prompt": "<image> what?", "multi_modal_data": {"image_embeds": rows(seed=1)}}) != answers[0]


def test_a_request_may_leave_the_cache_out(llm: LLM, picture: Picture) -> None:
    assert llm.engine.core.cache is not None
    answer(llm, {"prompt": "<image>", "multi_modal_data": {"image": picture(1)}, "skip_mm_cache": True})
    assert llm.engine.core.cache.stats.num_items == 0


def test_stage_times_are_those_of_the_stages_that_happened(llm: LLM, picture: Picture, tmp_path: Any) -> None:
    def stages(prompt: ChatPrompt | dict[str, Any]) -> set[str]:
        return set(llm.generate(prompt, GREEDY)[0].stage_seconds)

    encoded = io.BytesIO()
    picture(1).save(encoded, "PNG")
    path = tmp_path / "b.png"
    picture(2).save(path)
    text = {"render", "plan", "transfer", "queue", "prefill", "decode_tokens"}
    made = {"decode", "materialize", "encode"}

    def with_image(value: Any) -> dict[str, Any]:
        return {"prompt": "<image>", "multi_modal_data": {"image": value}}

    assert stages({"prompt": "hello"}) == text
    assert stages(with_image(encoded.getvalue())) == text | made | {"probe"}
    assert stages(with_image(encoded.getvalue())) == text | {"probe"}
    assert stages(with_image(path)) == text | made | {"probe", "fetch"}


def test_what_the_engine_core_refuses_is_named_with_its_place_and_stage(make_llm: Callable[..., LLM], picture: Picture) -> None:
    llm = make_llm(disable_chunked_mm_input=True, max_num_batched_tokens=12)
    given = {"type": "prompt_embeds", "prompt_embeds": rows(3)}
    for part, modality, index in (
        ({"type": "image", "image": picture(1)}, "image", 0),
        ({"type": "prompt_embeds", "prompt_embeds": rows(13)}, "prompt", 1),
    ):
        with pytest.raises(ItemTooLargeError, match="a step computes 12") as caught:
            llm.chat(ask(given, "hello", part), GREEDY)
        error = caught.value
        assert (error.stage, error.modality, error.item_index) == ("queue", modality, index)
        assert error.parameter == "messages[0].content[2]"


def test_what_an_encoder_fails_on_is_named_with_its_place_and_stage(llm: LLM, picture: Picture, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: Any) -> None:
        raise RuntimeError("out of luck")

    monkeypatch.setattr(LlavaAdapter, "encode", fail)
    parts = [{"type": "image", "image": picture(number)} for number in (1, 2)]
    with pytest.raises(EncoderError, match="RuntimeError") as caught:
        llm.chat(ask("hello", *parts), GREEDY)
    assert (caught.value.stage, caught.value.modality, caught.value.item_index) == ("encode", "image", 0)
    assert caught.value.parameter == "messages[0].content[1]"


def test_a_prompt_of_embeddings_alone_that_are_none_is_named_with_its_place(llm: LLM) -> None:
    with pytest.raises(InvalidRequestError, match="must be") as caught:
        llm.chat(ask({"type": "prompt_embeds", "prompt_embeds": rows()[:, :8]}), GREEDY)
    assert caught.value.parameter == "messages[0].content[0]"


@pytest.mark.parametrize("options", [{}, {"limit_mm_per_prompt": {"image": 0}}], ids=["with pictures", "without"])
def test_prompt_embeddings_may_be_as_long_as_the_context_and_longer_than_any_item(make_llm: Callable[..., LLM], options: Any) -> None:
    llm = make_llm(max_num_batched_tokens=12, max_model_len=128, **options)
    given = {"type": "prompt_embeds", "prompt_embeds": rows(80)}
    assert answer(llm, ask("hello", given)) == answer(llm, ask("hello", given))
    narrow = make_llm(max_num_batched_tokens=12, max_model_len=128, encoder_cache_size=79, **options)
    with pytest.raises(ItemTooLargeError, match=r"holds 79 \(--encoder-cache-size\)"):
        answer(narrow, ask("hello", given))


def test_embeddings_of_pictures_may_be_longer_than_what_a_step_encodes(make_llm: Callable[..., LLM]) -> None:
    llm = make_llm(max_num_batched_tokens=12, max_model_len=128)
    assert answer(llm, {"prompt": "<image> what?", "multi_modal_data": {"image_embeds": rows(80)}})
    narrow = make_llm(max_num_batched_tokens=12, max_model_len=128, encoder_cache_size=79)
    with pytest.raises(ItemTooLargeError, match=r"holds 79 \(--encoder-cache-size\)") as caught:
        answer(narrow, {"prompt": "<image> what?", "multi_modal_data": {"image_embeds": rows(80)}})
    assert (caught.value.stage, caught.value.parameter) == ("plan", "multi_modal_data.image_embeds[0]")


@pytest.mark.parametrize(
    ("options", "encoder_cache_size"), [({}, 16), ({"enable_prompt_embeds": True}, 128), ({"enable_mm_embeds": True}, 128)]
)
def test_a_server_makes_room_for_embeddings_where_it_accepts_them(
    checkpoints: dict[str, Path], options: Any, encoder_cache_size: int
) -> None:
    limits = {"max_num_batched_tokens": 12, "max_model_len": 128, "engine_threads": 1}
    engine = build_engine_from(read_configs({"model": str(checkpoints["llava"]), **limits, **options}, {}))
    asyncio.run(engine.close())
    assert engine.core.limits.encoder_cache_size == encoder_cache_size
    assert engine.core.limits.encoder_compute_budget == NUM_EMBEDS
