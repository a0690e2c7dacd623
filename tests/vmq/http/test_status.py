"""`/status.json`."""

import json

from tests.support.wire import Wire
from tests.vmq.http.conftest import get
from vmq import __version__
from vmq.http.status import finite
from vmq.testing.process import BrokerProcess


def test_the_status_shows_what_is_open_and_kept(web_broker: BrokerProcess) -> None:
    wire = Wire.connected(web_broker.tcp, "status-1", clean=False)
    wire.subscribe(("status/#", 1))
    answer = get(web_broker.http, "/status.json")
    wire.close()
    assert answer.headers["Content-Type"].startswith("application/json")
    status = answer.json()
    assert status["version"] == __version__
    assert status["uptime_seconds"] > 0
    assert status["health"] == []
    assert list(status["listeners"].values()) == web_broker.urls
    assert status["connections"]["total"] >= 1
    assert status["sessions"]["connected"] >= 1
    assert status["subscriptions"] >= 1
    assert {"count", "messages_in", "messages_out", "messages_dropped"} == set(status["queues"])
    assert {"messages", "bytes"} == set(status["retained"])


def test_json_knows_no_infinity() -> None:
    assert json.dumps([finite(float("inf")), finite(0.5)]) == "[null, 0.5]"
