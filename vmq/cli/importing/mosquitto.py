"""mosquitto.conf: names and values, a line each; `listener` and `connection` begin sections."""

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from vmq.cli.importing.rules import (
    Imported,
    ImportProblem,
    Rule,
    Setting,
    address,
    flag,
    lifetime,
    none_if_zero,
    number,
    read_text,
    url,
    zero_if_none,
)

_DEEPEST: Final = 10


def _tls(text: str) -> str:
    if text not in ("tlsv1.2", "tlsv1.3"):
        raise ValueError("accepted here: TLS 1.2 and later, which is what it listens with")
    return text.removeprefix("tlsv")


_LEVELS: Final = ("error", "warning", "notice", "information", "debug", "all")


def _level(text: str) -> str | None:
    found = {"notice": "info", "information": "info", "all": "debug"}.get(text, text)
    return found if text in _LEVELS else None


_PER_LISTENER: Final = {
    "max_connections": Rule("max_connections", zero_if_none),
    "certfile": Rule("certfile"),
    "keyfile": Rule("keyfile"),
    "cafile": Rule("cafile"),
    "crlfile": Rule("crlfile"),
    "ciphers": Rule("ciphers"),
    "tls_version": Rule("tls_version", _tls),
    "require_certificate": Rule("require_certificate", flag),
    "use_identity_as_username": Rule("use_identity_as_username", flag),
    "websockets_origin": Rule("allowed_origins", lambda text: [text]),
    "mount_point": Rule(
        note="there it is put before the topics; here `mountpoint` makes a topic tree of its own. A plugin may "
        "change topics (auth_on_publish, auth_on_subscribe, on_deliver)"
    ),
    "capath": Rule(note="put the certificates into one file: `cafile`"),
    "ciphers_tls1.3": Rule(note="those of OpenSSL are used"),
    "dhparamfile": Rule(note="key exchange is by elliptic curves"),
    "use_subject_as_username": Rule(note="the common name is: `use_identity_as_username`"),
    "use_username_as_clientid": Rule(
        note="a plugin may change the client id (auth_on_register), and a session is its user's (`session.owner`)"
    ),
    "psk_file": Rule(note="there is no TLS-PSK; use certificates"),
    "psk_hint": Rule(note="there is no TLS-PSK; use certificates"),
    "http_dir": Rule(note="a web server serves files"),
    "socket_domain": Rule(note="the address says it: an IPv4 or an IPv6 one"),
    "max_qos": Rule(note="a plugin may change the QoS (auth_on_publish, auth_on_subscribe)"),
    "max_topic_alias": Rule(note="it belongs to MQTT 5"),
    "websockets_headers_size": Rule(note="it is bounded"),
    "bind_interface": Rule(note="name the address of the interface in the URL"),
    "accept_protocol_versions": Rule(
        "allowed_protocol_versions",
        lambda text: [level for level in (3, 4) if str(level) in re.split(r"[,\s]+", text)],
    ),
}

_GLOBAL: Final = {
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
    "clientid_prefixes": Rule(note="a plugin decides (auth_on_register)"),
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
    "per_listener_settings": Rule(note="listeners choose plugins: `auth_plugins`, `authz_plugins`"),
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

_BRIDGE: Final = {
    "remote_username": Rule("username"),
    "username": Rule("username"),
    "remote_password": Rule("password"),
    "password": Rule("password"),
    "remote_clientid": Rule("client_id"),
    "clientid": Rule("client_id"),
    "cleansession": Rule("clean_session", flag),
    "keepalive_interval": Rule("keepalive", number),
    "try_private": Rule("try_private", flag),
    "bridge_cafile": Rule("cafile"),
    "bridge_certfile": Rule("certfile"),
    "bridge_keyfile": Rule("keyfile"),
    "bridge_insecure": Rule("insecure", flag),
    "bridge_max_packet_size": Rule("max_packet_size", number),
    "bridge_protocol_version": Rule(
        "protocol_version",
        lambda text: {"mqttv31": 3, "mqttv311": 4}[text] if text != "mqttv50" else 4,
    ),
    "restart_timeout": Rule("reconnect_delay", lambda text: float(text.split()[0])),
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
TABLE: Final = {**_GLOBAL, **_PER_LISTENER, **_BRIDGE}


def read(path: Path) -> Imported:
    """Imports a configuration of mosquitto 1.6 or later.

    Raises:
        ImportProblem: a file cannot be read.
    """
    return _MosquittoReader(path).result()


def settings(path: Path, depth: int = 0) -> Iterator[Setting]:
    """The settings of a file and of those that it includes, in order."""
    if depth > _DEEPEST:
        raise ImportProblem(f"{path}: include_dir goes round in a circle")
    for count, line in enumerate(read_text(path).splitlines(), 1):
        key, _, value = line.strip().partition(" ")
        if not key or key.startswith("#"):
            continue
        if key == "include_dir":
            for each in sorted((path.parent / value.strip()).glob("*.conf")):
                yield from settings(each, depth + 1)
            continue
        yield Setting(f"{path}:{count}", key, value.strip())


class _MosquittoReader:
    """Goes through the settings; `listener` and `connection` say whose those behind them are."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.found = Imported()
        self.listener: str | None = None
        self.bridge: str | None = None
        #: What a listener says of its address before it is known: port, host, protocol.
        self.parts: dict[str, dict[str, Any]] = {}
        self.anonymous: bool | None = None
        #: Seconds between the topics below $SYS; 0 = there are none.
        self.systree = 10.0
        for each in settings(path):
            self._take(each)

    def result(self) -> Imported:
        found = self.found
        if not self.parts:
            # mosquitto 2 without a listener: this machine only, everybody on it.
            self.parts["default"] = {"host": "127.0.0.1", "port": 1883}
            found.set("auth.allow_anonymous", "loopback")
        elif self.anonymous is None:
            found.set("auth.allow_anonymous", False)
        for name, parts in self.parts.items():
            self._address(name, parts)
        if self.systree:
            found.set("plugins.vmq_systree.interval", self.systree)
        bridges = found.tree.get("plugins", {}).get("vmq_bridge", {}).get("bridges", {})
        for bridge in bridges.values():
            if {"cafile", "certfile", "insecure"} & set(bridge) and "url" in bridge:
                bridge["url"] = bridge["url"].replace("mqtt://", "mqtts://")
        return found

    def _address(self, name: str, parts: Mapping[str, Any]) -> None:
        table = self.found.tree.setdefault("listeners", {}).setdefault(name, {})
        if parts["port"] == 0:
            table["url"] = f"unix://{parts['host']}"
            return
        is_tls, is_web = "certfile" in table, parts.get("protocol") == "websockets"
        scheme = {(0, 0): "tcp", (1, 0): "tls", (0, 1): "ws", (1, 1): "wss"}[is_tls, is_web]
        table["url"] = url(scheme, parts["host"], parts["port"], "/" if is_web else "")

    def _take(self, setting: Setting) -> None:
        key = setting.key
        special = getattr(self, f"_on_{key}", None)
        if special is not None:
            special(setting)
        elif self.bridge is not None and key in _BRIDGE:
            self.found.apply(_BRIDGE, setting, key, f"plugins.vmq_bridge.bridges.{self.bridge}")
        elif key in _PER_LISTENER:
            name = self.listener or self._default()
            self.found.apply(_PER_LISTENER, setting, key, f"listeners.{name}")
        elif key.startswith(("plugin_opt_", "auth_opt_")):
            self.found.lost(setting, "an option of a plugin")
        else:
            self.found.apply(_GLOBAL, setting, key)

    def _default(self) -> str:
        self.parts.setdefault("default", {"host": "0.0.0.0", "port": 1883})  # noqa: S104 - mosquitto's own
        return "default"

    # Settings that are more than a value

    def _on_listener(self, setting: Setting) -> None:
        port, _, host = setting.value.partition(" ")
        self.listener = f"port{port}" if port != "0" else f"socket{len(self.parts) + 1}"
        if self.listener in self.parts:
            self.listener += f"_{len(self.parts) + 1}"
        self.bridge = None
        try:
            self.parts[self.listener] = {"host": host.strip() or "0.0.0.0", "port": int(port)}  # noqa: S104
        except ValueError:
            raise ImportProblem(
                f"{setting.place}: {setting.shown}: the port is no number"
            ) from None

    def _on_port(self, setting: Setting) -> None:
        self._default()
        self.parts["default"]["port"] = int(setting.value)

    def _on_bind_address(self, setting: Setting) -> None:
        self._default()
        self.parts["default"]["host"] = setting.value

    def _on_protocol(self, setting: Setting) -> None:
        name = self.listener or self._default()
        if setting.value == "http_api":
            self.found.lost(setting, "a listener `http://HOST:PORT` serves vmq's own API")
        self.parts[name]["protocol"] = setting.value

    def _on_allow_anonymous(self, setting: Setting) -> None:
        allowed = flag(setting.value)
        self.anonymous = allowed
        if self.listener is None:
            self.found.set("auth.allow_anonymous", allowed)
        else:
            self.found.set(f"listeners.{self.listener}.allow_anonymous", allowed)
        if allowed:
            self.found.differs(
                setting,
                "here it lets in everybody and asks no plugin; leave it out if users are to log in as well",
            )

    def _on_password_file(self, setting: Setting) -> None:
        self._file(setting, "passwd", "vmq_passwd")

    def _on_acl_file(self, setting: Setting) -> None:
        self._file(setting, "acl", "vmq_acl")
        self.found.differs(
            setting,
            "rules mean the same or less here: plugins/vmq_acl/README.md has the differences",
        )

    def _file(self, setting: Setting, name: str, plugin: str) -> None:
        path = self.path.parent / setting.value
        try:
            data = path.read_bytes()
        except OSError as error:
            self.found.lost(setting, f"{error.strerror}: copy the file to {name} beside vmq.toml")
            data = b""
        if self.found.files.get(name, data) != data:
            self.found.lost(setting, f"listeners have different files; {name} is that of the first")
            return
        self.found.files[name] = data
        self.found.set(f"plugins.{plugin}.file", name)

    def _on_sys_interval(self, setting: Setting) -> None:
        self.systree = float(setting.value)
        if self.systree:
            self.found.differs(setting, "the topics are $SYS/NODE/..., with names of vmq's own")

    def _on_log_dest(self, setting: Setting) -> None:
        kind, _, file = setting.value.partition(" ")
        if kind == "file":
            self.found.set("log.file", file.strip())
        elif kind != "stderr":
            self.found.lost(setting, "the log goes to standard error, or to `log.file`")

    def _on_connection(self, setting: Setting) -> None:
        self.bridge = re.sub(r"\W", "_", setting.value)
        self.found.set(f"plugins.vmq_bridge.bridges.{self.bridge}", {"topics": []})

    def _on_address(self, setting: Setting) -> None:
        first, *others = setting.value.split()
        host, port = address(first if ":" in first else f"{first}:", 1883)
        self._bridge_table(setting)["url"] = url("mqtt", host, port)
        if others:
            self.found.lost(setting, "a bridge has one address: the first")

    _on_addresses = _on_address

    def _on_topic(self, setting: Setting) -> None:
        words = [each.strip('"') for each in setting.value.split()]
        pattern, direction, qos, local, remote = [*words, *("", "out", "0", "", "")[len(words) :]]
        rule = {"pattern": pattern, "direction": direction, "qos": int(qos)}
        rule |= {"local_prefix": local} if local else {}
        rule |= {"remote_prefix": remote} if remote else {}
        self._bridge_table(setting)["topics"].append(rule)

    def _bridge_table(self, setting: Setting) -> dict[str, Any]:
        if self.bridge is None:
            raise ImportProblem(
                f"{setting.place}: {setting.shown}: there is no connection before it"
            )
        table: dict[str, Any] = self.found.tree["plugins"]["vmq_bridge"]["bridges"][self.bridge]
        return table
