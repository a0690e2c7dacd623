"""What a broker tells of itself over HTTP."""

from tests.vmq.http.conftest import get
from vmq.testing.process import BrokerProcess


def figure(broker: BrokerProcess, name: str) -> float:
    """A figure of /metrics, over all its labels."""
    lines = get(broker.http, "/metrics").body.decode().splitlines()
    found = [each for each in lines if each.partition("{")[0].partition(" ")[0] == name]
    assert found, f"no {name}"
    return sum(float(each.rpartition(" ")[2]) for each in found)
