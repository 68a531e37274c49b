"""What users of `inset.LLM` rely on."""

from __future__ import annotations

import asyncio
import io
import itertools
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from inset import LLM, SamplingParams
from inset.cache.values import CacheStats
from inset.engine.prompts import ChatPrompt
from inset.errors import (
    ConfigError,
    EngineDeadError,
    InvalidRequestError,
    ItemLimitError,
    MediaDecodeError,
    MediaFetchError,
    MediaPolicyError,
    PlaceholderError,
    PromptTooLongError,
    UnknownNameError,
)

GREEDY = SamplingParams(temperature=0, max_tokens=8, ignore_eos=True)
Picture = Callable[..., Image.Image]


def ask(*content: Any) -> list[dict[str, Any]]:
    return [{"role": "user", "content": list(content)}]


def image(value: Any) -> dict[str, Any]:
    return {"type": "image", "image": value}


def tokens(llm: LLM, *content: Any, params: SamplingParams = GREEDY) -> list[int]:
    [output] = llm.chat(ask(*content), params)
    return output.outputs[0].token_ids


def encoder_runs(llm: LLM) -> float:
    return llm.engine.stats.values["num_encoder_runs"]


def cache_stats(llm: LLM) -> CacheStats:
    assert llm.engine.core.cache is not None
    return llm.engine.core.cache.stats


def nested(depth: int) -> dict[str, Any]:
    value: dict[str, Any] = {}
    for _ in range(depth):
        value = {"a": value}
    return value


@pytest.fixture(scope="module")
def lasting_llm(checkpoints: dict[str, Path]) -> Iterator[LLM]:
    """One engine for all that is refused: each refusal is followed by a good request."""
    with LLM(checkpoints["llava"], engine_threads=1) as llm:
        yield llm


@pytest.fixture
def llm(make_llm: Any) -> LLM:
    made: LLM = make_llm()
    return made


def test_picture_may_come_in_any_form(llm: LLM, picture: Picture, tmp_path: Path) -> None:
    pil = picture(1)
    path = tmp_path / "a.png"
    pil.save(path)
    array = np.asarray(pil)
    expected = tokens(llm, image(pil), "what?")
    for value in (path, str(path), path.read_bytes(), array, array.transpose(2, 0, 1)):
        assert tokens(llm, image(value), "what?") == expected
    assert tokens(llm, {"type": "image_pil", "image_pil": pil}, "what?") == expected


def test_another_picture_of_the_same_size_never_gets_the_first_ones_answer(llm: LLM, picture: Picture, make_llm: Any) -> None:
    fresh = {
        number: tokens(make_llm(mm_processor_cache_gb=0, enable_prefix_caching=False), image(picture(number)), "?") for number in (1, 2)
    }
    assert fresh[1] != fresh[2]
    for number in (1, 2, 1, 1, 2, 2, 1):
        assert tokens(llm, image(picture(number)), "?") == fresh[number]


def test_second_ask_about_a_picture_encodes_nothing(llm: LLM, picture: Picture) -> None:
    tokens(llm, image(picture(1)), "first?")
    before = encoder_runs(llm), cache_stats(llm).num_inserts
    tokens(llm, image(picture(1)), "second?")
    assert (encoder_runs(llm), cache_stats(llm).num_inserts) == before
    assert cache_stats(llm).num_hits == 1


def test_typed_markers_stay_text_in_chat(llm: LLM, picture: Picture) -> None:
    [output] = llm.chat(ask(image(picture(1)), "is <image> a tag?"), GREEDY)
    assert output.usage.prompt_tokens_by_modality == {"image": 16}


@pytest.mark.parametrize(
    ("prompt", "error", "words"),
    [
        ({"prompt": "a <image> b"}, PlaceholderError, "1 image placeholder.* 0 image"),
        ({"prompt": "no marker", "multi_modal_data": {"image": ["PIC"]}}, PlaceholderError, "0 image placeholder.* 1 image"),
        ({"prompt": "x", "images": []}, InvalidRequestError, "'images'"),
        ({"multi_modal_data": {}}, InvalidRequestError, "exactly one of"),
        ({"prompt": "x", "multi_modal_data": {"video": ["v"]}}, ItemLimitError, "does not take video"),
        ({"prompt": "<image>", "multi_modal_data": {"image": [7]}}, InvalidRequestError, "int is not an image"),
        ({"prompt": "<image>", "multi_modal_data": {"image": [b"GIF89a"]}}, MediaDecodeError, "image 0"),
        ({"prompt": "<image>", "multi_modal_data": {"image": ["/no/such/file"]}}, MediaFetchError, "cannot be read"),
        ({"prompt": "<image>", "multi_modal_data": {"image": ["file:///etc/passwd"]}}, MediaPolicyError, "--allowed-local-media-path"),
        ({"prompt": "<image>", "multi_modal_data": {"image": ["ftp://a/b"]}}, MediaPolicyError, "ftp"),
        ({"prompt": "word " * 5000}, PromptTooLongError, "context holds"),
        (None, InvalidRequestError, "not NoneType"),
        (7, InvalidRequestError, "not int"),
        ({"prompt": 7}, InvalidRequestError, "prompt must be text"),
        ({"prompt": "x", "cache_salt": 7}, InvalidRequestError, "cache_salt must be text"),
        ({"prompt": "x", "cache_salt": "\ud800"}, InvalidRequestError, "cache_salt must be text"),
        ({"prompt": "x", 7: 8}, InvalidRequestError, "has no '7'"),
        ({"prompt": "x", "multi_modal_data": [7]}, InvalidRequestError, "multi_modal_data must be a mapping"),
        ({"prompt": "x", "multi_modal_uuids": [7]}, InvalidRequestError, "multi_modal_uuids must be a mapping"),
        ({"prompt": "x", "mm_processor_kwargs": "x"}, InvalidRequestError, "mm_processor_kwargs must be a mapping"),
        ({"prompt_token_ids": [-1]}, InvalidRequestError, "token id -1 at position 0"),
        ({"prompt_token_ids": [5, 10**9]}, InvalidRequestError, "token id 1000000000 at position 1"),
        ({"prompt_token_ids": [10**30]}, InvalidRequestError, "token id 1000000000000000000000000000000 at"),
        ({"prompt_token_ids": "abc"}, InvalidRequestError, "not this"),
        ({"prompt_token_ids": [1.5]}, InvalidRequestError, "not this"),
        ({"prompt_token_ids": [None]}, InvalidRequestError, "not this"),
        ([[[5]]], InvalidRequestError, "not this"),
        ({"prompt_embeds": np.full((3, 64), np.nan, np.float32)}, InvalidRequestError, "not finite"),
        ({"prompt_embeds": np.full((3, 64), 1e300)}, InvalidRequestError, "not finite"),
        ({"prompt": "<image>", "multi_modal_data": {"image": ["/tmp/a\0b.png"]}}, MediaFetchError, "no path is spelled"),
        ({"prompt": "<image>", "multi_modal_data": {"image": ["/dev/zero"]}}, MediaFetchError, "not a regular file"),
        ({"prompt": "<image>", "multi_modal_data": {"image": ["/tmp"]}}, MediaFetchError, "not a regular file"),
        ({"prompt": "<image>", "multi_modal_data": {"image": ["PIPE"]}}, MediaFetchError, "not a regular file"),
        ({"prompt": "<image>", "multi_modal_data": {"image": [torch.zeros(5, 5, 3, device="meta")]}}, InvalidRequestError, "Tensor"),
        ({"prompt": "<image>", "multi_modal_data": {"image": [torch.zeros(5, 5, 3).to_sparse()]}}, InvalidRequestError, "Tensor"),
        ({"prompt": "<image>", "multi_modal_data": {"image": ["PIC"]}, "multi_modal_uuids": {"image": [7]}}, InvalidRequestError, "uuid"),
    ],
)
def test_bad_prompts_are_refused_and_the_next_good_one_is_answered(
    lasting_llm: LLM, picture: Picture, tmp_path: Path, prompt: Any, error: type[Exception], words: str
) -> None:
    llm = lasting_llm
    os.mkfifo(tmp_path / "pipe")
    stand_ins = {"PIC": picture(1), "PIPE": tmp_path / "pipe"}
    if isinstance(prompt, dict) and isinstance(prompt.get("multi_modal_data"), dict):
        data = {
            name: [stand_ins.get(item, item) if isinstance(item, str) else item for item in items]
            for name, items in prompt["multi_modal_data"].items()
        }
        prompt = {**prompt, "multi_modal_data": data}
    with pytest.raises(error, match=words):
        llm.generate(prompt, GREEDY)
    assert len(tokens(llm, image(picture(1)), "?")) == 8


def test_more_pictures_than_allowed_are_refused_before_any_is_read(make_llm: Any) -> None:
    llm = make_llm(limit_mm_per_prompt={"image": 1})
    with pytest.raises(ItemLimitError, match=r"At most 1 image\(s\) may be provided in one prompt\."):
        llm.chat(ask(image("/no/such/a.png"), image("/no/such/b.png")), GREEDY)


def test_answer_that_cannot_fit_is_refused_with_the_numbers(llm: LLM) -> None:
    with pytest.raises(PromptTooLongError, match="Ask for at most"):
        llm.generate("hello", SamplingParams(max_tokens=100_000))


def test_stop_text_ends_the_answer_and_is_cut(llm: LLM) -> None:
    [whole] = llm.generate("hello", SamplingParams(temperature=0, max_tokens=20, ignore_eos=True))
    text = whole.outputs[0].text
    stop = text[6:8]
    [stopped] = llm.generate("hello", SamplingParams(temperature=0, max_tokens=20, ignore_eos=True, stop=(stop,)))
    answer = stopped.outputs[0]
    assert (answer.finish_reason, answer.stop_reason) == ("stop", stop)
    assert answer.text == text[: text.index(stop)]


@pytest.mark.parametrize("seed", [7, -1, 2**64 - 1])
def test_several_answers_differ_by_seed_and_repeat_with_it(llm: LLM, picture: Picture, seed: int) -> None:
    params = SamplingParams(n=3, temperature=1.0, seed=seed, max_tokens=8, ignore_eos=True)
    [first] = llm.chat(ask(image(picture(1)), "?"), params)
    [second] = llm.chat(ask(image(picture(1)), "?"), params)
    answers = [tuple(answer.token_ids) for answer in first.outputs]
    assert answers == [tuple(answer.token_ids) for answer in second.outputs]
    assert len(set(answers)) == 3
    assert first.usage.completion_tokens == 24


def test_fresh_engines_with_one_seed_answer_the_same_requests_alike(make_llm: Any) -> None:
    params = SamplingParams(n=2, temperature=1.0, max_tokens=8, ignore_eos=True)

    def answers(seed: int) -> list[tuple[int, ...]]:
        llm: LLM = make_llm(seed=seed)
        outputs = [*llm.generate(["hello"] * 3, params), *llm.generate("hello", params)]
        return [tuple(answer.token_ids) for output in outputs for answer in output.outputs]

    first = answers(1)
    assert first == answers(1)
    assert len(set(first)) == len(first)
    assert first != answers(2)


def test_logprobs_come_one_per_token_and_name_the_chosen_one(llm: LLM) -> None:
    [output] = llm.generate("hello", SamplingParams(temperature=0, max_tokens=5, ignore_eos=True, logprobs=2))
    answer = output.outputs[0]
    assert answer.logprobs is not None
    assert [entry.token_id for entry in answer.logprobs] == answer.token_ids
    assert all(len(entry.top) == 2 and entry.top[0][0] == entry.token_id for entry in answer.logprobs)


def test_token_ids_of_any_kind_may_be_the_prompt(llm: LLM) -> None:
    [by_text] = llm.generate("hello", GREEDY)
    ids = by_text.prompt_token_ids
    for given in (
        [ids],
        ids,
        {"prompt_token_ids": tuple(ids)},
        {"prompt_token_ids": np.array(ids)},
        {"prompt_token_ids": torch.tensor(ids)},
    ):
        [by_ids] = llm.generate(given, GREEDY)
        assert by_ids.outputs[0].token_ids == by_text.outputs[0].token_ids


def test_prompt_embeddings_of_any_kind_give_the_same_answer(llm: LLM) -> None:
    embeds = np.random.default_rng(0).normal(size=(9, 64)).astype(np.float16)
    answers = set()
    for given in (embeds, embeds.astype(np.float64), torch.from_numpy(embeds.astype(np.float32)), np.asfortranarray(embeds)):
        [output] = llm.generate({"prompt_embeds": given}, GREEDY)
        answers.add(tuple(output.outputs[0].token_ids))
    assert len(answers) == 1


@pytest.mark.parametrize(
    ("messages", "words"),
    [
        (None, "must be a list"),
        (7, "must be a list"),
        ([[]], "at least one message"),
        ([{"role": 7, "content": "x"}], "with a role"),
        ([{"role": "user", "content": "x", "deep": nested(3000)}], "nested too deeply"),
    ],
)
def test_bad_conversations_are_refused_and_the_next_good_one_is_answered(lasting_llm: LLM, messages: Any, words: str) -> None:
    with pytest.raises(InvalidRequestError, match=words):
        lasting_llm.chat(messages, GREEDY)
    assert len(tokens(lasting_llm, "?")) == 8


def test_sampling_params_of_another_kind_are_refused(llm: LLM) -> None:
    for params in ({"temperature": 0}, [GREEDY], [None, 7], "greedy"):
        with pytest.raises(InvalidRequestError, match="ampling params"):
            llm.generate(["one", "two"], params)  # type: ignore[arg-type]


def test_outputs_come_in_the_order_of_prompts(llm: LLM) -> None:
    prompts = [f"prompt {index}" for index in range(12)]
    outputs = llm.generate(prompts, GREEDY, use_tqdm=False)
    assert [output.prompt for output in outputs] == prompts


def test_streaming_grows_and_ending_it_early_frees_the_request(llm: LLM, picture: Picture) -> None:
    engine = llm.engine

    async def first_outputs() -> list[str]:
        texts = []
        prompt = ChatPrompt(messages=ask("hi"))
        stream = engine.generate(prompt, SamplingParams(temperature=0, max_tokens=200, ignore_eos=True))
        async for output in stream:
            texts.append(output.outputs[0].text)
            if len(texts) == 3:
                break
        await stream.aclose()
        return texts

    texts = llm._call(first_outputs())
    assert all(later.startswith(earlier) for earlier, later in itertools.pairwise(texts))
    assert len(tokens(llm, image(picture(1)), "?")) == 8
    assert engine.num_unfinished == 0
    assert engine.stats.num_running == 0


def test_sixteen_requests_with_one_new_picture_encode_it_once(llm: LLM, picture: Picture) -> None:
    outputs = llm.chat([ask(image(picture(5)), "?") for _ in range(16)], GREEDY, use_tqdm=False)
    assert len({tuple(output.outputs[0].token_ids) for output in outputs}) == 1
    assert encoder_runs(llm) == 1
    assert cache_stats(llm).num_inserts == 1


def test_render_decodes_nothing_and_shows_the_places(llm: LLM, picture: Picture) -> None:
    buffer = io.BytesIO()
    picture(1).save(buffer, "PNG")
    damaged = buffer.getvalue()[:-200]  # the header is whole, the pixels are not
    planned = llm.render(ask(image(damaged), "what?"))
    [place] = planned.mm_placeholders["image"]
    assert place.length == 16
    assert planned.mm_kwargs["image"] == [None]
    with pytest.raises(MediaDecodeError, match="image 0"):
        llm.chat(ask(image(damaged), "what?"), GREEDY)


def test_caches_can_be_reset_between_requests(llm: LLM, picture: Picture) -> None:
    expected = tokens(llm, image(picture(1)), "?")
    for reset in (llm.reset_mm_cache, llm.reset_encoder_cache, llm.reset_prefix_cache):
        reset()
        assert tokens(llm, image(picture(1)), "?") == expected


def test_closed_engine_refuses_with_a_clear_error(make_llm: Any) -> None:
    llm = make_llm()
    llm.close()
    llm.close()
    with pytest.raises(EngineDeadError, match="closed"):
        llm.generate("hi", GREEDY)


@pytest.mark.parametrize(
    ("options", "error", "words"),
    [
        ({"max_num_seq": 1}, ConfigError, "Did you mean 'max_num_seqs'"),
        ({"max_model_len": 10**9}, ConfigError, "max-model-len"),
        ({"mm_processor_cache_type": "nothing"}, UnknownNameError, "nothing"),
        ({"device": "tpu"}, ConfigError, "device"),
        ({"dtype": "int3"}, ConfigError, "dtype"),
        ({"plugins": ("absent",)}, UnknownNameError, "absent"),
    ],
)
def test_options_that_cannot_be_served_are_refused_at_start(
    make_llm: Any, options: dict[str, Any], error: type[Exception], words: str
) -> None:
    with pytest.raises(error, match=words):
        make_llm(**options)


def test_unknown_model_names_what_there_is() -> None:
    with pytest.raises(ConfigError, match="neither a folder nor a shipped checkpoint"):
        LLM("no-such-model")


def test_two_engines_in_one_process_do_not_disturb_each_other(make_llm: Any, picture: Picture) -> None:
    one, two = make_llm(), make_llm(max_num_batched_tokens=32)

    async def both() -> list[list[int]]:
        async def run(llm: LLM) -> list[int]:
            return await asyncio.to_thread(tokens, llm, image(picture(3)), "?")

        return list(await asyncio.gather(run(one), run(two), run(one), run(two)))

    assert len({tuple(answer) for answer in asyncio.run(both())}) == 1


def test_cache_can_be_left_out_for_one_chat(llm: LLM, picture: Picture) -> None:
    conversation = ask(image(picture(1)), "?")
    [first], [second] = (llm.chat(conversation, GREEDY, skip_mm_cache=skipped) for skipped in (True, False))
    assert first.outputs[0].token_ids == second.outputs[0].token_ids
    assert cache_stats(llm).num_inserts == cache_stats(llm).num_misses == 1
