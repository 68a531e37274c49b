"""Steps of a scheduler whose worker answers every request with the same token."""

from __future__ import annotations

from typing import Any

from inset.outputs import EngineOutput
from inset.sched.scheduler import Scheduler
from inset.step import ModelRunnerOutput, SchedulerOutput

__all__ = ["advance", "answer", "run_out"]


def answer(step: SchedulerOutput, scheduler: Scheduler, token_id: int = 1, **changes: Any) -> list[EngineOutput]:
    """Updates with a token for every request of the step; those in the middle of their prompt ignore it."""
    return scheduler.update(step, ModelRunnerOutput(sampled_token_ids=dict.fromkeys(step.num_scheduled_tokens, token_id), **changes))


def advance(scheduler: Scheduler) -> SchedulerOutput:
    """Plans a step, answers it, and checks the scheduler's books."""
    step = scheduler.schedule()
    answer(step, scheduler)
    scheduler.audit()
    return step


def run_out(scheduler: Scheduler, max_steps: int = 500) -> list[SchedulerOutput]:
    """Advances until no request is left, and returns the steps.

    Raises:
        AssertionError: It takes more than `max_steps`.
    """
    steps = []
    while scheduler.has_unfinished_requests():
        steps.append(advance(scheduler))
        assert len(steps) < max_steps
    return steps
