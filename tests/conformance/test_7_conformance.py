"""Chapter 7: what makes a server conforming."""

from collections.abc import Callable

from tests.conformance.peers import Peers
from tests.conftest import BrokerFactory
from vmq.testing.process import BrokerProcess


def test_mqtt_7_0_0_2_plain_clients_work(
    fresh_broker: BrokerFactory, peers_at: Callable[[BrokerProcess], Peers]
) -> None:
    """With the default configuration, no option given, a plain client does all that MQTT has."""
    peers = peers_at(fresh_broker(args=()))
    topic = peers.topic("a")
    wire = peers.subscriber((peers.topic("+"), 2), part="s", clean=False)
    for qos in (0, 1, 2):
        peers.publish(topic, b"%d" % qos, qos=qos, retain=True)
        wire.acknowledge(wire.expect_publish(topic, b"%d" % qos, qos=qos))
    wire.ping()
    wire.unsubscribe(peers.topic("+"))
    wire.disconnect()
    peers.resume("s").expect_nothing()
    peers.expect_retained(topic, topic, b"2", 2)
