"""What becomes of the settings of mosquitto that are a value each."""

from typing import Final

from vmq.cli.importing.rules import (
    Rule,
    decimal,
    flag,
    levels,
    lifetime,
    mountpoint,
    none_if_zero,
    number,
    one_of,
    zero_if_none,
)


def _tls(text: str) -> str:
    if text not in ("tlsv1.2", "tlsv1.3"):
        raise ValueError("accepted here: TLS 1.2 and later, which is what it listens with")
    return text.removeprefix("tlsv")


_LEVELS: Final = ("error", "warning", "notice", "information", "debug", "all")


def _level(text: str) -> str | None:
    found = {"notice": "info", "information": "info", "all": "debug"}.get(text, text)
    return found if text in _LEVELS else None


PER_LISTENER: Final = {
    "max_connections": Rule("max_connections", zero_if_none),
    "certfile": Rule("certfile", is_path=True),
    "keyfile": Rule("keyfile", is_path=True),
    "cafile": Rule("cafile", is_path=True),
    "crlfile": Rule("crlfile", is_path=True),
    "ciphers": Rule("ciphers"),
    "tls_version": Rule("tls_version", _tls),
    "require_certificate": Rule("require_certificate", flag, closed=True),
    "use_identity_as_username": Rule("use_identity_as_username", flag),
    "websockets_origin": Rule("allowed_origins", lambda text: [text]),
    "mount_point": Rule(
        "mountpoint",
        mountpoint,
        "there it is put before the topics; here it makes a topic tree of its own",
    ),
    "capath": Rule(note="put the certificates into one file: `cafile`"),
    "ciphers_tls1.3": Rule(note="those of OpenSSL are used"),
    "dhparamfile": Rule(note="key exchange is by elliptic curves"),
    "use_subject_as_username": Rule(note="the common name is: `use_identity_as_username`"),
    "use_username_as_clientid": Rule(
        note="a plugin may change the client id (auth_on_register), and a session is its user's (`session.owner`)"
    ),
    "psk_file": Rule(note="there is no TLS-PSK; use certificates"),
    "psk_hint": Rule(note="there is no TLS-PSK, so the listener is left out; use certificates"),
    "http_dir": Rule(note="a web server serves files"),
    "socket_domain": Rule(note="the address says it: an IPv4 or an IPv6 one"),
    "max_qos": Rule(note="a plugin may change the QoS (auth_on_publish, auth_on_subscribe)"),
    "max_topic_alias": Rule(note="it belongs to MQTT 5"),
    "websockets_headers_size": Rule(note="it is bounded"),
    "bind_interface": Rule(
        note="here it listens on this machine alone; name the address of the interface in the URL"
    ),
    "accept_protocol_versions": Rule("allowed_protocol_versions", levels),
}

GLOBAL: Final = {
    "max_inflight_messages": Rule("queue.max_inflight_messages", number),
    "max_inflight_bytes": Rule("queue.max_inflight_bytes", none_if_zero),
    "max_queued_messages": Rule(
        "queue.max_offline_messages queue.max_online_messages", none_if_zero
    ),
    "max_queued_bytes": Rule("queue.max_bytes queue.max_memory_bytes", none_if_zero),
    "max_packet_size": Rule("session.max_packet_size", number),
    "message_size_limit": Rule("limits.max_message_size", number),
    "memory_limit": Rule("limits.max_memory", number),
    "persistent_client_expiration": Rule("session.persistent_client_expiration", lifetime),
    "upgrade_outgoing_qos": Rule("session.upgrade_outgoing_qos", flag),
    "check_retain_source": Rule("auth.check_retain_source", flag),
    "log_type": Rule("log.level", _level),
    "persistence": Rule(
        "store.durability",
        lambda text: None if flag(text) else "memory",
        "sessions and retained messages are kept all the same; the data of mosquitto are not taken over",
    ),
    "persistence_location": Rule(
        note="`broker.data_dir` has a folder of its own: the data of mosquitto have another form"
    ),
    "persistence_file": Rule(note="see `broker.data_dir`"),
    "autosave_interval": Rule(note="what is acknowledged is on disk (`store.durability`)"),
    "autosave_on_changes": Rule(note="what is acknowledged is on disk (`store.durability`)"),
    "allow_duplicate_messages": Rule(
        note="a client with overlapping subscriptions gets a message for each, as the standard has it"
    ),
    "allow_zero_length_clientid": Rule(note="it is allowed, with a clean session"),
    "auto_id_prefix": Rule(note="a client without an id gets a random one"),
    "clientid_prefixes": Rule(note="a plugin decides (auth_on_register)", guards=True),
    "queue_qos0_messages": Rule(note="QoS 0 is not kept for clients that are away"),
    "retain_available": Rule(note="a plugin may take RETAIN away (auth_on_publish)"),
    "retain_expiry_interval": Rule(note="retained messages stay until they are cleared"),
    "set_tcp_nodelay": Rule(note="it is set"),
    "max_keepalive": Rule(note="MQTT 3.1.1 leaves it to the client"),
    "user": Rule(note="the service manager says as whom: config/vmq.service"),
    "pid_file": Rule(note="the service manager knows: config/vmq.service"),
    "log_timestamp": Rule(note="each line has its time"),
    "log_timestamp_format": Rule(note="each line has its time, in ISO 8601"),
    "log_facility": Rule(note="the log goes to standard error, or to `log.file`"),
    "connection_messages": Rule(note="they are logged; a flood is summed up (`log.flood_limit`)"),
    "per_listener_settings": Rule(
        note="each listener is given what it says, or less: `allow_anonymous`, `auth_plugins`, `authz_plugins`"
    ),
    "global_plugin": Rule(note="plugins are Python here: hooks/README.md"),
    "plugin": Rule(
        note="plugins are Python here: hooks/README.md; docs/examples has some for databases"
    ),
    "auth_plugin": Rule(
        note="plugins are Python here: hooks/README.md; docs/examples has some for databases"
    ),
    "auth_plugin_deny_special_chars": Rule(note="names are not trusted in patterns"),
    "enable_control_api": Rule(note="vmq has a command line and an HTTP API"),
}

BRIDGE: Final = {
    "remote_username": Rule("username"),
    "username": Rule("username"),
    "remote_password": Rule("password"),
    "password": Rule("password"),
    "remote_clientid": Rule("client_id"),
    "clientid": Rule("client_id"),
    "cleansession": Rule("clean_session", flag),
    "keepalive_interval": Rule("keepalive", number),
    "try_private": Rule("try_private", flag),
    "bridge_cafile": Rule("cafile", is_path=True),
    "bridge_certfile": Rule("certfile", is_path=True),
    "bridge_keyfile": Rule("keyfile", is_path=True),
    "bridge_insecure": Rule("insecure", flag),
    "bridge_max_packet_size": Rule("max_packet_size", number),
    "bridge_protocol_version": Rule(
        "protocol_version", one_of({"mqttv31": 3, "mqttv311": 4, "mqttv50": 4})
    ),
    "restart_timeout": Rule("reconnect_delay", lambda text: decimal(text.partition(" ")[0])),
    "bridge_capath": Rule(note="put the certificates into one file: `cafile`"),
    "start_type": Rule(note="a bridge is always up"),
    "notifications": Rule(note="`vmq metrics` and /metrics tell of the link"),
    "notification_topic": Rule(note="`vmq metrics` and /metrics tell of the link"),
    "notifications_local_only": Rule(note="`vmq metrics` and /metrics tell of the link"),
    "round_robin": Rule(note="a bridge has one address"),
    "local_clientid": Rule(note="it is vmq-bridge-NAME"),
    "local_cleansession": Rule(note="the session here is durable"),
    "idle_timeout": Rule(note="a bridge is always up"),
    "threshold": Rule(note="a bridge is always up"),
    "bridge_attempt_unsubscribe": Rule(note="subscriptions that are no longer named end"),
    "bridge_outgoing_retain": Rule(note="retained messages go retained"),
    "bridge_alpn": Rule(note="none is sent"),
    "bridge_psk": Rule(note="there is no TLS-PSK; use certificates"),
    "bridge_identity": Rule(note="there is no TLS-PSK; use certificates"),
    "bridge_bind_address": Rule(note="the system chooses"),
    "bridge_require_ocsp": Rule(note="certificates are not asked about elsewhere"),
}

#: All of them, for the page.
TABLE: Final = {**GLOBAL, **PER_LISTENER, **BRIDGE}
