from __future__ import annotations

from typing import Any

import pytest

from inset.errors import InvalidRequestError
from inset.sampling_params import SamplingParams
from inset.server.protocol import ChatRequest, ResponsesRequest, convert
from inset.server.sampling import chat_sampling, responses_sampling


def chat(**fields: Any) -> ChatRequest:
    return convert({"messages": [], **fields}, ChatRequest)


@pytest.mark.parametrize(
    ("fields", "words", "parameter"),
    [
        ({"max_token": 1}, "Did you mean 'max_tokens'", "max_token"),
        ({"x" * 500: 1}, "There is no field", "x" * 100),
        ({"max_tokens": "many"}, "Expected `int", "max_tokens"),
        ({"temperature": [1]}, "Expected `float", "temperature"),
        ({"stop": [1]}, "Expected `str`", "stop[0]"),
        ({"stream": "yes"}, "Expected `bool", "stream"),
        ({"stream_options": {"include": True}}, "unknown field `include`", "stream_options"),
        ({"tool_choice": "required"}, "Invalid enum value", "tool_choice"),
        ({"response_format": {"type": "json_object"}}, "Invalid enum value", "response_format.type"),
        ({"modalities": ["text", "audio"]}, "Invalid enum value", "modalities[1]"),
        ({"logit_bias": {"5": "much"}}, "Expected `float", "logit_bias[...]"),
    ],
)
def test_wrong_fields_are_named(fields: dict[str, Any], words: str, parameter: str) -> None:
    with pytest.raises(InvalidRequestError) as caught:
        chat(**fields)
    assert words in caught.value.message
    assert caught.value.parameter == parameter


@pytest.mark.parametrize("body", [None, [], "text", 5])
def test_body_must_be_an_object(body: object) -> None:
    with pytest.raises(InvalidRequestError, match="JSON object"):
        convert(body, ChatRequest)


def test_messages_are_needed() -> None:
    with pytest.raises(InvalidRequestError, match="missing required field `messages`"):
        convert({}, ChatRequest)


def test_what_only_a_hosted_service_reads_is_accepted() -> None:
    chat(
        user="u",
        metadata={"a": "b"},
        store=False,
        service_tier="auto",
        prompt_cache_key="k",
        safety_identifier="s",
        parallel_tool_calls=True,
    )


@pytest.mark.parametrize(
    "name", ["functions", "function_call", "prediction", "web_search_options", "n", "add_generation_prompt", "anything"]
)
def test_fields_of_a_chat_that_are_null_count_as_left_out(name: str) -> None:
    assert chat(**{name: None}) == chat()


@pytest.mark.parametrize("name", ["previous_response_id", "conversation", "max_tool_calls", "prompt", "temperature", "background"])
def test_fields_of_a_response_that_are_null_count_as_left_out(name: str) -> None:
    assert convert({"input": "hi", name: None}, ResponsesRequest) == convert({"input": "hi"}, ResponsesRequest)


def test_options_of_a_stream_that_are_null_count_as_left_out() -> None:
    assert chat(stream_options={"include_usage": None, "include_obfuscation": None}) == chat(stream_options={})


def test_a_needed_field_that_is_null_is_not_left_out() -> None:
    assert convert({"messages": None}, ChatRequest).messages is None


DEFAULTS = SamplingParams(temperature=0.3, top_p=0.9)


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({}, {"temperature": 0.3, "top_p": 0.9, "max_tokens": None, "logprobs": None, "n": 1}),
        ({"temperature": 0, "n": 2}, {"temperature": 0, "n": 2}),
        ({"max_tokens": 5}, {"max_tokens": 5}),
        ({"max_tokens": 5, "max_completion_tokens": 7}, {"max_tokens": 7}),
        ({"stop": "x"}, {"stop": ("x",)}),
        ({"stop": ["x", "y"]}, {"stop": ("x", "y")}),
        ({"logprobs": True}, {"logprobs": 0}),
        ({"logprobs": True, "top_logprobs": 3}, {"logprobs": 3}),
        ({"logit_bias": {"5": 1.5}}, {"logit_bias": {5: 1.5}}),
        ({"seed": 9, "min_p": 0.1, "top_k": 4, "ignore_eos": True}, {"seed": 9, "min_p": 0.1, "top_k": 4, "ignore_eos": True}),
    ],
)
def test_fields_become_sampling_params_on_top_of_the_checkpoints(fields: dict[str, Any], expected: dict[str, Any]) -> None:
    params = chat_sampling(chat(**fields), DEFAULTS)
    assert {name: getattr(params, name) for name in expected} == expected


@pytest.mark.parametrize(
    ("fields", "parameter"),
    [
        ({"temperature": -1}, "temperature"),
        ({"top_p": 0}, "top_p"),
        ({"n": 0}, "n"),
        ({"max_tokens": 0}, "max_tokens"),
        ({"logprobs": True, "top_logprobs": 21}, "logprobs"),
        ({"top_logprobs": 2}, "top_logprobs"),
        ({"logit_bias": {"word": 1}}, "logit_bias"),
        ({"stop": ""}, "stop"),
    ],
)
def test_values_out_of_range_are_named(fields: dict[str, Any], parameter: str) -> None:
    with pytest.raises(InvalidRequestError) as caught:
        chat_sampling(chat(**fields), DEFAULTS)
    assert caught.value.parameter == parameter


def test_responses_name_their_longest_answer_differently() -> None:
    body = convert({"input": "hi", "max_output_tokens": 5, "include": ["message.output_text.logprobs"]}, ResponsesRequest)
    params = responses_sampling(body, DEFAULTS)
    assert (params.max_tokens, params.logprobs, params.temperature) == (5, 0, 0.3)
