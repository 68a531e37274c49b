"""What the engine core says reaches those who wait for it, and nobody else."""

from __future__ import annotations

from inset.engine.messages import CacheMissed, EngineStats, StepDone
from inset.engine.running_prompts import RunningPrompts
from inset.outputs import EngineOutput

STATS = EngineStats()


def said(request_id: str, finish_reason: str | None = None) -> EngineOutput:
    return EngineOutput(request_id=request_id, finish_reason=finish_reason)


def test_outputs_go_to_their_prompt_with_the_index_of_the_answer() -> None:
    prompts = RunningPrompts()
    first, second = prompts.add("a", ["a-0", "a-1"]), prompts.add("b", ["b-0"])
    outputs = [said("b-0"), said("a-1", "stop"), said("unknown")]
    assert prompts.route(StepDone(outputs, STATS)) == [(second, (0, outputs[0])), (first, (1, outputs[1]))]
    assert first.running == {"a-0"}


def test_an_answer_that_has_ended_hears_nothing_more() -> None:
    prompts = RunningPrompts()
    prompts.add("a", ["a-0"])
    prompts.route(StepDone([said("a-0", "length")], STATS))
    assert prompts.route(StepDone([said("a-0", "abort")], STATS)) == []


def test_a_miss_ends_all_answers_of_its_prompt() -> None:
    prompts = RunningPrompts()
    prompt = prompts.add("a", ["a-0", "a-1"])
    missed = CacheMissed("a", [(b"x" * 32, 0)])
    assert prompts.route(missed) == [(prompt, missed)]
    assert prompts.remove(prompt) == ()
    assert prompts.route(missed) == []


def test_removing_a_prompt_names_what_still_runs_and_forgets_it() -> None:
    prompts = RunningPrompts()
    prompt = prompts.add("a", ["a-0", "a-1"])
    prompts.route(StepDone([said("a-0", "stop")], STATS))
    assert prompts.remove(prompt) == ("a-1",)
    assert len(prompts) == 0
    assert prompts.route(StepDone([said("a-1")], STATS)) == []


def test_taking_all_leaves_nobody_waiting() -> None:
    prompts = RunningPrompts()
    added = [prompts.add("a", ["a-0"]), prompts.add("b", ["b-0"])]
    assert prompts.take_all() == added
    assert (len(prompts), prompts.take_all()) == (0, [])


def test_a_prompt_waits_until_the_first_word_of_any_of_its_answers_or_its_end() -> None:
    prompts = RunningPrompts()
    several, ended, given_up = prompts.add("a", ["a-0", "a-1", "a-2"]), prompts.add("b", ["b-0"]), prompts.add("c", ["c-0"])
    assert prompts.num_waiting == 3
    prompts.route(StepDone([said("a-1"), said("unknown")], STATS))
    prompts.route(StepDone([said("a-0"), said("b-0", "length")], STATS))
    assert prompts.num_waiting == 1
    for prompt in (several, ended, given_up):
        prompts.remove(prompt)
    assert prompts.num_waiting == 0


def test_a_prompt_that_is_missed_waits_on_and_the_end_of_the_engine_core_ends_all_waiting() -> None:
    prompts = RunningPrompts()
    prompts.add("a", ["a-0"])
    prompts.route(CacheMissed("a", [(b"x" * 32, 0)]))
    assert prompts.num_waiting == 1
    prompts.take_all()
    assert prompts.num_waiting == 0
