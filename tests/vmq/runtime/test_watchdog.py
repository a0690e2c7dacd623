"""Who holds the event loop up, as the log says it."""

import asyncio
import json
import logging
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import pytest
import uvloop

from tests.conftest import BrokerFactory
from tests.support.wire import TIMEOUT, Wire
from vmq.runtime.watchdog import HELD, LATE, CodePlace, Watchdog, blame_of, places_in, places_of

PLUGINS = {"/p/one.py": "one", "/p/two.py": "two"}
DUMP = """Timeout (0:00:01)!
Thread 0x00007f0000000001 (most recent call first):
  File "/usr/lib/threading.py", line 324 in wait

Thread 0x00007f0000000002 (most recent call first):
  File "/usr/lib/re.py", line 190 in match
  File "/p/one.py", line 7 in check
  File "/p/one.py", line 3 in on_deliver
  File "/vmq/asyncio.py", line 1 in run
"""
LOOP = 0x7F0000000002


def test_a_plugin_is_blamed_for_its_innermost_line_and_by_the_hook_that_it_serves() -> None:
    places = places_in(DUMP, LOOP)
    assert places[0] == CodePlace("/usr/lib/re.py", 190, "match")
    blame = blame_of(places, PLUGINS.get)
    assert blame == ("one", "on_deliver", ("/p/one.py", 7, "check"))


def test_the_plugin_that_was_called_last_is_blamed() -> None:
    places = [CodePlace("/p/two.py", 5, "helper"), CodePlace("/p/one.py", 3, "on_publish")]
    assert blame_of(places, PLUGINS.get) == ("two", "", ("/p/two.py", 5, "helper"))


def test_code_that_is_no_plugins_is_nobodys_fault() -> None:
    places = [CodePlace("/vmq/a.py", 5, "on_deliver"), CodePlace("/vmq/b.py", 3, "run")]
    assert blame_of(places, PLUGINS.get) == ("", "", places[0])


def test_only_the_last_dump_of_the_loops_thread_counts() -> None:
    assert places_in(DUMP + DUMP.replace("line 7", "line 8"), LOOP)[1].line == 8
    assert places_in(DUMP, 0x7F0000000003) == []


def watched(blocked: list[str]) -> Watchdog:
    """One whose thread does not run: the test, whose thread is the loop's, steps itself."""
    watchdog = Watchdog(lambda file: "p" if file == __file__ else None, blocked.append)
    watchdog._loop_thread = threading.get_ident()
    return watchdog


def on_deliver(watchdog: Watchdog, steps: int) -> None:
    """Stands for a plugin that does not return for so many steps, which a thread takes meanwhile."""

    def look() -> None:
        for number in range(steps):
            watchdog.step(number / 10, number / 10)

    thread = threading.Thread(target=look)
    thread.start()
    thread.join()


def test_a_loop_that_stands_still_is_told_once_with_plugin_hook_and_line(
    caplog: pytest.LogCaptureFixture,
) -> None:
    blocked: list[str] = []
    watchdog = watched(blocked)
    caplog.set_level(logging.INFO)
    on_deliver(watchdog, LATE - 1)
    assert caplog.messages == []
    on_deliver(watchdog, 3 * LATE)
    (line,) = caplog.messages
    assert line.startswith("event loop blocked for=0.4s plugin=p hook=on_deliver at=")
    assert f"{__file__}:" in line
    watchdog.beat()
    on_deliver(watchdog, 1)
    assert caplog.messages[-1].startswith("event loop goes on")
    assert [each.levelno for each in caplog.records] == [logging.ERROR, logging.WARNING]
    assert blocked == ["p"]


def test_what_no_step_could_see_at_first_is_told_later(caplog: pytest.LogCaptureFixture) -> None:
    """As when compiled code, which has no frames, calls one plugin after the other."""
    watchdog = watched([])
    caplog.set_level(logging.INFO)
    watchdog._base = base = sys._getframe()
    looking = threading.Lock()
    looking.acquire()

    def look() -> None:
        while sys._current_frames()[watchdog._loop_thread] is not base:
            pass
        for number in range(LATE):
            watchdog.step(number / 10, number / 10)
        looking.release()

    thread = threading.Thread(target=look)
    thread.start()
    looking.acquire()  # a function in C, which has no frame
    thread.join()
    assert caplog.messages == []
    on_deliver(watchdog, 1)
    (line,) = caplog.messages
    assert "plugin=p hook=on_deliver" in line


@pytest.mark.parametrize("run", [asyncio.run, uvloop.run])
def test_a_program_that_runs_the_loop_is_not_blamed_for_what_the_loop_runs(
    run: Callable[[Coroutine[Any, Any, None]], None], caplog: pytest.LogCaptureFixture
) -> None:
    """It may be the file of a plugin, too."""
    watchdog = watched([])
    caplog.set_level(logging.INFO)
    main = threading.get_ident()

    def look() -> None:
        while "join" not in (at.function for at in places_of(sys._current_frames()[main], None)):
            pass
        for number in range(1 + LATE):
            watchdog.step(number / 10, number / 10)

    async def program() -> None:
        def step() -> None:
            watchdog.beat()

        loop, over = asyncio.get_running_loop(), asyncio.Event()
        loop.call_soon(step)
        thread = threading.Thread(target=look)
        loop.call_later(0, thread.start)
        loop.call_later(0, thread.join)
        loop.call_later(0, over.set)
        await over.wait()

    run(program())
    (line,) = caplog.messages
    assert "plugin=none" in line


def test_what_the_broker_itself_takes_time_for_is_no_alarm(
    caplog: pytest.LogCaptureFixture,
) -> None:
    blocked: list[str] = []
    watchdog = Watchdog(lambda _file: None, blocked.append)
    watchdog._loop_thread = threading.get_ident()
    caplog.set_level(logging.INFO)
    on_deliver(watchdog, LATE)
    watchdog.beat()
    on_deliver(watchdog, 1)
    assert [each.levelno for each in caplog.records] == [logging.INFO, logging.INFO]


def test_a_process_that_was_stopped_is_blamed_on_nobody(caplog: pytest.LogCaptureFixture) -> None:
    blocked: list[str] = []
    watchdog = watched(blocked)
    watchdog.step(100.0, 5.0)
    watchdog.step(160.0, 5.1)
    assert "process was stopped for=60.0s" in caplog.messages[-1]
    assert blocked == []


def test_where_python_runs_nobody_follows_its_frames(caplog: pytest.LogCaptureFixture) -> None:
    """They change meanwhile: faulthandler, which stops nobody, would end the process by SIGSEGV sooner or later."""
    caplog.set_level(logging.INFO)
    blocked: list[str] = []
    before = signal.getsignal(signal.SIGPROF)
    watchdog = Watchdog(lambda _file: None, blocked.append, dumps=True)
    watchdog.start()
    try:
        watchdog.beat()
        since = time.process_time()
        # No beat any more, as when a start takes its time, for so long that a timer of faulthandler's had expired.
        while time.process_time() < since + 2 * HELD or not caplog.messages:
            json.loads(json.dumps([*map(str, range(100))]))
        assert watchdog._dump is not None
        assert os.fstat(watchdog._dump.fileno()).st_size == 0
    finally:
        watchdog.stop()
    assert signal.getsignal(signal.SIGPROF) is before
    assert "event loop blocked" in caplog.messages[0]


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
def test_of_two_in_a_process_one_has_the_timer(order: tuple[int, int]) -> None:
    """That of the other would end the process once the first has given its signal back."""
    before = signal.getsignal(signal.SIGPROF)
    stepped = threading.Event()

    class Stepping(Watchdog):
        def step(self, _now: float, _cpu: float) -> None:
            stepped.set()

    watchdogs = [Stepping(lambda _file: None, lambda _name: None, dumps=True) for _ in range(2)]
    for each in watchdogs:
        each.start()
    try:
        watchdogs[order[0]].stop()
        for _ in range(2):  # the first may have begun before
            stepped.clear()
            assert stepped.wait(TIMEOUT)
        has_timer = signal.getitimer(signal.ITIMER_PROF)[0] > 0
        assert has_timer == (signal.getsignal(signal.SIGPROF) is not before) == (order[0] == 1)
    finally:
        watchdogs[order[1]].stop()
    assert signal.getsignal(signal.SIGPROF) is before
    assert signal.getitimer(signal.ITIMER_PROF) == (0.0, 0.0)


BLOCKS = """
import time

from vmq_hooks import Plugin, hook


class Blocks(Plugin):
    @hook
    def on_publish(self, message):
        if message.topic == "sleep":
            time.sleep(0.9)
        if message.topic == "compute":
            self.compute()

    def compute(self):
        sum(range(10**9 // 6))  # one step of the interpreter
"""


@pytest.mark.parametrize(
    ("topic", "line"), [("sleep", "time.sleep(0.9)"), ("compute", "sum(range(10**9 // 6))")]
)
def test_a_plugin_that_blocks_a_broker_is_named_with_its_line(
    fresh_broker: BrokerFactory, tmp_path: Path, topic: str, line: str
) -> None:
    source = tmp_path / "blocks.py"
    source.write_text(BLOCKS)
    config = tmp_path / "vmq.toml"
    config.write_text(f'[plugins.blocks]\npath = "{source}"\n')
    http = "http://127.0.0.1:0"
    # With a variable of the interpreter it is one of its own: faulthandler does not follow one that is forked.
    broker = fresh_broker(
        ("tcp://127.0.0.1:0", http),
        env={"PYTHONHASHSEED": "0"},
        args=("--allow-anonymous", "--config", str(config)),
    )
    wire = Wire.connected(broker.tcp, "c")
    wire.publish(topic, b"", qos=1)
    wire.stream.close()
    number = next(at for at, text in enumerate(BLOCKS.splitlines(), 1) if line in text)
    broker.wait_log(
        rf"event loop blocked .* plugin=blocks hook=on_publish at=\"{source}:{number} in "
    )
    if topic == "sleep":
        broker.wait_log("event loop goes on")
    with urlopen(f"{broker.http}/metrics") as answer:
        metrics = answer.read().decode()
    assert 'plugin_event_loop_blocked_total{plugin="blocks"} 1.0' in metrics
    assert 'plugin_hook_seconds_count{hook="on_publish",plugin="blocks"} 1.0' in metrics
