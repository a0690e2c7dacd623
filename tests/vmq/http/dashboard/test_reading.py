import asyncio

import pytest

from tests.support.peer import Peer
from tests.support.until import until
from vmq.broker import Broker
from vmq.http.dashboard.reading import STEP, UNWATCHED, BrokerReader, parts_of, pause_after
from vmq.http.dashboard.sampler import SERIES
from vmq.runtime.health import Health


async def test_sessions_are_walked_over_while_somebody_looks(broker: Broker) -> None:
    reader = BrokerReader(broker)
    reader.start()
    for _ in range(5):
        await asyncio.sleep(0)
        assert len(reader.read(is_watched=False).values) == len(SERIES)
    assert reader.walks == 0
    Peer(broker.registry(), "me").subscribe(("a", 1))
    Peer(broker.registry(), "you").publish("a", qos=1)
    worst = None

    def is_told() -> bool:
        nonlocal worst
        worst = reader.read(is_watched=True).worst
        return worst is not None

    await until(is_told)
    assert worst is not None
    assert [row.name for row in worst["queue_bytes"]] in ([], ["me"])
    assert set(worst) >= {"dropped", "reconnects", "logins_refused", "hook_time"}
    assert reader.read(is_watched=True).worst is None, "it was told already"
    reader.stop()


async def test_what_is_wrong_is_asked_seldom_while_nobody_looks(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    reader = BrokerReader(broker)
    asked: list[Broker] = []

    def condition(of: Broker) -> Health:
        asked.append(of)
        return Health([], ["ill"])

    monkeypatch.setattr(Broker, "condition", condition)
    for _ in range(2 * UNWATCHED):
        assert reader.read(is_watched=False).health.degraded == ["ill"]
    assert len(asked) == 2
    for _ in range(3):
        reader.read(is_watched=True)
    assert len(asked) == 5


def test_all_workers_together_walk_for_a_third_of_a_percent_of_a_core() -> None:
    assert pause_after(0.001, 0) == STEP
    taken = [0.1 / pause_after(0.1, each) * max(1, each) for each in (0, 1, 4)]
    assert taken == [pytest.approx(1 / 300)] * 3


async def test_parts_that_do_not_run_are_not_told_of(broker: Broker) -> None:
    assert parts_of(broker) == []
    broker.open_streams()
    broker.jobs.open()
    assert parts_of(broker) == ["streams", "jobs"]
