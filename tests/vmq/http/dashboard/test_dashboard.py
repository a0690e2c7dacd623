import asyncio
import gc
import time
from weakref import ref

from vmq.broker import Broker
from vmq.config.options import Config
from vmq.http.dashboard import dashboard as module
from vmq.http.dashboard.dashboard import Dashboard, dashboard_of


def runs(dashboard: Dashboard) -> bool:
    return dashboard._task is not None


async def test_a_broker_has_one_which_runs_while_anybody_serves_it(
    config: Config, broker: Broker
) -> None:
    dashboard = dashboard_of(broker)
    assert dashboard_of(broker) is dashboard
    dashboard.start()
    dashboard.start()
    await asyncio.sleep(0)
    assert len(dashboard.feed.history) == 1
    await dashboard.stop()
    assert runs(dashboard)
    await dashboard.stop()
    assert not runs(dashboard)
    dashboard.start()
    await dashboard.stop()


async def test_it_knows_pages_and_api_keys(config: Config, broker: Broker) -> None:
    dashboard = dashboard_of(broker)
    made = dashboard.api_keys.create("grafana", "read")
    found = dashboard.page_keys.redeem(dashboard.page_keys.token())
    assert found is not None
    rows = [dashboard.find(key) for key in (made.key, found[0], "vmq_x", "vmqpage_x.y", "")]
    seen = [None if row is None else row.name for row in rows]
    assert seen == ["grafana", "page", None, None, None]


async def test_walks_for_pages_come_one_after_the_other(config: Config, broker: Broker) -> None:
    dashboard = dashboard_of(broker)
    began = time.monotonic()
    await asyncio.gather(dashboard.walk_turn(), dashboard.walk_turn())
    assert time.monotonic() - began >= module.WALK_PAUSE


async def test_a_broker_that_has_ended_is_let_go(config: Config) -> None:
    broker = Broker(config)
    async with broker:
        dashboard_of(broker).start()
        await dashboard_of(broker).stop()
    kept = ref(broker)
    del broker
    await asyncio.sleep(0)
    gc.collect()
    assert kept() is None
