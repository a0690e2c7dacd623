"""The options: their defaults, and what they promise to code that holds them."""

import msgspec
import pytest

import vmq.config.options
from vmq.config.checks import check
from vmq.config.load import load
from vmq.config.options import (
    AuthOptions,
    Config,
    ListenerOptions,
)

LISTENER_DEFAULTS: dict[str, object] = {
    "allow_anonymous": None,
    "allow_remote": False,
    "serve": None,
    "page_users": {},
    "advertise": "",
    "local_reads": True,
    "admin": False,
    "max_connections": 0,
    "http_request_timeout": 10.0,
    "allowed_protocol_versions": [3, 4],
    "max_connection_lifetime": 0,
    "auth_plugins": None,
    "authz_plugins": None,
    "mountpoint": "",
    "proxy_protocol": False,
    "proxy_protocol_trusted": ["127.0.0.0/8", "::1/128"],
    "xff_enabled": False,
    "xff_trusted_intermediate": ["127.0.0.0/8", "::1/128"],
    "allowed_origins": [],
    "unix_mode": "600",
    "unix_owner": None,
    "certfile": None,
    "keyfile": None,
    "keypasswd": None,
    "sni": {},
    "cafile": None,
    "crlfile": None,
    "require_certificate": False,
    "use_identity_as_username": False,
    "tls_version": "1.2",
    "ciphers": None,
    "tls_handshake_timeout": 5,
}


def test_the_defaults_are_those_that_the_documentation_promises() -> None:
    assert msgspec.to_builtins(Config()) == {
        "broker": {"data_dir": "data", "workers": 1, "stream_scrub_rate": 4_194_304},
        "log": {
            "level": "info",
            "format": "text",
            "file": None,
            "audit_file": None,
            "flood_limit": 100,
        },
        "auth": {"allow_anonymous": "loopback", "check_retain_source": True, "refusal_code": 4},
        "listeners": {
            "tcp": {"url": "tcp://127.0.0.1:1883", **LISTENER_DEFAULTS},
            "ws": {"url": "ws://127.0.0.1:8083/mqtt", **LISTENER_DEFAULTS},
            "http": {"url": "http://127.0.0.1:8888", **LISTENER_DEFAULTS},
        },
        "session": {
            "mqtt_connect_timeout": 5,
            "login_timeout": 600,
            "max_client_id_size": 100,
            "max_connect_size": 16_384,
            "max_packet_size": 16777216,
            "max_control_packet_size": 262_144,
            "persistent_client_expiration": "never",
            "upgrade_outgoing_qos": False,
            "retry_interval": 0,
            "shared_subscription_policy": "prefer_local",
            "owner": "user",
            "suppress_lwt_on_session_takeover": False,
            "disconnect_on_unauthorized_publish_v3": False,
        },
        "queue": {
            "max_inflight_messages": 20,
            "max_inflight_bytes": 1_048_576,
            "max_bytes": 268_435_456,
            "max_memory_bytes": 16_777_216,
            "max_age": "never",
            "max_online_messages": -1,
            "max_offline_messages": -1,
            "queue_type": "fifo",
            "drop": "newest",
            "overflow": "drop",
            "max_msgs_per_drain_step": 100,
        },
        "limits": {
            "max_message_size": 0,
            "max_ws_frame_size": 16_842_752,
            "max_message_rate": 0,
            "max_byte_rate": 0,
            "max_subscriptions_per_client": 100_000,
            "max_subscription_bytes_per_client": 134_217_728,
            "topic_max_depth": 128,
            "topic_max_plus": 0,
            "max_retained_messages": 1_000_000,
            "max_retained_bytes": 1_073_741_824,
            "max_subscription_bytes": 1_073_741_824,
            "max_job_size": 1_048_576,
            "max_job_memory": 1_073_741_824,
            "max_job_queues": 1_000_000,
            "max_partitions": 10_000,
            "max_query_memory": 536_870_912,
            "max_query_seconds": 60,
            "max_memory": 0,
            "stalled_client_timeout": 300,
            "max_connections_per_ip": 0,
            "max_login_bytes": 536_870_912,
            "failed_login_delay": 10,
            "flapping_limit": 0,
            "flapping_window": 60,
            "flapping_ban": 300,
        },
        "store": {
            "durability": "os",
            "flush_interval": 1.0,
            "write_buffer_size": 16777216,
            "cache_size": 16777216,
            "max_uncommitted_writes": 100_000,
            "max_bytes": 0,
            "min_free_bytes": 1_073_741_824,
        },
        "network": {
            "write_buffer": 262144,
            "backlog": 4096,
            "topic_cache": 65536,
            "max_event_loop_drift": 0.02,
        },
        "cluster": {
            "node_name": "",
            "listen": "",
            "advertise": "",
            "join": [],
            "alone": False,
            "host": "",
            "key_file": None,
            "heartbeat_interval": 1.0,
            "heartbeat_timeout": 3.0,
            "dead_node_timeout": 0.0,
            "sync_timeout": 10.0,
            "buffer_bytes": 67_108_864,
            "leader_buffer_bytes": 134_217_728,
            "suback_after": "local",
            "suback_timeout": 5.0,
            "ack_after": "local",
            "slots": 1024,
            "replicas": 2,
            "allow_register_during_netsplit": True,
            "allow_publish_during_netsplit": True,
            "allow_subscribe_during_netsplit": True,
            "allow_unsubscribe_during_netsplit": True,
        },
        "jobs": {},
        "schedules": {},
        "mappings": {},
        "streams": {},
        "plugins": {},
    }


def test_the_defaults_pass_the_check() -> None:
    check(Config())


def test_without_sources_loading_gives_the_defaults() -> None:
    loaded = load()
    assert loaded.config == Config()
    assert {origin for _, _, origin in loaded.items()} == {"default"}


def test_one_configuration_does_not_share_listeners_with_another() -> None:
    Config().listeners.clear()
    assert set(Config().listeners) == {"tcp", "ws", "http"}


@pytest.mark.parametrize(
    ("auth", "listener", "here", "elsewhere"),
    [
        ("loopback", None, True, False),
        ("loopback", False, False, False),
        ("loopback", True, True, True),
        (True, None, True, True),
        (True, False, False, False),
        (False, None, False, False),
        (False, True, True, True),
    ],
)
def test_who_may_be_anonymous_where(
    auth: bool, listener: bool | None, here: bool, elsewhere: bool
) -> None:
    config = Config(
        auth=AuthOptions(allow_anonymous=auth),
        listeners={
            "here": ListenerOptions(url="tcp://127.0.0.1:1", allow_anonymous=listener),
            "elsewhere": ListenerOptions(url="tcp://0.0.0.0:1", allow_anonymous=listener),
        },
    )
    assert config.anonymous_allowed("here") is here
    assert config.anonymous_allowed("elsewhere") is elsewhere


def test_configurations_cannot_change_under_a_running_broker() -> None:
    with pytest.raises(AttributeError):
        Config().queue.drop = "oldest"  # type: ignore[misc]


def test_everything_that_the_module_promises_is_there() -> None:
    assert [
        name for name in vmq.config.options.__all__ if not hasattr(vmq.config.options, name)
    ] == []
