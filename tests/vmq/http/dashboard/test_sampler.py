import pytest

from tests.support.peer import Peer
from vmq.broker import Broker
from vmq.config.options import Config
from vmq.http.dashboard.sampler import SERIES, Sampler, Spread
from vmq.runtime.histogram import Histogram


async def test_counters_are_rates_and_gauges_are_what_they_are(config: Config) -> None:
    async with Broker(config) as broker:
        sampler = Sampler(broker)
        first = dict(zip(SERIES, sampler.sample(100.0), strict=True))
        assert first["received"] == first["cpu"] == 0.0
        peer = Peer(broker.registry(), "me", ("a/#", 0))
        for _ in range(10):
            peer.publish("a/b")
        second = dict(zip(SERIES, sampler.sample(102.0), strict=True))
    assert second["received"] == second["sent"] == 5.0
    assert second["sessions"] == second["subscriptions"] == 1
    assert second["dropped"] == 0
    assert 0 < second["disk_free"] <= second["disk"]
    assert second["memory"] > 1_000_000


async def test_a_folder_that_is_gone_has_no_disk(
    config: Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with Broker(config) as broker:
        monkeypatch.setattr("os.statvfs", lambda _path: (_ for _ in ()).throw(OSError()))
        row = dict(zip(SERIES, Sampler(broker).sample(1.0), strict=True))
    assert row["disk"] == row["disk_free"] == 0


def test_a_spread_is_of_what_came_since_the_last_look() -> None:
    histogram, spread = Histogram(), Spread()
    histogram.observe(0.9)
    spread.see(histogram)
    assert spread.quantile(0.5) == 1.0
    for _ in range(10):
        histogram.observe(0.0009)
    spread.see(histogram)
    assert spread.quantile(0.99) == 1e-3
    spread.see(histogram)
    assert spread.quantile(0.99) == 0.0
    histogram.observe(50.0)
    spread.see(histogram)
    assert spread.quantile(0.99) == 2.0
