import pytest

from tests.vmq.support import House
from vmq.resources.drop_log import ADVICE, EVERY, LINES, DropLog


def lines(caplog: pytest.LogCaptureFixture) -> list[str]:
    found = [record.getMessage() for record in caplog.records]
    caplog.clear()
    return found


def test_what_is_dropped_is_told_once_a_minute(
    house: House, caplog: pytest.LogCaptureFixture
) -> None:
    log, losses = DropLog(house.core), house.core.losses
    log.look()
    assert lines(caplog) == []
    for reason in ("purged", "queue_full"):
        losses.add("", "slow", reason, 7)
        log.look()
        assert lines(caplog) == [f"dropped client=slow reason={reason} messages=1 bytes=7"]
        house.clock.advance(EVERY)
    for _ in range(3):
        losses.add("", "away", "store_full", 10)
    log.look()
    assert lines(caplog) == ["dropped client=away reason=store_full messages=3 bytes=30" + ADVICE]
    losses.add("", "slow", "queue_full", 10)
    losses.add("site", "moving", "expired", 5)
    house.clock.advance(EVERY - 1)
    log.look()
    assert lines(caplog) == []
    losses.add("", "slow", "queue_full", 10)
    house.clock.advance(1)
    log.look()
    assert lines(caplog) == [
        "dropped client=slow reason=queue_full messages=2 bytes=20",
        "dropped client=moving mountpoint=site reason=expired messages=1 bytes=5",
    ]
    log.look()
    assert lines(caplog) == []


def test_the_first_line_says_what_helps() -> None:
    assert "queue.max_age" in ADVICE
    assert "session.persistent_client_expiration" in ADVICE


def test_of_many_clients_the_rest_is_summed_up(
    house: House, caplog: pytest.LogCaptureFixture
) -> None:
    for number in range(LINES + 5):
        house.core.losses.add("", f"c{number}", "queue_full", 10)
    DropLog(house.core).look()
    found = lines(caplog)
    assert len(found) == LINES + 1
    assert found[-1] == "dropped clients=5 more messages=5 bytes=50"
