"""Front end and engine core in real processes: right answers with every cache type, and no harm from any death."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest
from PIL import Image

from inset import LLM, AsyncLLM, SamplingParams
from inset.config import Configs, read_configs
from inset.engine.build import build_front
from inset.engine.process.control import Hello
from inset.engine.process.launcher import EngineProcess
from inset.engine.process.zmq_client import ZmqClient
from inset.engine.prompts import TextPrompt
from inset.errors import ConfigError, EngineDeadError
from inset.testing.tiny_checkpoints import build_tiny_llava

GREEDY = SamplingParams(temperature=0, max_tokens=8, ignore_eos=True)
LONG = SamplingParams(temperature=0, max_tokens=2000, ignore_eos=True)
WAIT_SECONDS = 30.0


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_tiny_llava(tmp_path_factory.mktemp("checkpoint"))


def configs_of(checkpoint: Path, **options: Any) -> Configs:
    return read_configs({"model": str(checkpoint), "engine_threads": 1, "mm_processor_cache_gb": 0.01, **options}, {})


def prompt(number: int, *, words: str = "what?") -> TextPrompt:
    pixels = np.random.default_rng(number).integers(0, 256, (60, 80, 3), dtype=np.uint8)
    return TextPrompt(prompt=f"USER: <image> {words} ASSISTANT:", multi_modal_data={"image": [Image.fromarray(pixels)]})


@pytest.fixture(scope="module")
def expected(checkpoint: Path) -> Callable[[int], list[int]]:
    """The answers of an engine in this process without any cache."""
    known: dict[int, list[int]] = {}

    def of(number: int) -> list[int]:
        if number not in known:
            with LLM(checkpoint, engine_threads=1, mm_processor_cache_gb=0, enable_prefix_caching=False) as llm:
                for index in range(12):
                    known[index] = llm.generate(prompt(index), GREEDY)[0].outputs[0].token_ids
        return known[number]

    return of


async def answer(engine: AsyncLLM, number: int, params: SamplingParams = GREEDY) -> list[int]:
    async for output in engine.generate(prompt(number), params):
        last = output.outputs[0].token_ids
    return last


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(WAIT_SECONDS):
        while not condition():  # noqa: ASYNC110 - the engine offers no event for this
            await asyncio.sleep(0.01)


@pytest.fixture(scope="module", params=["lru", "shm", "processor_only"])
def served(request: pytest.FixtureRequest, checkpoint: Path) -> Iterator[tuple[EngineProcess, Configs]]:
    configs = configs_of(checkpoint, mm_processor_cache_type=request.param)
    with EngineProcess(configs) as process:
        process.wait_until_listening()
        yield process, configs


def test_every_cache_type_gives_right_answers_in_two_processes(
    served: tuple[EngineProcess, Configs], expected: Callable[[int], list[int]]
) -> None:
    """One engine core serves all of this test: answers, one encoder run for sixteen askers, resets, aborts, and books that come to zero."""
    process, configs = served
    engine = build_front(configs, process.folder, front_id="0")
    cache = engine.core.cache
    assert cache is not None

    async def run() -> None:
        async with engine:
            for number in (0, 1, 0, 1, 1, 0):
                assert await answer(engine, number) == expected(number)
            runs = engine.stats.values["num_encoder_runs"]
            answers = await asyncio.gather(*(answer(engine, 2) for _ in range(16)))
            assert all(tokens == expected(2) for tokens in answers)
            assert engine.stats.values["num_encoder_runs"] == runs + 1
            await engine.reset("mm_cache")
            await engine.reset("prefix_cache")
            await engine.reset("encoder_cache")
            numbers = [index % 12 for index in range(36)]
            results = await asyncio.gather(*(answer(engine, number) for number in numbers))
            assert results == [expected(number) for number in numbers]
            tasks = [asyncio.create_task(answer(engine, number, LONG)) for number in range(6)]
            await until(lambda: engine.stats.num_running >= 3)
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            assert await answer(engine, 5) == expected(5)
            await until(lambda: engine.stats.num_running == 0 and cache.stats.num_leases == 0)

    asyncio.run(run())


def open_segments() -> list[str]:
    """Where this process holds segments of processor caches: they have no name, and end with their last descriptor."""
    links = [(number, Path("/proc/self/fd", number)) for number in os.listdir("/proc/self/fd")]
    return sorted(number for number, link in links if link.is_symlink() and "inset-processor-cache" in os.readlink(link))


def test_killed_engine_core_ends_every_request_with_an_error_and_leaves_nothing(checkpoint: Path) -> None:
    before = open_segments()
    configs = configs_of(checkpoint, mm_processor_cache_type="shm")
    with EngineProcess(configs) as process:
        process.wait_until_listening()
        engine = build_front(configs, process.folder, front_id="0")

        async def run() -> list[Any]:
            async with engine:
                tasks = [asyncio.create_task(answer(engine, number, LONG)) for number in range(6)]
                await until(lambda: engine.stats.num_running >= 3)
                os.kill(process.pid, signal.SIGKILL)
                async with asyncio.timeout(WAIT_SECONDS):
                    results = await asyncio.gather(*tasks, return_exceptions=True)
                assert not engine.is_alive
                assert len(open_segments()) > len(before)
                with pytest.raises(EngineDeadError):
                    await answer(engine, 0)
                return results

        results = asyncio.run(run())
        assert all(isinstance(result, EngineDeadError) for result in results)
    assert not process.folder.exists()
    assert not process.is_running
    assert open_segments() == before


SECOND_FRONT = """
import asyncio, sys
from pathlib import Path
from inset import SamplingParams
from inset.config import read_configs
from inset.engine.build import build_front
from inset.engine.prompts import TextPrompt

async def main():
    configs = read_configs({"model": sys.argv[1], "mm_processor_cache_gb": 0.01}, {})
    async with build_front(configs, Path(sys.argv[2]), front_id="1", num_fronts=2) as engine:
        params = SamplingParams(temperature=0, max_tokens=4000, ignore_eos=True)
        async for output in engine.generate(TextPrompt(prompt="go on"), params):
            print("generating", flush=True)

asyncio.run(main())
"""


def test_killed_front_end_frees_what_it_held_and_disturbs_no_other(checkpoint: Path, expected: Callable[[int], list[int]]) -> None:
    configs = configs_of(checkpoint)
    with EngineProcess(configs) as process:
        process.wait_until_listening()
        engine = build_front(configs, process.folder, front_id="0", num_fronts=2)

        async def run() -> None:
            async with engine:
                other = await asyncio.create_subprocess_exec(
                    sys.executable, "-c", SECOND_FRONT, str(checkpoint), str(process.folder), stdout=asyncio.subprocess.PIPE
                )
                assert other.stdout is not None
                async with asyncio.timeout(WAIT_SECONDS):
                    assert await other.stdout.readline() == b"generating\n"
                assert await answer(engine, 1) == expected(1)
                other.kill()
                await other.wait()

                for _ in range(1000):  # each answer brings the engine core's state
                    assert await answer(engine, 1) == expected(1)
                    if engine.stats.num_running == 0:
                        return
                pytest.fail("the engine core still runs what the killed front end had asked for")

        asyncio.run(run())


def test_reset_of_items_reaches_every_front_end_and_a_stopped_engine_core_falls_silent(checkpoint: Path) -> None:
    configs = configs_of(checkpoint)
    with EngineProcess(configs) as process:
        process.wait_until_listening()
        engines = [build_front(configs, process.folder, front_id=name, num_fronts=2) for name in ("0", "1")]
        caches = [engine.core.cache for engine in engines]

        async def run() -> None:
            async with engines[0], engines[1]:
                for engine in engines:
                    async for output in engine.generate(prompt(0), GREEDY):
                        stages = output.stage_seconds
                    assert stages["transfer"] >= 0
                assert [cache is not None and cache.stats.num_items for cache in caches] == [1, 1]
                await engines[0].reset("mm_cache")
                assert [cache is not None and cache.stats.num_items for cache in caches] == [0, 0]
                os.kill(process.pid, signal.SIGSTOP)
                await until(lambda: all(engine.client.seconds_silent > 3 for engine in engines))
                assert all(engine.is_alive for engine in engines)
                os.kill(process.pid, signal.SIGCONT)
                await until(lambda: all(engine.client.seconds_silent < 3 for engine in engines))

        asyncio.run(run())


PARENT = """
import sys
from inset.config import read_configs
from inset.engine.process.launcher import EngineProcess

process = EngineProcess(read_configs({"model": sys.argv[1]}, {}))
process.wait_until_listening()
print(process.pid, process.folder, flush=True)
sys.stdin.read()
"""


def test_killed_parent_leaves_neither_engine_core_nor_folder_behind(checkpoint: Path) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(PARENT), str(checkpoint)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as parent:
        assert parent.stdout is not None
        pid, folder = parent.stdout.readline().decode().split()
        core = psutil.Process(int(pid))
        parent.kill()
        gone, _ = psutil.wait_procs([core], timeout=WAIT_SECONDS)
        assert gone
        assert not Path(folder).exists()


def test_front_end_with_other_plugins_or_an_unservable_option_is_refused_with_the_reason(checkpoint: Path) -> None:
    configs = configs_of(checkpoint, dtype="int3")
    with EngineProcess(configs) as process:
        process.wait_until_listening()
        stranger = Hello("9", [["stranger", "9.9", "stranger.plugin"]], None, 4096, 2048, 2048)
        with pytest.raises(ConfigError, match=r"(?s)stranger.*inset-llava|inset-llava.*stranger"):
            ZmqClient(process.folder, hello=stranger, export=None)
        with pytest.raises(ConfigError, match="dtype"):
            build_front(configs, process.folder, front_id="0")
        assert process.is_running


def test_engine_core_that_cannot_start_says_so_at_once(tmp_path: Path) -> None:
    with EngineProcess(configs_of(tmp_path / "nowhere")) as process:
        with pytest.raises(ConfigError, match="is neither a folder nor"):
            process.wait_until_listening(WAIT_SECONDS)
