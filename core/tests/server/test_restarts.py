from __future__ import annotations

from inset.server.restarts import RestartPolicy


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


def test_front_end_that_lived_long_is_started_again_at_once() -> None:
    policy = RestartPolicy(clock=Clock())
    assert policy.note_end(3, lived_seconds=61)
    assert (policy.is_waiting, policy.seconds_until_next(1.0)) == (True, 0)
    assert policy.take_due() == [3]
    assert (policy.is_waiting, policy.seconds_until_next(1.0)) == (False, 1.0)


def test_each_early_end_doubles_the_wait_until_there_is_no_use_in_it() -> None:
    clock = Clock()
    policy = RestartPolicy(clock=clock)
    for delay in (0.5, 1, 2, 4, 8):
        assert policy.note_end(0, lived_seconds=1)
        assert policy.take_due() == []
        assert policy.seconds_until_next(60.0) == delay
        clock.now += delay
        assert policy.take_due() == [0]
    assert not policy.note_end(0, lived_seconds=1)
    assert not policy.is_waiting


def test_one_that_lives_long_takes_its_early_ends_back() -> None:
    policy = RestartPolicy(clock=Clock())
    for _ in range(5):
        policy.note_end(0, lived_seconds=1)
    policy.note_end(0, lived_seconds=1000)
    assert policy.note_end(0, lived_seconds=1)


def test_ends_of_one_front_end_do_not_count_against_another() -> None:
    policy = RestartPolicy(clock=Clock())
    assert all(policy.note_end(number, lived_seconds=1) for number in range(8))
    for _ in range(5):
        policy.note_end(0, lived_seconds=1)
    assert policy.note_end(1, lived_seconds=1)
