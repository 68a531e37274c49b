"""Questions about pictures, put to a server by the official OpenAI client."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Final, NamedTuple

import openai
from openai.types.chat import ChatCompletionUserMessageParam

from inset_demo.served import NotServedError, ServeProcess

__all__ = ["Asked", "ask", "connect"]

ANSWER_SECONDS: Final = 120.0


class Asked(NamedTuple):
    """One answer, and what it took."""

    text: str
    seconds: float
    stage_seconds: Mapping[str, float]
    prompt_tokens: int
    cached_tokens: int


@contextmanager
def connect(server: ServeProcess) -> Iterator[openai.OpenAI]:
    """Gives a client of a server, and closes it.

    Raises:
        NotServedError: The server has gone, did not answer, or refused.
    """
    # Nothing of the environment: a proxy that it names could not reach this machine's own loopback.
    http = openai.DefaultHttpxClient(trust_env=False)
    try:
        with openai.OpenAI(base_url=server.base_url, api_key="none", max_retries=0, timeout=ANSWER_SECONDS, http_client=http) as client:
            yield client
    except openai.APIConnectionError as error:
        server.check()
        raise NotServedError(f"inset serve did not answer: {error.__cause__ or error}") from error
    except openai.APIStatusError as error:
        raise NotServedError(f"inset serve refused: {error.message}") from error


def ask(client: openai.OpenAI, model: str, question: str, *, picture_url: str) -> Asked:
    """Returns the likeliest answer to a question about a picture, with the stage times that the server tells."""
    message: ChatCompletionUserMessageParam = {
        "role": "user",
        "content": [{"type": "image_url", "image_url": {"url": picture_url}}, {"type": "text", "text": question}],
    }
    began = time.perf_counter()
    completion = client.chat.completions.create(
        model=model,
        messages=[message],
        temperature=0,
        max_tokens=32,
        extra_headers={"X-Inset-Trace": "1"},
    )
    seconds = time.perf_counter() - began
    text = completion.choices[0].message.content or ""
    trace = (completion.model_extra or {})["inset_trace"]
    usage = completion.usage
    assert usage is not None
    assert usage.prompt_tokens_details is not None
    return Asked(text, seconds, trace["stage_seconds"], usage.prompt_tokens, usage.prompt_tokens_details.cached_tokens or 0)
