"""The live page of several workers: what it shows beside the figures of each second is asked of all of them."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar

import msgspec
from aiohttp import web
from msgspec.structs import replace

from vmq.admin.errors import UnavailableError
from vmq.config.options import Config
from vmq.http.dashboard import for_front
from vmq.http.dashboard.source import HookRow, SampleRow
from vmq.http.dashboard.topics import Branch, TopicRow, busiest
from vmq.listeners.state import AnyListener
from vmq.workers.asking import QUICK, UnreachableError, WorkerClient
from vmq.workers.figures import GREATEST
from vmq.workers.readings import WorkersReader
from vmq.workers.tracing import Traces

if TYPE_CHECKING:
    from vmq.workers.roles import SupervisorView

T = TypeVar("T")

#: Rows of each branch that a worker tells: more than a page shows, so that what all publish to is found.
_ROWS: Final = 2000
#: Seconds between two times that the workers are asked the same, whoever asks, and different things that are kept.
_PAUSE: Final = 1.0
_MOST_KEPT: Final = 16
#: What is added up of the hooks of several workers.
_SUMS: Final = ("calls", "accepted", "refused", "seconds", "errors", "timeouts", "skipped")


class AllWorkers:
    """Asks those that run; one that does not answer is left out, as long as another one does."""

    def __init__(self, supervisor: "SupervisorView", client: WorkerClient) -> None:
        self._supervisor = supervisor
        self._client = client

    async def ask(self, kind: Any, method: str, path: str, parameters: dict[str, Any]) -> list[Any]:
        """What each answers, as a `kind`.

        Raises:
            AdminError: none does.
        """
        numbers = [each.number for each in self._supervisor.workers.values() if each.is_running]
        answers = await asyncio.gather(
            *(self._client.raw(each, method, path, parameters, QUICK) for each in numbers),
            return_exceptions=True,
        )
        found = [
            msgspec.json.decode(each, type=kind) for each in answers if isinstance(each, bytes)
        ]
        if not found:
            for each in answers:
                if isinstance(each, BaseException):
                    raise each
            raise UnreachableError("no worker runs now")
        return found

    async def first(self, method: str, path: str, parameters: dict[str, Any]) -> None:
        """Has one of them do something.

        Raises:
            AdminError: it refuses, or none runs.
        """
        for each in self._supervisor.serving:
            if each.is_running:
                await self._client.raw(each.number, method, path, parameters, QUICK)
                return
        raise UnavailableError("no worker runs now")


class Shared(Generic[T]):
    """What pages ask for: the workers are asked once a second for all pages together."""

    def __init__(self, ask: Callable[[str], Awaitable[T]]) -> None:
        self._ask = ask
        self._lock = asyncio.Lock()
        self._found: dict[str, tuple[float, T]] = {}

    async def get(self, what: str = "") -> T:
        """The answer, at most a second old."""
        async with self._lock:
            known = self._found.get(what)
            if known is not None and time.monotonic() - known[0] < _PAUSE:
                return known[1]
            answer = await self._ask(what)
            if len(self._found) >= _MOST_KEPT:
                self._found.clear()
            self._found[what] = (time.monotonic(), answer)
            return answer


class WorkersTopics:
    """The topics of all workers; each counts those that its clients publish to."""

    def __init__(self, workers: AllWorkers) -> None:
        self._workers = workers
        self._found: dict[str, Branch] = {}

    def __contains__(self, path: str) -> bool:
        return path in self._found

    def branch(self, path: str, most: int) -> Branch:
        """The rows that are published to most."""
        found = self._found.get(path, Branch(path, [], 0))
        rows = {row.name: row for row in found.rows}
        chosen = busiest(rows, most, lambda name: (rows[name].rate, rows[name].messages))
        hidden = found.hidden + len(rows) - len(chosen)
        return Branch(path, [rows[name] for name in chosen], hidden)

    async def look(self, paths: list[str], _now: float) -> float:
        """Asks all workers, and adds up."""
        wanted = {"paths": paths, "most": _ROWS}
        answers = await self._workers.ask(list[Branch], "POST", for_front.BRANCHES, wanted)
        began = perf_counter()
        self._found = {path: Branch(path, [], 0) for path in paths}
        for branches in zip(*answers, strict=True):
            self._found[branches[0].path] = branch_of(branches)
        return perf_counter() - began


def branch_of(branches: Iterable[Branch]) -> Branch:
    """One branch, as several workers have it.

    A topic counts once a worker that it is published through, and what workers left out counts as if it differed.
    """
    rows: dict[str, TopicRow] = {}
    path, hidden = "", 0
    for branch in branches:
        path, hidden = branch.path, hidden + branch.hidden
        for row in branch.rows:
            known = rows.get(row.name)
            rows[row.name] = row if known is None else _row(known, row)
    return Branch(path, list(rows.values()), hidden)


def _row(one: TopicRow, other: TopicRow) -> TopicRow:
    has_more = one.has_more or other.has_more
    return TopicRow(
        one.name,
        one.topics + other.topics if has_more else 1,
        one.messages + other.messages,
        round(one.rate + other.rate, 2),
        one.is_topic or other.is_topic,
        has_more,
    )


def hooks_of(answers: Iterable[Iterable[HookRow]]) -> list[HookRow]:
    """Hooks of plugins that run in several workers: calls are added up, times are those of the slowest."""
    rows: dict[tuple[str, str], HookRow] = {}
    for answer in answers:
        for row in answer:
            known = rows.get((row.plugin, row.hook))
            rows[row.plugin, row.hook] = (
                row
                if known is None
                else replace(
                    row,
                    p50=max(row.p50, known.p50),
                    p99=max(row.p99, known.p99),
                    **{name: getattr(row, name) + getattr(known, name) for name in _SUMS},
                )
            )
    return list(rows.values())


def samples_of(answers: Iterable[Iterable[SampleRow]]) -> list[SampleRow]:
    """Samples of the same name and labels: added up, or the greatest where a sum means nothing."""
    rows: dict[tuple[str, tuple[tuple[str, str], ...]], SampleRow] = {}
    for answer in answers:
        for row in answer:
            key = (row.name, tuple(row.labels.items()))
            known = rows.get(key)
            both = (row.value,) if known is None else (row.value, known.value)
            rows[key] = replace(row, value=max(both) if row.name in GREATEST else sum(both))
    return list(rows.values())


class _Rows(msgspec.Struct, Generic[T]):
    rows: list[T]


class WorkersSource:
    """The workers of a supervisor, as one broker."""

    def __init__(
        self,
        supervisor: "SupervisorView",
        client: WorkerClient,
        listeners: Mapping[str, AnyListener],
    ) -> None:
        self._supervisor = supervisor
        self._all = AllWorkers(supervisor, client)
        self._traces = Traces(supervisor, client)
        self._hooks = Shared(self._ask_hooks)
        self._samples = Shared(self._ask_samples)
        self.listeners = listeners
        self.started = time.time()
        self.figures = WorkersReader(supervisor)
        self.topics = WorkersTopics(self._all)

    @property
    def node(self) -> str:
        """The name that those of the workers begin with."""
        return self._supervisor.plan.name

    @property
    def folder(self) -> Path:
        """The data directory."""
        return self._supervisor.plan.folder

    @property
    def config(self) -> Config:
        """The configuration in force."""
        return self._supervisor.config

    async def hooks(self) -> list[HookRow]:
        """Each hook of each plugin."""
        return await self._hooks.get()

    async def _ask_hooks(self, _what: str) -> list[HookRow]:
        answers = await self._all.ask(_Rows[HookRow], "GET", for_front.HOOKS, {})
        return hooks_of(each.rows for each in answers)

    async def samples(self, prefix: str) -> list[SampleRow]:
        """The metrics whose names begin so."""
        return await self._samples.get(prefix)

    async def _ask_samples(self, prefix: str) -> list[SampleRow]:
        wanted = {"prefix": prefix}
        answers = await self._all.ask(_Rows[SampleRow], "GET", for_front.SAMPLES, wanted)
        return samples_of(each.rows for each in answers)

    async def trace(self, request: web.Request) -> web.StreamResponse:
        """Streams what one client does, at whatever worker."""
        return await self._traces.stream(request)

    async def let_in(self, user: str, password: str, address: str) -> None:
        """Has a worker ask its plugins."""
        wanted = {"user": user, "password": password, "address": address}
        try:
            await self._all.first("POST", for_front.LET_IN, wanted)
        except UnreachableError as error:
            raise UnavailableError(str(error)) from None
