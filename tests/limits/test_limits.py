"""Every limit at its edge: what is just allowed, and what happens to who passes it."""

import urllib.request

import pytest
from websockets.exceptions import ConnectionClosed

from tests.conftest import BrokerFactory
from tests.support.streams import websocket_to
from tests.support.wire import Wire, connect_packet, publish_packet
from vmq.core.retained import MESSAGE_SIZE
from vmq.core.subscription_set import NODE_SIZE, SUBSCRIPTION_SIZE, content_of, cost_of
from vmq.core.trie import MOST_NEW_NODES


def test_max_message_size(fresh_broker: BrokerFactory) -> None:
    """A payload of the limit passes; one byte more ends the connection, unpublished."""
    broker = fresh_broker(env={"VMQ_LIMITS__MAX_MESSAGE_SIZE": "100"})
    with Wire.connected(broker.tcp, "sub") as sub:
        sub.subscribe(("t", 0))
        for qos in (0, 1, 2):
            with Wire.connected(broker.tcp, f"pub{qos}") as pub:
                pub.publish("t", b"x" * 100, qos=qos)
                assert sub.expect_publish("t").payload == b"x" * 100
                pub.ended_by(publish_packet("t", b"x" * 101, qos=qos, packet_id=9))
                sub.expect_nothing()
            broker.wait_log(rf"client=pub{qos} .*max_message_size")


def test_max_message_size_within_a_burst(fresh_broker: BrokerFactory) -> None:
    """What came before the message that is too large is delivered."""
    broker = fresh_broker(env={"VMQ_LIMITS__MAX_MESSAGE_SIZE": "3"})
    with Wire.connected(broker.tcp, "sub") as sub, Wire.connected(broker.tcp, "pub") as pub:
        sub.subscribe(("t", 0))
        pub.send(*(publish_packet("t", payload) for payload in (b"1", b"333", b"4444", b"5")))
        assert sub.expect_publish("t").payload == b"1"
        assert sub.expect_publish("t").payload == b"333"
        pub.expect_closed()
        sub.expect_nothing()


def test_max_ws_frame_size(fresh_broker: BrokerFactory) -> None:
    """A message of the limit passes, in one frame or more; one byte more closes with status 1009."""
    broker = fresh_broker(
        listen=("ws://127.0.0.1:0/mqtt", "http://127.0.0.1:0"),
        env={"VMQ_LIMITS__MAX_WS_FRAME_SIZE": "1024"},
    )
    with websocket_to(broker.ws) as client:
        client.send(connect_packet("ws"))
        assert client.recv() == b"\x20\x02\x00\x00"
        packet = publish_packet("t", b"x" * 2000, qos=1, packet_id=1)
        client.send(packet[:1024])
        client.send([packet[1024:1500], packet[1500:]])
        assert client.recv() == b"\x40\x02\x00\x01"
        client.send(publish_packet("t", b"x" * 2000)[:1025])
        with pytest.raises(ConnectionClosed) as closed:
            client.recv()
        assert closed.value.rcvd is not None
        assert closed.value.rcvd.code == 1009
    broker.wait_log(r'closed client=ws .*reason="WebSocket failed: .*\(max_ws_frame_size\)"')
    with urllib.request.urlopen(broker.http + "/metrics", timeout=30) as answer:
        assert b"\nws_frame_too_large_total 1.0\n" in answer.read()


def test_max_subscriptions_per_client(fresh_broker: BrokerFactory) -> None:
    """A further filter is refused; replacing one that is held is not a further one."""
    broker = fresh_broker(env={"VMQ_LIMITS__MAX_SUBSCRIPTIONS_PER_CLIENT": "2"})
    with Wire.connected(broker.tcp, "sub") as sub:
        assert sub.subscribe(("a", 0), ("b", 1), ("c", 2)).codes == [0, 1, 0x80]
        assert sub.subscribe(("a", 2)).codes == [2]
        sub.unsubscribe("b")
        assert sub.subscribe(("c", 2)).codes == [2]
    broker.wait_log(r"subscription refused client=sub .*max_subscriptions_per_client")


def test_max_subscription_bytes_per_client(fresh_broker: BrokerFactory) -> None:
    """One client uses up its own part, not that of all."""
    limit = 2 * cost_of("a", "")
    broker = fresh_broker(env={"VMQ_LIMITS__MAX_SUBSCRIPTION_BYTES_PER_CLIENT": str(limit)})
    with Wire.connected(broker.tcp, "sub") as sub, Wire.connected(broker.tcp, "other") as other:
        assert sub.subscribe(("a", 0), ("b", 1), ("c", 2)).codes == [0, 1, 0x80]
        assert sub.subscribe(("a", 2), ("$share/g/a", 0)).codes == [2, 0x80]
        assert other.subscribe(("c", 0)).codes == [0]
        sub.unsubscribe("b")
        assert sub.subscribe(("x" * 1000, 0), ("c", 2)).codes == [0x80, 2]
    broker.wait_log(r"subscription refused client=sub .*max_subscription_bytes_per_client")


def test_topic_max_depth(fresh_broker: BrokerFactory) -> None:
    broker = fresh_broker(env={"VMQ_LIMITS__TOPIC_MAX_DEPTH": "3"})
    with Wire.connected(broker.tcp, "sub") as sub, Wire.connected(broker.tcp, "pub") as pub:
        assert sub.subscribe(("a/b/#", 0), ("a/b/c/#", 0), ("$share/g/x/y/z", 0)).codes == [
            0,
            0x80,
            0,
        ]
        pub.publish("a/b/c", b"x")
        sub.expect_publish("a/b/c", b"x")
        pub.ended_by(publish_packet("a/b/c/d", b"x"))
        sub.expect_nothing()
    broker.wait_log(r"client=pub .*topic_max_depth")


def test_max_retained_messages(fresh_broker: BrokerFactory) -> None:
    """One for a further topic is delivered and not kept; replacing and clearing go on."""
    broker = fresh_broker(env={"VMQ_LIMITS__MAX_RETAINED_MESSAGES": "2"})
    with Wire.connected(broker.tcp, "sub") as sub, Wire.connected(broker.tcp, "pub") as pub:
        sub.subscribe(("#", 0))
        for topic in ("a", "b", "c"):
            pub.publish(topic, b"1", retain=True)
            sub.expect_publish(topic, b"1")
        pub.publish("a", b"2", retain=True)
        with Wire.connected(broker.tcp, "late") as late:
            late.subscribe(("#", 0))
            found = [late.expect_publish(retain=True) for _ in range(2)]
            seen = sorted((each.topic, each.payload) for each in found)
            assert seen == [("a", b"2"), ("b", b"1")]
            late.expect_nothing()
        pub.publish("b", b"", retain=True)
        pub.publish("c", b"3", retain=True)
        pub.ping()
        with Wire.connected(broker.tcp, "later") as later:
            later.subscribe(("c", 0))
            later.expect_publish("c", b"3", retain=True)
    broker.wait_log(r'not retained topic="c"')


def test_max_retained_bytes(fresh_broker: BrokerFactory) -> None:
    """Topics, payloads and what is around them count; a smaller message in the place of a larger one fits."""
    limit = len("a") + 20 + MESSAGE_SIZE
    broker = fresh_broker(env={"VMQ_LIMITS__MAX_RETAINED_BYTES": str(limit)})
    with Wire.connected(broker.tcp, "pub") as pub:
        pub.publish("a", b"x" * 21, retain=True)
        pub.publish("a", b"x" * 20, retain=True)
        pub.publish("b", b"x", retain=True)
        pub.publish("a", b"x" * 19, retain=True)
        pub.ping()
        with Wire.connected(broker.tcp, "late") as late:
            late.subscribe(("#", 0))
            late.expect_publish("a", b"x" * 19, retain=True)
            late.expect_nothing()


def test_max_subscription_bytes(fresh_broker: BrokerFactory) -> None:
    """A further filter is refused, whoever asks; replacing one goes on, and what goes makes room."""
    limit = SUBSCRIPTION_SIZE + content_of("a", "") + MOST_NEW_NODES * NODE_SIZE
    broker = fresh_broker(env={"VMQ_LIMITS__MAX_SUBSCRIPTION_BYTES": str(limit)})
    with Wire.connected(broker.tcp, "sub") as sub, Wire.connected(broker.tcp, "other") as other:
        assert sub.subscribe(("bb", 0), ("a", 1)).codes == [0x80, 1]
        assert sub.subscribe(("a", 2)).codes == [2]
        assert other.subscribe(("a", 0)).codes == [0x80]
        sub.unsubscribe("a")
        assert other.subscribe(("a", 0)).codes == [0]
    broker.wait_log(r"subscription refused client=other .*max_subscription_bytes")


def test_max_message_rate_slows_and_loses_nothing(fresh_broker: BrokerFactory) -> None:
    """A client over its rate is read no faster; it is not cut, and nothing is lost."""
    broker = fresh_broker(env={"VMQ_LIMITS__MAX_MESSAGE_RATE": "200"})
    with Wire.connected(broker.tcp, "sub") as sub, Wire.connected(broker.tcp, "pub") as pub:
        sub.subscribe(("t", 0))
        # 200 are the first second's; the debt of 100 more is half a second without reading.
        pub.send(*(publish_packet("t", b"%d" % number) for number in range(300)))
        for number in range(300):
            sub.expect_publish("t", b"%d" % number)
        pub.ping()


def test_max_byte_rate_of_one_leaves_others_alone(fresh_broker: BrokerFactory) -> None:
    broker = fresh_broker(env={"VMQ_LIMITS__MAX_BYTE_RATE": "10000"})
    with Wire.connected(broker.tcp, "sub") as sub, Wire.connected(broker.tcp, "loud") as loud:
        sub.subscribe(("quiet", 1))
        loud.send(publish_packet("loud", b"x" * 15_000))
        with Wire.connected(broker.tcp, "quiet") as quiet:
            quiet.publish("quiet", b"x", qos=1)
            sub.acknowledge(sub.expect_publish("quiet", b"x"))
        loud.ping()
