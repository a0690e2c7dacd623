"""A worker as its supervisor sees it, with small programs in the place of brokers."""

import asyncio
import signal
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack

import pytest

from tests.support.until import until
from vmq.config.options import Config, QueueOptions
from vmq.config.overrides import LiveConfig
from vmq.runtime.share import Share
from vmq.workers import process
from vmq.workers.control import BeginWorker, WorkerSettings
from vmq.workers.process import Worker, WorkerState

HEAD = """
import asyncio, os, signal, socket, sys
from vmq.workers.control import *
async def main():
    channel = await Channel.over(socket.socket(fileno=int(sys.argv[1])))
    begin = await channel.receive()
"""
TAIL = "asyncio.run(main())"
#: What it does then.
LIVES = """
    channel.send(WorkerReady())
    while (message := await channel.receive()) is not None:
        channel.send(Followed(message.settings.config.queue.drop))
"""
FAILS = """
    channel.send(WorkerFailed("no room"))
    await channel.close()
    sys.exit(1)
"""
FORKS = """
    if os.fork() == 0:
        signal.alarm(60)
        signal.pause()
    channel.send(WorkerReady())
    os._exit(3)
"""
HANGS = """
    channel.send(WorkerReady())
    await asyncio.sleep(0)
    signal.pause()
"""
#: Takes its time to stop, and lives.
LASTS = """
    over = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, int)
    asyncio.get_running_loop().add_signal_handler(signal.SIGUSR1, over.set)
    channel.send(WorkerReady())
    while not over.is_set():
        channel.send(Alive())
        await asyncio.sleep(0.01)
"""
TIMEOUT = 60

SETTINGS = WorkerSettings.of(LiveConfig.of(Config()))
BEGIN = BeginWorker(SETTINGS, Share(number=2, listeners=frozenset(), folder="/"))
Make = Callable[..., Worker]


@pytest.fixture
async def make() -> AsyncIterator[Make]:
    async with AsyncExitStack() as stack:

        def made(program: str, silence: float | None = None) -> Worker:
            worker = Worker(
                2, lambda: BEGIN, (sys.executable, "-c", HEAD + program + TAIL), silence
            )
            stack.push_async_callback(worker.stop)
            worker.start()
            return worker

        yield made


async def begun(worker: Worker) -> Worker:
    await asyncio.wait_for(worker.begun.wait(), TIMEOUT)
    return worker


async def test_it_runs_until_it_is_stopped(make: Make) -> None:
    worker = make(LIVES)
    assert worker.problem() == "worker 2 is starting"
    await asyncio.wait_for(worker.begun.wait(), TIMEOUT)
    assert worker.is_running
    assert worker.problem() is None
    assert worker.pid
    await worker.stop()
    assert worker.state is WorkerState.STOPPED
    assert worker.pid == 0


async def test_one_that_is_killed_is_started_again(make: Make) -> None:
    worker = await begun(make(LIVES))
    before = worker.pid
    worker.signal(signal.SIGKILL)
    await until(lambda: worker.state is WorkerState.WAITING)
    assert worker.problem() == "worker 2 is waiting to be started again: killed by SIGKILL"
    await until(lambda: worker.is_running)
    assert worker.pid != before
    assert worker.restarts == 1


async def test_one_that_cannot_start_says_why(make: Make) -> None:
    worker = await begun(make(FAILS))
    assert not worker.is_running
    assert worker.problem() == "worker 2 is waiting to be started again: no room"


async def test_one_that_cannot_even_run_says_why() -> None:
    worker = Worker(2, lambda: BEGIN, ("/nowhere/python",))
    worker.start()
    await asyncio.wait_for(worker.begun.wait(), TIMEOUT)
    assert "cannot start a process" in str(worker.problem())
    await worker.stop()


async def test_it_is_told_of_changes_and_answers(make: Make) -> None:
    worker = await begun(make(LIVES))
    assert await asyncio.wait_for(worker.follow(SETTINGS), TIMEOUT) == "newest"
    await worker.stop()
    assert await worker.follow(SETTINGS) == ""  # whoever is gone begins with it


async def test_one_that_ends_instead_of_answering_holds_up_nobody(make: Make) -> None:
    worker = await begun(make(HANGS))
    answer = asyncio.create_task(worker.follow(SETTINGS))
    await asyncio.sleep(0)
    worker.signal(signal.SIGKILL)
    assert await asyncio.wait_for(answer, TIMEOUT) == ""


async def test_one_that_hangs_holds_up_a_change_for_a_while_only(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    worker = await begun(make(LIVES))
    with monkeypatch.context() as patched:
        patched.setattr(process, "PATIENCE", 0.0)
        assert await asyncio.wait_for(worker.follow(SETTINGS), TIMEOUT) == (
            "worker 2 has not answered for 0 s"
        )
    later = WorkerSettings.of(LiveConfig.of(Config(queue=QueueOptions(drop="oldest"))))
    assert (
        await asyncio.wait_for(worker.follow(later), TIMEOUT) == "oldest"
    )  # and not the one before


@pytest.mark.parametrize("program", [LIVES, HANGS])
async def test_whoever_waits_for_its_answer_may_go_and_it_still_ends(
    program: str, make: Make
) -> None:
    """As at a stop during a reload."""
    worker = await begun(make(program))
    answer = asyncio.create_task(worker.follow(SETTINGS))
    await asyncio.sleep(0)
    answer.cancel()
    await asyncio.wait_for(worker.stop(), TIMEOUT)
    assert worker.state is WorkerState.STOPPED
    assert worker.pid == 0


async def test_the_end_is_seen_though_a_process_of_its_own_goes_on(make: Make) -> None:
    worker = await begun(make(FORKS))
    await until(lambda: worker.restarts == 1)


async def test_one_that_hangs_is_ended_and_started_again(make: Make) -> None:
    worker = await begun(make(HANGS, 5.0))
    now = asyncio.get_running_loop().time()
    worker.look(now + 4.0)
    assert worker.is_running
    worker.look(now + 6.0)
    await until(lambda: worker.restarts == 1)
    await until(lambda: worker.is_running)


async def test_one_that_hangs_when_it_is_to_stop_is_killed(
    make: Make, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(process, "_LAST_SILENCE", 0.1)
    worker = await begun(make("    signal.signal(signal.SIGTERM, signal.SIG_IGN)\n" + HANGS))
    await asyncio.wait_for(worker.stop(), TIMEOUT)
    assert worker.state is WorkerState.STOPPED
    assert "no sign of life for 0.1 s" in caplog.text


async def test_one_that_gives_signs_of_life_is_waited_for(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    heard = set()
    end_silent = Worker._end_silent

    def look(worker: Worker, now: float, silence: float) -> None:
        heard.add(worker._heard)
        end_silent(worker, now, silence)

    monkeypatch.setattr(process, "_LOOK", 0.01)
    monkeypatch.setattr(Worker, "_end_silent", look)
    worker = await begun(make(LASTS))
    stopping = asyncio.create_task(worker.stop())
    await until(lambda: len(heard) > 3)
    assert not stopping.done()
    worker.signal(signal.SIGUSR1)
    await asyncio.wait_for(stopping, TIMEOUT)
    assert worker.state is WorkerState.STOPPED
    assert worker.trouble == "exit code 0"


async def test_a_stop_needs_not_wait_for_the_next_start(make: Make) -> None:
    worker = make(FAILS)
    await until(lambda: worker.state is WorkerState.WAITING)
    await asyncio.wait_for(worker.stop(), TIMEOUT)
    assert worker.state is WorkerState.STOPPED


async def test_a_stop_may_come_before_there_is_a_process(make: Make) -> None:
    worker = make(LIVES)
    await asyncio.wait_for(worker.stop(), TIMEOUT)
    assert worker.state is WorkerState.STOPPED
