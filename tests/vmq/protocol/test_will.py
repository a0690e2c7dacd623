"""Wills, beyond what tests/conformance asks."""

import pytest

from tests.support.wire import Will
from tests.vmq.support import House, watcher


@pytest.mark.parametrize("suppress", (False, True))
def test_a_takeover_publishes_the_will_unless_told_not_to(house: House, suppress: bool) -> None:
    other = watcher(house)
    client = house.client("c", will=Will("will", b"gone", 1, True))
    house.options.suppress_lwt_on_session_takeover = suppress
    house.client("c")
    client.lose()
    assert other.payloads() == ([] if suppress else [b"gone"])
    house.client("c", will=Will("will", b"other")).lose()
    assert other.payloads() == [b"other"], "only a takeover suppresses it"


def test_an_empty_retained_will_erases(house: House) -> None:
    house.publish("will", b"kept", retain=True)
    house.client("c", will=Will("will", b"", 0, True)).lose()
    assert house.retained() == {}


def test_a_will_reaches_the_durable_session_that_left_it(durable: House) -> None:
    client = durable.subscriber("c", ("will", 1), clean=False, will=Will("will", b"gone", 1))
    client.lose()
    assert durable.client("c", clean=False).payloads() == [b"gone"]
