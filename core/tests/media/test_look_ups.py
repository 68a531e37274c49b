"""Look-ups of names: bounded for those whose names hang, shared by those who ask the same."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Iterator

import pytest

from inset.media.look_ups import MAX_LOOK_UPS, MAX_LOOK_UPS_PER_DOMAIN, AddressInfo, LookUps

WAIT_SECONDS = 20.0


class HangingResolver:
    """Answers when it may; records who was asked for."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.threads: list[threading.Thread] = []
        self.num_asked = threading.Semaphore(0)
        self.may_answer = threading.Event()

    def __call__(self, host: str, port: int) -> list[AddressInfo]:
        self.asked.append(host)
        self.threads.append(threading.current_thread())
        self.num_asked.release()
        assert self.may_answer.wait(WAIT_SECONDS)
        return [(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP, "", ("192.0.2.1", port))]

    async def wait_until_asked(self, num_times: int) -> None:
        for _ in range(num_times):
            assert await asyncio.to_thread(self.num_asked.acquire, timeout=WAIT_SECONDS)


@pytest.fixture
def resolver() -> Iterator[HangingResolver]:
    resolver = HangingResolver()
    yield resolver
    resolver.may_answer.set()


def test_those_who_ask_for_one_host_at_the_same_time_share_one_look_up(resolver: HangingResolver) -> None:
    async def scenario() -> None:
        look_ups = LookUps(resolver)
        asks = [asyncio.ensure_future(look_ups.find("a.example", 80)) for _ in range(8)]
        await resolver.wait_until_asked(1)
        resolver.may_answer.set()
        answers = await asyncio.wait_for(asyncio.gather(*asks), WAIT_SECONDS)
        assert [info[4] for answer in answers for info in answer] == [("192.0.2.1", 80)] * 8
        look_ups.close()

    asyncio.run(scenario())
    assert resolver.asked == ["a.example"]


def test_names_of_one_domain_have_few_threads_until_these_are_free_again(resolver: HangingResolver) -> None:
    async def scenario() -> None:
        look_ups = LookUps(resolver)
        for number in range(3):  # those who asked go away; the threads still hang
            asks = [asyncio.ensure_future(look_ups.find(f"{number}-{name}.example.net", 80)) for name in "abcdefgh"]
            if number == 0:
                await resolver.wait_until_asked(MAX_LOOK_UPS_PER_DOMAIN)
            other = asyncio.ensure_future(look_ups.find(f"host.other{number}.net", 80))
            await resolver.wait_until_asked(1)
            for ask in (*asks, other):
                ask.cancel()
            await asyncio.wait([*asks, other])
        assert sum(host.endswith("example.net") for host in resolver.asked) == MAX_LOOK_UPS_PER_DOMAIN
        resolver.may_answer.set()
        assert await asyncio.wait_for(look_ups.find("again.example.net", 80), WAIT_SECONDS)
        look_ups.close()

    asyncio.run(scenario())


def test_an_error_reaches_everyone_who_asked() -> None:
    def resolve(host: str, port: int) -> list[AddressInfo]:
        raise socket.gaierror(socket.EAI_NONAME, "unknown")

    async def scenario() -> list[object]:
        look_ups = LookUps(resolve)
        answers = await asyncio.gather(*(look_ups.find("a.example", 80) for _ in range(3)), return_exceptions=True)
        look_ups.close()
        return list(answers)

    assert [type(answer) for answer in asyncio.run(scenario())] == [socket.gaierror] * 3


def test_a_look_up_that_outlives_its_loop_ends_quietly(resolver: HangingResolver) -> None:
    async def scenario() -> LookUps:
        look_ups = LookUps(resolver)
        ask = asyncio.ensure_future(look_ups.find("a.example", 80))
        await resolver.wait_until_asked(1)
        ask.cancel()
        await asyncio.wait([ask])
        return look_ups

    look_ups = asyncio.run(scenario())
    look_ups.close()
    resolver.may_answer.set()


def test_names_that_hang_in_many_domains_hold_up_no_name_that_answered_last_time(resolver: HangingResolver) -> None:
    def resolve(host: str, port: int) -> list[AddressInfo]:
        return resolver(host, port) if host.startswith("hanging") else [(socket.AF_INET, socket.SOCK_STREAM, 0, "", ("192.0.2.2", port))]

    async def scenario() -> None:
        look_ups = LookUps(resolve)
        assert await look_ups.find("known.example", 80)
        asks = [asyncio.ensure_future(look_ups.find(f"hanging.{number}.example{number}", 80)) for number in range(MAX_LOOK_UPS + 8)]
        await resolver.wait_until_asked(MAX_LOOK_UPS)
        for _ in range(3):
            assert (await asyncio.wait_for(look_ups.find("known.example", 80), WAIT_SECONDS))[0][4] == ("192.0.2.2", 80)
        for ask in asks:
            ask.cancel()
        await asyncio.wait(asks)
        look_ups.close()

    asyncio.run(scenario())
    assert len(resolver.asked) == MAX_LOOK_UPS


def test_a_known_name_that_hangs_is_known_no_longer(resolver: HangingResolver) -> None:
    async def scenario() -> None:
        look_ups = LookUps(resolver)
        resolver.may_answer.set()
        assert await look_ups.find("host.example", 80)
        await resolver.wait_until_asked(1)
        resolver.may_answer.clear()
        for port in (80, 81):
            ask = asyncio.ensure_future(look_ups.find("host.example", port))
            await resolver.wait_until_asked(1)
            ask.cancel()
            await asyncio.wait([ask])
        names = [thread.name.rpartition("_")[0] for thread in resolver.threads]
        assert names == ["inset-dns", "inset-known-dns", "inset-dns"]
        look_ups.close()

    asyncio.run(scenario())


@pytest.mark.parametrize("num_others", [0, MAX_LOOK_UPS_PER_DOMAIN], ids=["hangs", "waits for a thread"])
def test_a_look_up_that_gives_no_answer_in_time_says_so(resolver: HangingResolver, num_others: int) -> None:
    async def scenario() -> None:
        look_ups = LookUps(resolver, timeout_seconds=0.05)
        asks = [look_ups.find(f"{number}.example.net", 80) for number in range(num_others + 1)]
        answers = await asyncio.wait_for(asyncio.gather(*asks, return_exceptions=True), WAIT_SECONDS)
        assert [str(answer) for answer in answers] == [f"[Errno {socket.EAI_AGAIN}] no answer in time"] * len(asks)
        look_ups.close()

    asyncio.run(scenario())
