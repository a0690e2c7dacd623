"""What the parts of one broker share, and its agreement with the documented defaults."""

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
