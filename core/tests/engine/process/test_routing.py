"""Each front end hears of its own requests alone."""

from __future__ import annotations

from inset.engine.messages import (
    AbortRequests,
    AddRequests,
    CacheMissed,
    DiscardCommit,
    EngineStats,
    ItemsReset,
    Reset,
    ResetDone,
    ResetItems,
    StepDone,
)
from inset.engine.process.routing import EventRouter
from inset.inputs import EngineRequest
from inset.outputs import EngineOutput

STATS = EngineStats(num_running=1)


def add(commit_id: str, *request_ids: str) -> AddRequests:
    return AddRequests(commit_id, [EngineRequest(request_id=request_id, prompt_token_ids=(1,)) for request_id in request_ids])


def router() -> EventRouter:
    made = EventRouter()
    made.add_front("front a")
    made.add_front("front b")
    made.note("front a", add("1", "1-0", "1-1"))
    made.note("front b", add("2", "2-0"))
    return made


def test_outputs_and_releases_go_to_the_front_end_that_sent_the_request() -> None:
    outputs = [EngineOutput(request_id="1-0"), EngineOutput(request_id="2-0", finish_reason="stop")]
    parts = router().split(StepDone(outputs, STATS, ["2"]))
    assert parts == {"front a": StepDone([outputs[0]], STATS), "front b": StepDone([outputs[1]], STATS, ["2"])}


def test_finished_request_is_forgotten() -> None:
    made = router()
    made.split(StepDone([EngineOutput(request_id="2-0", finish_reason="stop")], STATS))
    assert made.split(StepDone([EngineOutput(request_id="2-0")], STATS)) == {}


def test_cache_miss_goes_to_the_sender() -> None:
    missed = CacheMissed("2", [(b"x", 1)])
    assert router().split(missed, sender="front b") == {"front b": missed}


def test_discarded_commit_is_released_to_its_sender() -> None:
    made = router()
    made.note("front a", DiscardCommit("3"))
    assert made.split(StepDone((), STATS, ["3"]), sender="front a") == {"front a": StepDone([], STATS, ["3"])}


def test_front_end_that_is_gone_has_its_requests_aborted_and_hears_nothing_more() -> None:
    made = router()
    assert list(made.end_front("front a")) == [AbortRequests(("1-0", "1-1"))]
    aborted = [EngineOutput(request_id="1-0", finish_reason="abort"), EngineOutput(request_id="2-0")]
    assert made.split(StepDone(aborted, STATS, ["1"])) == {"front b": StepDone([aborted[1]], STATS)}
    assert list(made.end_front("front a")) == []


def test_command_that_arrives_after_the_end_of_its_front_end_is_not_carried_out() -> None:
    made = router()
    made.end_front("front a")
    assert not made.note("front a", add("3", "3-0"))
    assert not made.note("front a", Reset("mm_cache", "r"))
    assert made.split(StepDone([EngineOutput(request_id="3-0")], STATS, ["3"])) == {}
    assert made.note("front b", add("4", "4-0"))


def test_reset_of_items_reaches_every_front_end_and_ends_when_all_have_answered() -> None:
    made = router()
    assert made.note("front a", Reset("mm_cache", "r"))
    assert made.split(ResetItems("r"), sender="front a") == {"front a": ResetItems("r"), "front b": ResetItems("r")}
    assert not made.note("front b", ItemsReset("r"))
    assert not made.note("front b", ItemsReset("r"))
    assert made.note("front a", ItemsReset("r"))
    assert made.split(ResetDone("r"), sender="front a") == {"front a": ResetDone("r")}
    assert not made.note("front a", ItemsReset("r"))


def test_reset_does_not_wait_for_a_front_end_that_is_gone() -> None:
    made = router()
    made.note("front b", Reset("mm_cache", "r"))
    assert not made.note("front b", ItemsReset("r"))
    assert list(made.end_front("front a")) == [AbortRequests(("1-0", "1-1")), ItemsReset("r")]
    assert made.split(ResetDone("r")) == {"front b": ResetDone("r")}


def test_reset_of_the_engine_cores_own_caches_ends_at_once() -> None:
    made = router()
    assert made.note("front b", Reset("prefix_cache", "r"))
    assert made.split(ResetDone("r"), sender="front b") == {"front b": ResetDone("r")}
    assert made.end_front("front b") == [AbortRequests(("2-0",))]
