"""The figures of several workers as one broker's."""

import logging
from types import SimpleNamespace
from typing import Any

import pytest

from vmq.config.options import ClusterOptions, Config
from vmq.http.dashboard.log_watch import WarningRow
from vmq.http.dashboard.reading import Reading
from vmq.http.dashboard.sampler import SERIES
from vmq.http.dashboard.walk import WorstRow
from vmq.runtime.health import Health
from vmq.workers.readings import SILENT, WorkersReader, together


class FakeWorker:
    def __init__(self, number: int) -> None:
        self.number = number
        self.is_running = True
        self.state, self.pid, self.restarts = "running", 100 + number, 0
        self.told: list[Reading] = []
        self.is_watched = False

    def problem(self) -> str | None:
        return None if self.is_running else f"worker {self.number} is stopped"

    def watch(self, *, is_watched: bool) -> None:
        self.is_watched = is_watched

    def take_readings(self) -> list[Reading]:
        found, self.told = self.told, []
        return found


class Fake:
    """A supervisor of two workers, and a clock."""

    def __init__(self, config: Config | None = None) -> None:
        self.now = 0.0
        self.one, self.two = FakeWorker(1), FakeWorker(2)
        self.supervisor: Any = SimpleNamespace(
            workers={1: self.one, 2: self.two},
            serving=[self.one, self.two],
            frontend=SimpleNamespace(listeners={}),
            config=config or Config(),
        )
        self.reader = WorkersReader(self.supervisor, lambda: self.now)

    def read(self, *, is_watched: bool = False) -> Reading:
        self.now += 1
        return self.reader.read(is_watched=is_watched)


def reading(value: float, **more: Any) -> Reading:
    return Reading(
        [value] * len(SERIES), more.pop("health", Health([], [])), **{"parts": [], **more}
    )


def value(found: Reading, name: str) -> float:
    return found.values[SERIES.index(name)]


def test_series_are_added_up_unless_that_means_nothing() -> None:
    fake = Fake()
    fake.one.told, fake.two.told = [reading(3)], [reading(5)]
    found = fake.read()
    names = ("received", "connections", "memory_limit", "lag", "retained", "disk_free", "disk")
    assert [value(found, name) for name in names] == [8, 8, 8, 5, 5, 3, 5]
    assert value(found, "cpu") >= 8, "and what the supervisor takes"
    seen = [(row.number, row.pid, row.received, row.lag) for row in found.workers]
    assert seen == [(1, 101, 3, 3), (2, 102, 5, 5)]


def test_who_is_gone_counts_no_more_and_who_says_nothing_is_told_of() -> None:
    fake = Fake()
    fake.one.told, fake.two.told = [reading(3)], [reading(5)]
    assert fake.read().health == Health([], [])
    fake.two.is_running = False
    fake.one.told = [reading(3)]
    found = fake.read()
    assert (value(found, "received"), found.health.degraded) == (3, ["worker 2 is stopped"])
    fake.now += SILENT
    found = fake.read()
    assert value(found, "received") == 0
    assert found.health.failing == ["worker 1 does not answer: no figures for 4 s"]
    fake.one.is_running = False
    assert fake.read().health.failing == ["worker 1 is stopped", "worker 2 is stopped"]


def test_a_worker_that_has_just_come_is_not_blamed() -> None:
    found = Fake().read()
    assert found.health == Health([], [])
    assert set(found.values[:-1]) >= {0.0}


def test_reasons_and_warnings_say_whose_they_are(caplog: pytest.LogCaptureFixture) -> None:
    fake = Fake()
    fake.reader.start()
    logging.getLogger("vmq.workers").warning("of the supervisor")
    fake.two.told = [
        reading(
            0, warnings=[WarningRow(2e12, "warning", "<b>")], warned=7, health=Health(["x"], [])
        )
    ]
    found = fake.read()
    fake.reader.stop()
    assert [row.text for row in found.warnings] == ["of the supervisor", "worker 2: <b>"]
    assert (found.warned, found.health.failing) == (8, ["worker 2: x"])
    assert "of the supervisor" in caplog.text


def test_it_is_looked_who_is_worst_while_somebody_watches() -> None:
    fake = Fake()
    assert fake.read(is_watched=True).worst is None
    assert fake.one.is_watched
    assert fake.two.is_watched
    fake.one.told = [reading(0, worst={"dropped": [WorstRow("a", 3, "")]})]
    worst = fake.read(is_watched=True).worst
    assert worst == {"dropped": [WorstRow("a", 3, "")]}
    fake.two.told = [reading(0, worst={"dropped": [WorstRow("b", 5, "")]})]
    worst = fake.read(is_watched=True).worst
    assert worst is not None
    assert [row.name for row in worst["dropped"]] == ["b", "a"], "what the other told is kept"
    assert fake.read(is_watched=True).worst is None, "nothing new"
    assert fake.read().worst is None
    assert not fake.one.is_watched


def test_what_happens_at_several_workers_is_added_up() -> None:
    parts = [
        {
            "reconnects": [WorstRow("a", 2)],
            "queue_bytes": [WorstRow("a", 2, ""), WorstRow("a", 9, "m")],
        },
        {"reconnects": [WorstRow("a", 3), WorstRow("b", 4)], "queue_bytes": [WorstRow("a", 7, "")]},
    ]
    found = together(parts)
    assert found["reconnects"] == [WorstRow("a", 5), WorstRow("b", 4)]
    assert found["queue_bytes"] == [WorstRow("a", 9, "m"), WorstRow("a", 7, "")]


@pytest.mark.parametrize(
    ("listen", "parts"), [("", ["streams"]), ("tcp://127.0.0.1:1", ["cluster", "streams"])]
)
def test_workers_of_one_host_are_no_cluster(listen: str, parts: list[str]) -> None:
    fake = Fake(Config(cluster=ClusterOptions(listen=listen)))
    fake.one.told = [reading(0, parts=["cluster", "streams"])]
    assert fake.read().parts == parts
