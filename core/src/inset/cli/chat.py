"""`inset chat MODEL [MEDIA ...]`: a conversation in the terminal, with the model in this process."""

from __future__ import annotations

import argparse
import asyncio
import sys
from typing import TYPE_CHECKING, Any, Final

from inset.cli.messages import LOCAL_POLICY, add_media_options, check_media, split_words, user_message
from inset.cli.options import read_options
from inset.errors import ClientError, ConfigError

if TYPE_CHECKING:
    from inset.config import Configs
    from inset.engine.async_llm import AsyncLLM
    from inset.outputs import RequestOutput

__all__ = ["add_arguments", "run"]

HELP: Final = "Type a question. /add FILE shows the model another file, /new begins again, /quit or Ctrl-D ends, Ctrl-C stops an answer."


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the model, the media, the answer's options, and every option."""
    add_media_options(parser)
    parser.add_argument("--system", metavar="TEXT", help="a system message")
    parser.add_argument("--max-tokens", type=int, metavar="N", help="longest answer, in tokens; what the context allows when unset")
    parser.add_argument("--temperature", type=float, metavar="T", help="0 is always the most likely token; the checkpoint's when unset")


def run(args: argparse.Namespace) -> int:
    """Answers line after line of standard input."""
    media = split_words(args)
    configs = read_options(args)
    check_media(media)
    _say(f"Loading {configs.model.name_for_clients} ...")
    from inset.engine.build import build_engine_from

    with asyncio.Runner() as runner:
        _Chat(configs, args, media, runner).run(build_engine_from(configs, is_local=True))
    return 0


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


class _Chat:
    """One conversation after another.

    The event loop runs while an answer is made, not while a line is read: Ctrl-C ends the reading, of which a thread would not hear.
    """

    def __init__(self, configs: Configs, args: argparse.Namespace, media: list[str], runner: asyncio.Runner) -> None:
        self._runner = runner
        self._modality: str | None = args.modality
        self._media: list[str] = media
        self._system: list[dict[str, Any]] = [] if args.system is None else [{"role": "system", "content": args.system}]
        self._sampling = {"max_tokens": args.max_tokens, **({} if args.temperature is None else {"temperature": args.temperature})}
        self._messages = list(self._system)

    def run(self, engine: AsyncLLM) -> None:
        """Reads and answers until the input ends."""
        self._runner.run(engine.start())
        try:
            _say(HELP)
            while (line := _read_line()) is not None:
                word, _, rest = line.partition(" ")
                if word == "/quit":
                    break
                if word == "/new":
                    self._messages, self._media = list(self._system), []
                elif word == "/add":
                    self._add(rest.strip())
                elif word.startswith("/"):
                    _say(HELP)
                elif line:
                    self._answer(engine, line)
        finally:
            self._runner.run(engine.close())

    def _add(self, item: str) -> None:
        """Keeps a file or URL for the next question, if it is there."""
        try:
            check_media([item])
        except ConfigError as error:
            _say(f"inset: {error}")
        else:
            self._media.append(item)

    def _answer(self, engine: AsyncLLM, question: str) -> None:
        """Asks, and prints the answer while it comes; a question that is refused or interrupted is taken back."""
        asked = [*self._messages, user_message(question, self._media, self._modality)]
        try:
            answer = self._runner.run(self._stream(engine, asked))
            self._messages = [*asked, {"role": "assistant", "content": answer}]
        except ClientError as error:
            _say(f"inset: {error}")
        except KeyboardInterrupt:
            _say("\nStopped; the question is taken back.")
        self._media = []

    async def _stream(self, engine: AsyncLLM, messages: list[dict[str, Any]]) -> str:
        import dataclasses

        from inset.engine.prompts import ChatPrompt

        params = dataclasses.replace(engine.core.default_sampling_params, **self._sampling)
        shown = ""
        output: RequestOutput | None = None
        if self._media:
            _say(f"Looking at {', '.join(self._media)} ...")
        async for output in engine.generate(ChatPrompt(messages=messages, policy=LOCAL_POLICY), params):
            text = output.outputs[0].text
            print(text[len(shown) :], end="", flush=True)
            shown = text
        print(flush=True)
        if output is not None:
            _say(_summary(output))
        return shown


def _read_line() -> str | None:
    """Returns the next line of standard input, or None at its end."""
    if sys.stdin.isatty():
        print("> ", end="", file=sys.stderr, flush=True)
    line = sys.stdin.readline()
    return line.strip() if line else None


def _summary(output: RequestOutput) -> str:
    usage = output.usage
    media = "".join(f", {count} of {modality}s" for modality, count in usage.prompt_tokens_by_modality.items())
    seconds = sum(output.stage_seconds.values())
    return f"[{usage.prompt_tokens} prompt tokens{media}, {usage.cached_tokens} cached; {usage.completion_tokens} new; {seconds:.2f} s]"
