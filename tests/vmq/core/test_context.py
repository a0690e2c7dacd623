"""What the parts of one broker share, and its agreement with the documented defaults."""

from tests.vmq.support import Client, House
from vmq.config.core import options_of
from vmq.config.options import Config
from vmq.core.context import Core, CoreOptions

NAMES = (
    *("max_client_id_size", "max_connect_size", "max_packet_size", "max_control_packet_size"),
    *("upgrade_outgoing_qos", "retry_interval"),
    *("shared_subscription_policy", "suppress_lwt_on_session_takeover"),
    "disconnect_on_unauthorized_publish_v3",
    *(
        f"allow_{each}_during_netsplit"
        for each in ("register", "publish", "subscribe", "unsubscribe")
    ),
    *("max_inflight_messages", "max_online_messages", "max_offline_messages", "lifo"),
    *("drop_oldest", "max_msgs_per_drain_step", "topic_cache", "persistent_client_expiration"),
)


def test_the_core_begins_with_the_defaults_of_the_configuration() -> None:
    configured, plain = options_of(Config()), CoreOptions()
    for name in NAMES:
        assert getattr(configured, name) == getattr(plain, name), name


def test_clock_and_choice_are_the_callers() -> None:
    core = Core(CoreOptions(), None, lambda: 7.0, lambda: 8.0, lambda count: count - 1)
    assert (core.clock(), core.wall_clock(), core.choose(5)) == (7.0, 8.0, 4)


def test_two_cores_share_nothing() -> None:
    one, other = House().core, House().core
    for name in ("options", "outbox", "hooks", "counters"):
        assert getattr(one, name) is not getattr(other, name)


def test_the_counters_count(house: House) -> None:
    house.options.max_inflight_messages = 1
    house.options.max_online_messages = 0
    house.subscriber("s", ("t", 1))
    publisher = house.client("p")
    for _ in range(3):
        publisher.publish("t", b"x", 1)
    publisher.publish("t", b"x")
    publisher.send(b"\xff\xff")
    house.client("s")
    counters = house.core.counters
    assert counters.mqtt_connack_sent[0] == 3
    assert counters.mqtt_publish_received == 4
    assert counters.mqtt_publish_sent == 2
    assert counters.queue_message_drop == 2
    assert counters.takeovers == 1


def test_a_protocol_error_is_counted(house: House, client: Client) -> None:
    client.send(b"\xf0\x00")
    assert house.core.counters.protocol_errors == 1
