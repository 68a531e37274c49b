"""The engine core's side of the sockets, with an engine core that has nothing to do."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from inset.engine.core_client import EngineListener
from inset.engine.messages import AbortRequests, AddRequests, EngineEvent, EngineStats, Reset, ResetDone
from inset.engine.process import control, zmq_client
from inset.engine.process.core_server import CoreServer
from inset.engine.process.zmq_client import ZmqClient
from inset.errors import ConfigError, EngineDeadError, OverloadedError
from inset.inputs import EngineRequest
from inset.testing.waiting import wait_until

WAIT_SECONDS = 30.0


class IdleCore:
    """Answers resets, takes everything else, and counts what was added as waiting."""

    has_work = False

    def __init__(self) -> None:
        self.num_waiting = 0
        self.hold = threading.Event()
        self.hold.set()

    def handle(self, command: Any) -> EngineEvent | None:
        assert self.hold.wait(WAIT_SECONDS)
        match command:
            case AddRequests():
                self.num_waiting += len(command.requests)
            case AbortRequests():
                self.num_waiting -= len(command.request_ids)
        return ResetDone(command.token) if isinstance(command, Reset) else None

    def stats(self) -> EngineStats:
        return EngineStats(num_waiting=self.num_waiting)


class Heard(EngineListener):
    def __init__(self) -> None:
        self.events: list[EngineEvent] = []
        self.stats = EngineStats()
        self.changed = threading.Event()

    def on_event(self, event: EngineEvent) -> None:
        self.events.append(event)
        self.changed.set()

    def on_stats(self, stats: EngineStats) -> None:
        self.stats = stats

    def on_death(self, error: EngineDeadError) -> None:
        self.changed.set()


def hello(name: str) -> control.Hello:
    return control.Hello(name, [], None, 16, 16, 16)


@pytest.fixture
def core() -> IdleCore:
    return IdleCore()


@pytest.fixture
def folder(core: IdleCore, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The folder of a server whose front ends are refused where their name says so."""

    def admit(greeting: control.Hello, export: object) -> None:
        if greeting.front_id == "refused":
            raise ConfigError("not this one")

    folder = tmp_path_factory.mktemp("c")
    server = CoreServer(folder, admit=admit, get_core=lambda: core, outlives_fronts=True)  # type: ignore[arg-type, return-value]
    serving = threading.Thread(target=server.serve)
    serving.start()
    yield folder
    core.hold.set()
    server.stop()
    serving.join(WAIT_SECONDS)
    assert not serving.is_alive()


def test_front_end_that_stays_silent_holds_up_no_other(folder: Path) -> None:
    with control.connect(folder) as silent:
        silent.setblocking(False)
        client, heard = ZmqClient(folder, hello=hello("0"), export=None), Heard()
        client.start(heard)
        client.send(Reset("prefix_cache", "r"))
        assert heard.changed.wait(WAIT_SECONDS)
        assert heard.events == [ResetDone("r")]
        assert not control.has_ended(silent), "the silent one was waited for"
        client.close()


def test_refused_front_end_hears_why_and_another_may_come(folder: Path) -> None:
    with pytest.raises(ConfigError, match="not this one"):
        ZmqClient(folder, hello=hello("refused"), export=None)
    ZmqClient(folder, hello=hello("0"), export=None).close()
    ZmqClient(folder, hello=hello("1"), export=None).close()


def test_bytes_count_as_on_the_way_until_the_engine_cores_process_has_them(
    folder: Path, core: IdleCore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(zmq_client, "_MAX_BYTES_ON_THE_WAY", 3000)
    request = AddRequests("c", [EngineRequest(request_id="c-0", prompt_token_ids=[1] * 2000)])
    client = ZmqClient(folder, hello=hello("0"), export=None)
    client.send(request)
    with pytest.raises(OverloadedError, match="on its way"):
        client.send(request)
    client.send(Reset("prefix_cache", "r"))  # requests alone are refused
    client.start(Heard())

    def is_taken() -> bool:
        try:
            client.send(request)
        except OverloadedError:
            return False
        return True

    wait_until(is_taken)
    client.close()


def test_engine_core_gives_signs_of_life_while_a_step_takes_long(folder: Path, core: IdleCore) -> None:
    client = ZmqClient(folder, hello=hello("0"), export=None)
    client.start(Heard())
    core.hold.clear()
    client.send(Reset("prefix_cache", "r"))
    looks = [0.0]

    def is_heard() -> bool:
        looks.append(client.seconds_silent)
        return looks[-1] < looks[-2]

    for _ in range(2):
        wait_until(is_heard)
    client.close()


def test_front_end_hears_how_the_engine_core_stands_while_none_of_its_own_requests_speaks(folder: Path) -> None:
    busy, quiet = (ZmqClient(folder, hello=hello(name), export=None) for name in ("0", "1"))
    heard = Heard()
    busy.start(Heard())
    quiet.start(heard)
    busy.send(AddRequests("c", [EngineRequest(request_id=f"c-{index}", prompt_token_ids=[1]) for index in range(3)]))
    wait_until(lambda: heard.stats.num_waiting == 3)
    busy.send(AbortRequests([f"c-{index}" for index in range(3)]))
    wait_until(lambda: heard.stats.num_waiting == 0)
    assert heard.events == []
    busy.close()
    quiet.close()
