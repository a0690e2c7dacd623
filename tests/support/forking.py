"""Runs a session's tests in processes that are forked once all tests are collected.

Collecting ten thousand tests takes each process of pytest-xdist several seconds, and so does importing what brokers are
forked from. Both are done once, before; what is collected is in the memory of all.
"""

import atexit
import os
import sys
from contextlib import suppress
from dataclasses import dataclass, field
from io import StringIO
from multiprocessing.connection import Connection, Pipe, wait
from typing import Final

import pytest

from tests.support.spreading import next_of, scope_of
from vmq.testing.forks import fork_from_one

_PROCESSES: Final = pytest.StashKey[int]()


def pytest_cmdline_main(config: pytest.Config) -> None:
    """The processes of `-n` are those here: each of xdist's collects all tests for itself."""
    config.stash[_PROCESSES] = config.getoption("numprocesses", 0) or 0
    config.option.dist, config.option.tx = "no", []


@pytest.hookimpl(tryfirst=True)
def pytest_collection(session: pytest.Session) -> None:
    """What brokers are forked from imports what they need while tests are collected."""
    if session.config.stash[_PROCESSES] and not session.config.option.collectonly:
        fork_from_one()


@pytest.hookimpl(tryfirst=True)
def pytest_runtestloop(session: pytest.Session) -> bool | None:
    count = session.config.stash[_PROCESSES]
    if not count or session.testsfailed or session.config.option.collectonly:
        return None
    Forking(session, count).run()
    if session.shouldfail:
        raise session.Failed(session.shouldfail)
    return True


@dataclass
class _Process:
    """One that runs tests: its number, and of those that it was given which it has not done, the one it is at first."""

    number: int
    pid: int
    left: list[int] = field(default_factory=list)


class Forking:
    """Gives each process a scope at a time, by the places of its tests in the session."""

    def __init__(self, session: pytest.Session, count: int) -> None:
        self._session = session
        self._scopes: dict[str, list[int]] = {}
        for at, item in enumerate(session.items):
            self._scopes.setdefault(scope_of(item.nodeid), []).append(at)
        self._count = min(count, len(self._scopes))
        self._running: dict[Connection, _Process] = {}

    def run(self) -> None:
        """Returns when all tests have run; in each process that is forked, when it has run its own."""
        while True:
            free = {*range(self._count)} - {each.number for each in self._running.values()}
            for number in sorted(free) if self._scopes else ():
                ours, other = Pipe()
                sys.stdout.flush()
                sys.stderr.flush()
                pid = os.fork()
                if not pid:
                    for each in (ours, *self._running):
                        each.close()
                    _work(self._session, number, other)
                    return
                other.close()
                self._running[ours] = _Process(number, pid)
            if not self._running:
                return
            for ready in wait([*self._running]):
                assert isinstance(ready, Connection)
                self._hear(ready)

    def _hear(self, connection: Connection) -> None:
        process = self._running[connection]
        try:
            said = connection.recv()
        except (EOFError, ConnectionResetError):
            self._ended(self._running.pop(connection))
            return
        if said is None:
            given = self._next(process)
            process.left += given
            with suppress(BrokenPipeError):  # its end is heard next
                connection.send(given)
        elif isinstance(said, int):
            del process.left[: process.left.index(said)]
        else:
            config = self._session.config
            report = config.hook.pytest_report_from_serializable(config=config, data=said)
            config.hook.pytest_runtest_logreport(report=report)

    def _next(self, process: _Process) -> list[int]:
        if self._session.shouldfail or self._session.shouldstop:
            self._scopes.clear()
        if not self._scopes:
            return []
        return self._scopes.pop(next_of(self._scopes, programs=process.number < self._count - 1))

    def _ended(self, process: _Process) -> None:
        """Whoever ends in the midst of a test has failed it; what it has not begun is given to others."""
        code = os.waitstatus_to_exitcode(os.waitpid(process.pid, 0)[1])
        if code in (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED):
            return
        if not process.left:
            self._session.shouldfail = f"a process of the tests ended with {code}"
            return
        at, *left = process.left
        item = self._session.items[at]
        text = f"the process of this test ended with {code}"
        report = pytest.TestReport(item.nodeid, item.location, {}, "failed", text, "call")
        self._session.config.hook.pytest_runtest_logreport(report=report)
        for each in left:
            self._scopes.setdefault(scope_of(self._session.items[each].nodeid), []).append(each)


class _Telling:
    """Tells the process that collected what came of a test."""

    def __init__(self, config: pytest.Config, connection: Connection) -> None:
        self._config = config
        self._connection = connection

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self._connection.send(
            self._config.hook.pytest_report_to_serializable(config=self._config, report=report)
        )


class _Unseen:
    """In the place of pytest's reporter: what plugins write to the terminal, as at a timeout, goes nowhere."""

    def __init__(self, config: pytest.Config) -> None:
        self._tw = type(config.get_terminal_writer())(StringIO())


def _work(session: pytest.Session, number: int, connection: Connection) -> None:
    """Runs what is given, until there is no more."""
    # At its end it does what it was asked for itself: the rest is its parent's to do, and libraries tell of leaks then.
    atexit.register(lambda: os._exit(int(session.exitstatus)))
    config = session.config
    plugins = config.pluginmanager
    config.workerinput = {"workerid": number}  # type: ignore[attr-defined]  # by it plugins know that they are one of many
    unseen = _Unseen(config)
    plugins.unregister(name="terminalreporter")
    plugins.register(unseen, "terminalreporter")
    plugins.register(_Telling(config, connection))
    # What is captured goes into a file, whose end processes would share.
    capturing = plugins.getplugin("capturemanager")
    capturing.stop_global_capturing()
    capturing.start_global_capturing()

    def more() -> list[int]:
        connection.send(None)
        given: list[int] = connection.recv()
        return given

    left = more()
    while left and not (session.shouldfail or session.shouldstop):
        at = left.pop(0)
        connection.send(at)
        left = left or more()  # the next one says which fixtures stay
        following = session.items[left[0]] if left else None
        config.hook.pytest_runtest_protocol(item=session.items[at], nextitem=following)
