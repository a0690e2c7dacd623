"""What the frontend answers to those who watch: /metrics, /health, /status.json."""

import asyncio
import time
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Final

from aiohttp import web
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest
from prometheus_client.core import Metric
from prometheus_client.registry import Collector

from vmq.core.context import Counters
from vmq.http.health import readiness, show_live, verdict
from vmq.http.report import BrokerReport, FamilyReport, reports_of
from vmq.runtime import process
from vmq.runtime.health import Health, add_listener
from vmq.runtime.metrics import Sample
from vmq.workers import figures
from vmq.workers.asking import UnreachableError, WorkerClient

if TYPE_CHECKING:
    from vmq.workers.roles import SupervisorView

#: Who is meant by figures that are no worker's.
SUPERVISOR: Final = "supervisor"


def health_of(supervisor: "SupervisorView", found: Mapping[int, Health | str]) -> Health:
    """What is wrong with a broker of several workers.

    A worker that does not run has left its listeners to the others; one that does not answer keeps clients waiting.

    Args:
        supervisor: who has the workers.
        found: of each that runs what it says, or why it says nothing.
    """
    away = [problem for each in supervisor.serving if (problem := each.problem()) is not None]
    health = Health([], away) if found else Health(away, [])
    for listener in supervisor.frontend.listeners.values():
        add_listener(health, listener)
    for number, each in found.items():
        if isinstance(each, str):
            health.failing.append(each)
            continue
        health.failing += [f"worker {number}: {reason}" for reason in each.failing]
        health.degraded += [f"worker {number}: {reason}" for reason in each.degraded]
    return health


def _given(answers: Mapping[int, BrokerReport | str]) -> dict[int, BrokerReport]:
    """The reports of those that gave one."""
    return {n: each for n, each in answers.items() if isinstance(each, BrokerReport)}


class Views:
    """The figures of all workers, asked for anew each time."""

    def __init__(
        self, supervisor: "SupervisorView", client: WorkerClient, counters: Counters
    ) -> None:
        self._supervisor = supervisor
        self._client = client
        self._counters = counters
        self._started = time.monotonic()

    async def reports(self) -> dict[int, BrokerReport | str]:
        """What the workers that run say, or why one says nothing."""
        running = [number for number, each in self._supervisor.workers.items() if each.is_running]
        answers = await asyncio.gather(*(self._report(number) for number in running))
        return dict(zip(running, answers, strict=True))

    async def _report(self, number: int) -> BrokerReport | str:
        try:
            return await self._client.report(number)
        except UnreachableError as error:
            return str(error)

    async def health(self) -> tuple[dict[int, BrokerReport], Health]:
        """The reports, and what is wrong with the broker."""
        answers = await self.reports()
        found = {
            number: each if isinstance(each, str) else each.health
            for number, each in answers.items()
        }
        return _given(answers), health_of(self._supervisor, found)

    async def families(self) -> dict[str, list[FamilyReport]]:
        """Every figure, by worker; those of the supervisor come first."""
        found = {SUPERVISOR: list(self._own())}
        for number, report in _given(await self.reports()).items():
            found[str(number)] = report.families
        return found

    def _own(self) -> Iterator[FamilyReport]:
        values = (
            ("process_cpu_seconds", "counter", process.cpu_seconds()),
            ("process_resident_memory_bytes", "gauge", process.resident_bytes()),
            ("process_open_fds", "gauge", process.open_files()),
            ("http_timeouts", "counter", self._counters.http_timeouts),
        )
        for name, kind, value in values:
            yield FamilyReport(name, kind, "", (Sample((), value),))

    def _workers(self) -> Iterator[Metric]:
        """What only the supervisor knows of each worker."""
        up = Metric("worker_up", "1 while the worker serves, else 0.", "gauge")
        restarts = Metric("worker_restarts", "Times that the worker was started again.", "counter")
        for number, worker in self._supervisor.workers.items():
            labels = {"worker": str(number)}
            up.add_sample("worker_up", labels, int(worker.is_running))
            restarts.add_sample("worker_restarts_total", labels, worker.restarts)
        yield from (up, restarts)

    # --- what is answered

    def routes(self) -> list[web.AbstractRouteDef]:
        """The paths of one broker alone, and what they answer."""
        return [
            web.get("/metrics", self.show_metrics),
            web.get("/health", self.show_health),
            web.get("/health/live", show_live),
            web.get("/health/ready", self.show_ready),
            web.get("/health/ping", show_live),
            web.get("/health/listeners", self.show_listeners),
            web.get("/status.json", self.show_status),
        ]

    async def show_metrics(self, _request: web.Request) -> web.Response:
        """The Prometheus text."""
        families = await self.families()
        # A text of help comes from the worker; the supervisor adds its samples to those.
        ordered = {name: families[name] for name in sorted(families)}
        text = generate_latest(_Collected([*figures.metrics_of(ordered), *self._workers()]))
        return web.Response(body=text, headers={"Content-Type": CONTENT_TYPE_LATEST})

    async def show_health(self, _request: web.Request) -> web.Response:
        """All workers together."""
        _, health = await self.health()
        return verdict(health)

    async def show_ready(self, _request: web.Request) -> web.Response:
        """New clients are served."""
        _, health = await self.health()
        return readiness(health)

    async def show_listeners(self, _request: web.Request) -> web.Response:
        """Each listener, with the connections of all workers."""
        answers = await self.reports()
        silent = {
            n: each if isinstance(each, str) else Health([], []) for n, each in answers.items()
        }
        problems = health_of(self._supervisor, silent).reasons
        found = figures.listeners_of(_given(answers).values()) | reports_of(
            self._supervisor.frontend.listeners
        )
        listeners = {
            name: found[name] for name in self._supervisor.config.listeners if name in found
        }
        own = self._supervisor.frontend.listeners
        problems += [
            f"listener {name} ({each.url}) does not accept connections"
            for name, each in listeners.items()
            if not each.accepting and name not in own
        ]
        shown = {
            name: {
                "url": each.url,
                "accepting": each.accepting,
                "connections": each.connections,
            }
            for name, each in listeners.items()
        }
        return verdict(Health(problems, []), listeners=shown)

    async def show_status(self, _request: web.Request) -> web.Response:
        """The status of all as one, and each worker's state."""
        reports, health = await self.health()
        merged = figures.status_of(each.status for each in reports.values())
        merged["uptime_seconds"] = round(time.monotonic() - self._started, 3)
        merged["health"] = health.reasons
        merged["listeners"] = dict(
            zip(self._supervisor.config.listeners, self._supervisor.addresses, strict=True)
        )
        merged["workers"] = {
            str(number): {
                "state": str(each.state),
                "pid": each.pid,
                "restarts": each.restarts,
            }
            for number, each in self._supervisor.workers.items()
        }
        return web.json_response(merged)


class _Collected(Collector):
    """Metrics that are there already."""

    def __init__(self, metrics: list[Metric]) -> None:
        self._metrics = metrics

    def collect(self) -> Iterator[Metric]:
        """All of them."""
        yield from self._metrics
