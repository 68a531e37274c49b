"""What all endpoints share: the engine, the options, who asks, and for how long."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeVar, cast

from inset.engine.content_parts import ContentPolicy
from inset.engine.prompts import ChatPrompt, RequestOptions
from inset.engine.renderer import ChatOptions
from inset.errors import InvalidRequestError, ModelNotFoundError
from inset.server.body import BodyReader
from inset.server.json_text import JsonLimits
from inset.server.metrics import Metrics

if TYPE_CHECKING:
    from starlette.requests import Request

    from inset.config import Configs
    from inset.engine.async_llm import AsyncLLM
    from inset.server.context import RequestContext
    from inset.server.protocol import ChatRequest, ConversationFields

__all__ = ["Service", "service_of"]

T = TypeVar("T")

_NUM_TEXT_THREADS: Final = 2


class Service:
    """What the endpoints of one app work with; the engine belongs to the app's owner."""

    def __init__(self, engine: AsyncLLM, configs: Configs, *, front_id: str | None = None) -> None:
        self.engine = engine
        self.configs = configs
        self.model_name = configs.model.name_for_clients
        self.created_seconds = int(time.time())
        self.metrics = Metrics(engine, front_id=front_id)
        server = configs.server
        limits = JsonLimits(max_values=server.max_request_values, max_text_bytes=server.max_request_text_bytes)
        self._text_threads = ThreadPoolExecutor(_NUM_TEXT_THREADS, thread_name_prefix="inset-text")
        self.bodies = BodyReader(server.max_request_body_bytes, server.max_held_body_bytes, limits)
        self.policy = ContentPolicy(
            accept_mm_embeds=configs.model.enable_mm_embeds,
            accept_prompt_embeds=configs.model.enable_prompt_embeds,
            max_text_characters=server.max_request_text_bytes,
        )

    def close(self) -> None:
        """Ends what belongs to it alone; idempotent."""
        self.bodies.close()
        self._text_threads.shutdown(cancel_futures=True)

    async def run_text(self, work: Callable[..., T], *arguments: Any) -> T:
        """Runs what is asked about text beside the answers, in threads of its own: long texts wait for each other, no chat does."""
        return await asyncio.get_running_loop().run_in_executor(self._text_threads, partial(work, *arguments))

    def check_model(self, name: str | None) -> None:
        """Lets the name of the served model pass, and none at all.

        Raises:
            ModelNotFoundError: It is another name.
        """
        if name is not None and name != self.model_name:
            raise ModelNotFoundError(f"There is no model {name[:100]!r} here; this server has {self.model_name!r}.", parameter="model")

    def request_options(self, fields: ConversationFields, context: RequestContext) -> RequestOptions:
        """Returns what goes with a prompt.

        Raises:
            InvalidRequestError: The request brings processor or decode options, which this server does not accept.
        """
        trusted = self.configs.model.trust_request_mm_kwargs
        for name, value in (("mm_processor_kwargs", fields.mm_processor_kwargs), ("media_io_kwargs", fields.media_io_kwargs)):
            if value and not trusted:
                raise InvalidRequestError(
                    f"{name} in a request is not accepted; the operator allows it with --trust-request-mm-kwargs.",
                    stage="parse",
                    parameter=name,
                )
        return RequestOptions(
            mm_processor_kwargs=fields.mm_processor_kwargs or {},
            media_io_kwargs=fields.media_io_kwargs or {},
            cache_salt=fields.cache_salt,
            client=context.client,
        )

    def chat_prompt(self, request: ChatRequest, context: RequestContext) -> ChatPrompt:
        """Returns the prompt of a chat request."""
        chat = ChatOptions(
            add_generation_prompt=request.add_generation_prompt,
            continue_final_message=request.continue_final_message,
            tools=None if request.tool_choice == "none" else request.tools,
            documents=request.documents,
            template_kwargs=request.chat_template_kwargs or {},
        )
        return ChatPrompt(messages=request.messages, policy=self.policy, chat=chat, options=self.request_options(request, context))


def service_of(request: Request) -> Service:
    """Returns the service of the app that got this request."""
    return cast("Service", request.app.state.service)
