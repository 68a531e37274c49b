"""From the engine core's steps to what callers see: text, stop texts, several answers, usage."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from inset.engine.detokenizer import Detokenizer
from inset.outputs import CompletionOutput, RequestOutput, Usage

if TYPE_CHECKING:
    import tokenizers

    from inset.inputs import ProcessedPrompt
    from inset.outputs import EngineOutput
    from inset.sampling_params import SamplingParams
    from inset.step import RequestFailure

__all__ = ["AnswerUpdate", "RequestTracker"]


class AnswerUpdate(NamedTuple):
    """What one engine output meant for a request.

    Attributes:
        failure: Why it failed, or None.
        must_abort: The engine core still runs this answer, though a stop text has ended it.
    """

    failure: RequestFailure | None = None
    must_abort: bool = False


class RequestTracker:
    """One prompt and its `n` answers, from the first engine output to the last."""

    def __init__(
        self,
        request_id: str,
        prompt: ProcessedPrompt,
        params: SamplingParams,
        *,
        tokenizer: tokenizers.Tokenizer,
        stage_seconds: Mapping[str, float],
    ) -> None:
        self._prompt = prompt
        self._params = params
        self._request_id = request_id
        self._stage_seconds = dict(stage_seconds)
        self._num_cached_tokens = 0
        self._detokenizers = [
            Detokenizer(
                tokenizer,
                stop=params.stop,
                include_stop=params.include_stop_str_in_output,
                min_tokens=params.min_tokens,
                skip_special_tokens=params.skip_special_tokens,
            )
            for _ in range(params.n)
        ]
        self._answers = [CompletionOutput(index=index, logprobs=None if params.logprobs is None else []) for index in range(params.n)]

    @property
    def is_finished(self) -> bool:
        """All answers have ended."""
        return all(answer.finish_reason is not None for answer in self._answers)

    def update(self, index: int, output: EngineOutput) -> AnswerUpdate:
        """Takes what the engine core said about one answer; what it says behind a stop text changes nothing."""
        if output.finish_reason == "error":
            return AnswerUpdate(failure=output.failure)
        answer, detokenizer = self._answers[index], self._detokenizers[index]
        if answer.finish_reason is not None:
            return AnswerUpdate()
        stopped = detokenizer.add(self._shown_tokens(output))
        answer.token_ids.extend(output.new_token_ids)
        if answer.logprobs is not None:
            answer.logprobs.extend(output.logprobs)
        if stopped or (output.finish_reason is not None and detokenizer.finish()):
            answer.finish_reason, answer.stop_reason = "stop", detokenizer.stop_reason
        elif output.finish_reason is not None:
            answer.finish_reason, answer.stop_reason = output.finish_reason, output.stop_reason
        answer.text = detokenizer.text
        self._num_cached_tokens = max(self._num_cached_tokens, output.num_cached_tokens)
        for stage, seconds in output.stage_seconds.items():
            self._stage_seconds[stage] = max(seconds, self._stage_seconds.get(stage, 0.0))
        return AnswerUpdate(must_abort=stopped and output.finish_reason is None)

    def _shown_tokens(self, output: EngineOutput) -> Sequence[int]:
        """Leaves out a final stop token: it ends the answer and is not part of its text."""
        ended_by_token = output.finish_reason == "stop" and output.new_token_ids
        return output.new_token_ids[:-1] if ended_by_token and not self._params.include_stop_str_in_output else output.new_token_ids

    def snapshot(self) -> RequestOutput:
        """Returns the request as it stands, in values of its own."""
        usage = Usage(
            prompt_tokens=len(self._prompt.prompt_token_ids),
            completion_tokens=sum(len(answer.token_ids) for answer in self._answers),
            prompt_tokens_by_modality=self._prompt.num_tokens_by_modality,
            cached_tokens=self._num_cached_tokens,
        )
        return RequestOutput(
            request_id=self._request_id,
            prompt=self._prompt.prompt_text,
            prompt_token_ids=list(self._prompt.prompt_token_ids),
            outputs=[_copy(answer) for answer in self._answers],
            finished=self.is_finished,
            usage=usage,
            stage_seconds=dict(self._stage_seconds),
        )


def _copy(answer: CompletionOutput) -> CompletionOutput:
    return CompletionOutput(
        index=answer.index,
        text=answer.text,
        token_ids=list(answer.token_ids),
        finish_reason=answer.finish_reason,
        stop_reason=answer.stop_reason,
        logprobs=None if answer.logprobs is None else list(answer.logprobs),
    )
