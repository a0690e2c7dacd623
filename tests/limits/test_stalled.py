"""A client that stops to read in the middle of the traffic, and what that does to others."""

from tests.conftest import BrokerFactory
from tests.support.wire import Wire
from vmq.bench.load.usage import resident

MIB = 1 << 20


def test_a_stopped_client_is_dropped_by_policy(fresh_broker: BrokerFactory) -> None:
    """What it does not take fills its buffers and no more; it is dropped, and welcome back."""
    broker = fresh_broker(
        env={"VMQ_LIMITS__STALLED_CLIENT_TIMEOUT": "1", "VMQ_QUEUE__MAX_ONLINE_MESSAGES": "100"}
    )
    with Wire.connected(broker.tcp, "other") as other, Wire.connected(broker.tcp, "p") as publisher:
        sleeper = Wire.connected(broker.tcp, "sleeper", clean=False)
        for each in (sleeper, other):
            each.subscribe(("stalled", 0))
        before = resident(broker.pid)
        for number in range(600):
            payload = b"%d" % number + b"." * 50_000
            publisher.publish("stalled", payload)
            other.expect_publish("stalled", payload)
        # 30 MB were published: the queue holds 5 MB of them, the rest was sent or dropped.
        assert resident(broker.pid) - before < 16 * MIB
        broker.wait_log("client=sleeper .*stalled_client_timeout")
        other.expect_nothing()
        sleeper.close()
        with Wire.connect_tcp(broker.tcp) as back:
            assert back.connect("sleeper", clean=False).session_present
            publisher.publish("stalled", b"1000")
            back.expect_publish("stalled", b"1000")
