"""vernemq.conf: `key = value`, a line each; listeners and bridges are parts of keys."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from vmq.cli.importing.rules import (
    Imported,
    Rule,
    Setting,
    address,
    decimal,
    flag,
    levels,
    lifetime,
    milliseconds,
    mountpoint,
    number,
    one_of,
    read_text,
    url,
    zero_if_none,
)

_GLOBAL: Final = {
    "allow_anonymous": Rule(
        "auth.allow_anonymous",
        flag,
        "on lets in everybody and asks no plugin",
        closed=False,
    ),
    "allow_register_during_netsplit": Rule("cluster.allow_register_during_netsplit", flag),
    "allow_publish_during_netsplit": Rule("cluster.allow_publish_during_netsplit", flag),
    "allow_subscribe_during_netsplit": Rule("cluster.allow_subscribe_during_netsplit", flag),
    "allow_unsubscribe_during_netsplit": Rule("cluster.allow_unsubscribe_during_netsplit", flag),
    "mqtt_connect_timeout": Rule("session.mqtt_connect_timeout", milliseconds),
    "max_client_id_size": Rule("session.max_client_id_size", number),
    "persistent_client_expiration": Rule("session.persistent_client_expiration", lifetime),
    "retry_interval": Rule(
        "session.retry_interval",
        decimal,
        "0 sends again on reconnect only, as the standard has it",
    ),
    "max_inflight_messages": Rule("queue.max_inflight_messages", number),
    "max_online_messages": Rule("queue.max_online_messages", number),
    "max_offline_messages": Rule("queue.max_offline_messages", number),
    "queue_type": Rule("queue.queue_type"),
    "max_msgs_per_drain_step": Rule("queue.max_msgs_per_drain_step", number),
    "max_message_size": Rule("limits.max_message_size", number),
    "max_message_rate": Rule("limits.max_message_rate", decimal),
    "topic_max_depth": Rule("limits.topic_max_depth", number),
    "upgrade_outgoing_qos": Rule("session.upgrade_outgoing_qos", flag),
    "shared_subscription_policy": Rule("session.shared_subscription_policy"),
    "suppress_lwt_on_session_takeover": Rule("session.suppress_lwt_on_session_takeover", flag),
    "disconnect_on_unauthorized_publish_v3": Rule(
        "session.disconnect_on_unauthorized_publish_v3", flag
    ),
    "vmq_passwd.password_reload_interval": Rule("plugins.vmq_passwd.reload_interval", decimal),
    "vmq_acl.acl_reload_interval": Rule("plugins.vmq_acl.reload_interval", decimal),
    "systree_interval": Rule("plugins.vmq_systree.interval", milliseconds),
    "systree_prefix": Rule("plugins.vmq_systree.prefix"),
    "systree_qos": Rule("plugins.vmq_systree.qos", number),
    "systree_retain": Rule("plugins.vmq_systree.retain", flag),
    "systree_mountpoint": Rule("plugins.vmq_systree.mountpoint"),
    "graphite_host": Rule("plugins.vmq_graphite.host"),
    "graphite_port": Rule("plugins.vmq_graphite.port", number),
    "graphite_interval": Rule("plugins.vmq_graphite.interval", milliseconds),
    "graphite_prefix": Rule("plugins.vmq_graphite.prefix"),
    "graphite_api_key": Rule(note="put it in front of `prefix`"),
    "graphite_include_labels": Rule("plugins.vmq_graphite.include_labels", flag),
    "vmq_webhooks.pool_timeout": Rule("plugins.vmq_webhooks.pool_timeout", milliseconds),
    "vmq_webhooks.pool_max_connections": Rule("plugins.vmq_webhooks.pool_max_connections", number),
    "log.console.level": Rule("log.level", lambda text: {"notice": "info"}.get(text, text)),
    "log.console.file": Rule("log.file", is_path=True),
    "nodename": Rule(
        note="a node of a cluster is named by `cluster.node_name`; its address is `cluster.listen`"
    ),
    "distributed_cookie": Rule(
        note="nodes of a cluster share a key: `vmq cluster keygen`, `cluster.key_file`"
    ),
    "listener.vmq.clustering": Rule(note="`cluster.listen`; docs/cluster.md"),
    "metadata_plugin": Rule(note="there is one way"),
    "queue_deliver_mode": Rule(note="a client has one connection"),
    "allow_multiple_sessions": Rule(note="a client has one connection"),
    "max_last_will_delay": Rule(note="it belongs to MQTT 5"),
    "receive_max_client": Rule(note="it belongs to MQTT 5"),
    "receive_max_broker": Rule(note="it belongs to MQTT 5"),
    "topic_alias_max_client": Rule(note="it belongs to MQTT 5"),
    "topic_alias_max_broker": Rule(note="it belongs to MQTT 5"),
    "m5_max_packet_size": Rule("session.max_packet_size", number),
    "max_drain_time": Rule(note="a session moves to another node without a pause"),
    "log.console": Rule(note="the log goes to standard error, or to `log.file`"),
    "log.error.file": Rule(note="there is one log"),
    "log.crash": Rule(note="there is one log"),
    "log.crash.file": Rule(note="there is one log"),
    "log.syslog": Rule(note="the log goes to standard error, or to `log.file`"),
    "leveldb.maximum_memory.percent": Rule(note="`store.cache_size` and `store.write_buffer_size`"),
    "leveldb.maximum_memory": Rule(note="`store.cache_size` and `store.write_buffer_size`"),
    "crl_refresh_interval": Rule(note="files of TLS are looked at every ten seconds"),
    "plugins.vmq_diversity": Rule(
        note="scripts in Lua become plugins in Python: docs/examples has some for databases"
    ),
    "plugins.vmq_http_pub": Rule(note="every listener `http://` serves it, with an API key"),
}

_PER_LISTENER: Final = {
    "max_connections": Rule("max_connections", zero_if_none),
    "mountpoint": Rule("mountpoint", mountpoint),
    "allow_anonymous_override": Rule("allow_anonymous", flag, closed=False),
    "allowed_protocol_versions": Rule("allowed_protocol_versions", levels),
    "proxy_protocol": Rule(
        "proxy_protocol",
        flag,
        "only from addresses in `proxy_protocol_trusted`, this machine's by default",
    ),
    "proxy_xff_support": Rule("xff_enabled", flag),
    "proxy_xff_trusted_intermediate": Rule(
        "xff_trusted_intermediate", lambda text: re.split(r"[;,\s]+", text.strip())
    ),
    "cafile": Rule("cafile", is_path=True),
    "certfile": Rule("certfile", is_path=True),
    "keyfile": Rule("keyfile", is_path=True),
    "keypasswd": Rule("keypasswd"),
    "crlfile": Rule("crlfile", is_path=True),
    "ciphers": Rule("ciphers", lambda text: text.replace(",", ":")),
    "tls_version": Rule("tls_version", one_of({"tlsv1.2": "1.2", "tlsv1.3": "1.3"})),
    "require_certificate": Rule("require_certificate", flag, closed=True),
    "use_identity_as_username": Rule("use_identity_as_username", flag),
    "max_connection_lifetime": Rule("max_connection_lifetime", decimal),
    "nr_of_acceptors": Rule(note="there is one, which accepts all that wait"),
    "buffer_sizes": Rule(note="`network.write_buffer`"),
    "tcp_listen_options": Rule(note="`network.backlog`"),
    "allow_anonymous": Rule("allow_anonymous", flag, closed=False),
    "depth": Rule(note="OpenSSL's own"),
    "eccs": Rule(note="OpenSSL's own"),
    "support_elliptic_curves": Rule(note="they are"),
    "psk_support": Rule(note="there is no TLS-PSK; use certificates"),
    "http_modules": Rule(note="a listener of http serves all of it"),
    "config_mod": Rule(note="a listener of http serves all of it"),
    "config_fun": Rule(note="a listener of http serves all of it"),
}

#: All of them, for the page.
TABLE: Final = {**_GLOBAL, **_PER_LISTENER}

_SCHEMES: Final = {
    "tcp": ("tcp", "", 1883),
    "ssl": ("tls", "", 8883),
    "ws": ("ws", "/mqtt", 8080),
    "wss": ("wss", "/mqtt", 8084),
    "http": ("http", "", 8888),
}
_LISTENER: Final = re.compile(r"listener\.(tcp|ssl|ws|wss|http)\.([A-Za-z0-9_-]+)\Z")
_OF_LISTENER: Final = re.compile(r"listener\.(tcp|ssl|ws|wss|http)\.([A-Za-z0-9_-]+)\.(.+)")
_OF_ALL: Final = re.compile(r"listener\.(?:(tcp|ssl|ws|wss|http)\.)?([a-z_]+)\Z")
_OF_BRIDGE: Final = re.compile(r"vmq_bridge\.(tcp|ssl)\.([A-Za-z0-9_-]+)(?:\.(.+))?\Z")
_WEBHOOK: Final = re.compile(
    r"vmq_webhooks\.([A-Za-z0-9_-]+)\.(hook|endpoint|no_payload|cafile|certfile|keyfile)\Z"
)


def read(path: Path) -> Imported:
    """Imports a configuration of VerneMQ 1 or 2.

    Raises:
        ImportProblem: the file cannot be read.
    """
    reader = _VernemqReader(path)
    for each in settings(path):
        try:
            reader.take(each)
        except ValueError as error:
            reader.found.wrong(each, str(error))
    return reader.result()


def settings(path: Path) -> Iterator[Setting]:
    """The settings of a file; the last of a key counts, as in VerneMQ."""
    found: dict[str, Setting] = {}
    for count, line in enumerate(read_text(path).split("\n"), 1):
        text = line.partition("##")[0].strip()
        if not text or text.startswith("#"):
            continue
        key, _, value = (each.strip() for each in text.partition("="))
        found.pop(key, None)
        found[key] = Setting(f"{path}:{count}", key, value)
    yield from found.values()


class _VernemqReader:
    def __init__(self, path: Path) -> None:
        self.path = path
        self.found = Imported(self._locate)
        #: Listeners by name here: their kind and address there.
        self.listeners: dict[str, tuple[str, Setting]] = {}
        #: Options of all listeners, or of all of a kind.
        self.common: list[tuple[str, str, Setting]] = []
        self.options: list[tuple[str, str, Setting]] = []
        #: Listeners whose address or mountpoint cannot be used.
        self.left_out: set[str] = set()
        #: Which of VerneMQ's own plugins run: two by default.
        self.runs = {
            "vmq_passwd": True,
            "vmq_acl": True,
            "vmq_webhooks": False,
            "vmq_bridge": False,
        }
        self.files: dict[str, Setting] = {}
        #: Where each bridge is named first.
        self.bridges: dict[str, Setting] = {}
        #: Where it is said whether they run.
        self.off: dict[str, Setting] = {}
        self.systree = True
        self.graphite = False

    def take(self, setting: Setting) -> None:
        """Sees to one setting."""
        key = setting.key
        listener = _LISTENER.match(key)
        if listener is not None and listener[2] not in _PER_LISTENER:
            self.listeners[self._name(listener[1], listener[2])] = (listener[1], setting)
        elif of_one := _OF_LISTENER.match(key):
            self.options.append((self._name(of_one[1], of_one[2]), of_one[3], setting))
        elif key.startswith("listener.") and not key.startswith("listener.vmq"):
            found = _OF_ALL.match(key)
            kind, option = found.groups() if found else ("", key)
            self.common.append((kind or "", option, setting))
        elif not self._special(setting):
            self.found.apply(_GLOBAL, setting, key)

    def _special(self, setting: Setting) -> bool:
        """Sees to what is more than a value."""
        key = setting.key
        plugin = key.removeprefix("plugins.")
        if plugin in self.runs and key != plugin:
            self.runs[plugin] = flag(setting.value)
            self.off[plugin] = setting
        elif key.startswith("plugins.") and setting.value in ("off", "false"):
            pass
        elif key in ("vmq_passwd.password_file", "vmq_acl.acl_file"):
            self.files[key.partition(".")[0]] = setting
        elif key == "systree_enabled":
            self.systree = flag(setting.value)
        elif key == "graphite_enabled":
            self.graphite = flag(setting.value)
        elif key.startswith("vmq_webhooks.") and _WEBHOOK.match(key):
            self._webhook(setting)
        elif key.startswith("vmq_bridge."):
            self._bridge(setting)
        elif key.startswith(("erlang.", "vmq_diversity.")):
            self.found.lost(setting, "it belongs to Erlang" if key.startswith("erlang.") else "Lua")
        else:
            return False
        return True

    @staticmethod
    def _name(kind: str, name: str) -> str:
        plain = re.sub(r"[^a-z0-9]+", "_", name.lower()).strip("_")
        return kind if name == "default" else f"{kind}_{plain}"

    def _locate(self, text: str) -> Path:
        """Where a file lies: VerneMQ begins in its own folder, of which ./etc is that of the configuration."""
        folder, named = self.path.absolute().parent, Path(text)
        places = [folder / named, folder.parent / named, folder / named.name]
        return next((each for each in places if each.is_file()), places[0])

    def result(self) -> Imported:
        """What came of it all."""
        found = self.found
        for name, (kind, setting) in self.listeners.items():
            scheme, path, port = _SCHEMES[kind]
            try:
                host, number_of = address(setting.value, port)
            except ValueError as error:
                found.wrong(setting, str(error))
                self.left_out.add(name)
                continue
            found.set(f"listeners.{name}.url", url(scheme, host, number_of, path))
        for kind, option, setting in self.common:
            for name in [
                n for n, (k, _) in self.listeners.items() if kind in ("", k) and k != "http"
            ]:
                found.apply(_PER_LISTENER, setting, option, f"listeners.{name}")
        for name, option, setting in self.options:
            if name in self.listeners:
                found.apply(_PER_LISTENER, setting, option.rpartition(".")[2], f"listeners.{name}")
            if option == "mountpoint" and setting.value and not _is_mountpoint(setting.value):
                self.left_out.add(name)
        for name in self.left_out:
            found.tree.get("listeners", {}).pop(name, None)
        # There nobody is anonymous unless the file says so; the default here opens loopback.
        if "allow_anonymous" not in found.tree.setdefault("auth", {}):
            found.set("auth.allow_anonymous", False)
        self._plugins()
        return found

    def _plugins(self) -> None:
        plugins = self.found.tree.setdefault("plugins", {})
        for name, file in (("vmq_passwd", "passwd"), ("vmq_acl", "acl")):
            if self.runs[name]:
                plugins.setdefault(name, {})["file"] = file
                self._copy(name, file)
            else:
                plugins.pop(name, None)
        if self.runs["vmq_acl"]:
            plugins["vmq_acl"]["general"] = "everybody"
        elif not self._asks_elsewhere():
            # There, what no plugin allows is refused; here, where no plugin decides, everything is allowed.
            plugins["vmq_acl"] = {"file": "acl"}
            self.found.files["acl"] = b""
            self.found.wrong(
                self.off.get("vmq_acl", Setting(str(self.path), "plugins.vmq_acl", "")),
                "no plugin decides who may publish and subscribe: acl has no rules, so nothing is allowed",
            )
        if self.systree:
            plugins.setdefault("vmq_systree", {})
        else:
            plugins.pop("vmq_systree", None)
        if not self.graphite:
            plugins.pop("vmq_graphite", None)
        for name in ("vmq_webhooks", "vmq_bridge"):
            if not self.runs[name]:
                plugins.pop(name, None)
        self._drop_unfinished()

    def _asks_elsewhere(self) -> bool:
        """Whether webhooks decide who may publish and who may subscribe."""
        if not self.runs["vmq_webhooks"]:
            return False
        table = self.found.tree["plugins"].get("vmq_webhooks", {})
        hooks = {hook for each in table.get("endpoints", {}).values() for hook in each["hooks"]}
        return {"auth_on_publish", "auth_on_subscribe"} <= hooks

    def _copy(self, plugin: str, name: str) -> None:
        setting = self.files.get(plugin)
        default = {"vmq_passwd": "vmq.passwd", "vmq_acl": "vmq.acl"}[plugin]
        place = (
            setting if setting is not None else Setting(str(self.path), f"{plugin} file", default)
        )
        try:
            self.found.files[name] = self._locate(place.value).read_bytes()
        except (OSError, ValueError) as error:
            self.found.files[name] = b""
            reason = error.strerror if isinstance(error, OSError) else str(error)
            self.found.wrong(place, f"{reason}: copy the file to {name} beside vmq.toml")

    def _webhook(self, setting: Setting) -> None:
        found = _WEBHOOK.match(setting.key)
        assert found is not None
        name, option = found.groups()
        table: dict[str, Any] = self.found.tree.setdefault("plugins", {}).setdefault(
            "vmq_webhooks", {}
        )
        endpoint = table.setdefault("endpoints", {}).setdefault(name, {"hooks": []})
        match option:
            case "hook":
                endpoint["hooks"] = [setting.value]
            case "endpoint":
                endpoint["url"] = setting.value
            case "no_payload":
                endpoint["no_payload"] = flag(setting.value)
            case _:
                endpoint[option] = self.found.located(setting)

    def _bridge(self, setting: Setting) -> None:
        """`vmq_bridge.tcp.br0 = HOST:PORT`, and its options and topics."""
        found = _OF_BRIDGE.match(setting.key)
        if found is None:
            raise ValueError(
                "accepted: vmq_bridge.tcp.NAME or vmq_bridge.ssl.NAME, and its options"
            )
        kind, name, option = found.groups()
        bridges = self.found.tree.setdefault("plugins", {}).setdefault("vmq_bridge", {})
        table = bridges.setdefault("bridges", {}).setdefault(name, {"topics": []})
        self.bridges.setdefault(name, setting)
        if not option:
            scheme, port = ("mqtts", 8883) if kind == "ssl" else ("mqtt", 1883)
            table["url"] = url(scheme, *address(setting.value, port))
        elif option.startswith("topic."):
            table["topics"].append(_topic(setting.value))
        elif option in _BRIDGE:
            self.found.apply(_BRIDGE, setting, option, f"plugins.vmq_bridge.bridges.{name}")
        else:
            self.found.lost(setting, "an option that bridges here have none of")

    def _drop_unfinished(self) -> None:
        """Leaves out bridges without an address or a topic, which would keep the broker from starting."""
        table = self.found.tree["plugins"].get("vmq_bridge", {})
        bridges = table.get("bridges", {})
        for name, bridge in list(bridges.items()):
            missing = [
                what for what, of in (("address", "url"), ("topic", "topics")) if not bridge.get(of)
            ]
            if missing:
                what = f"the bridge is left out: it has no {' and no '.join(missing)}"
                self.found.wrong(self.bridges[name], what)
                del bridges[name]
        if not bridges:
            self.found.tree["plugins"].pop("vmq_bridge", None)


def _is_mountpoint(text: str) -> bool:
    try:
        return mountpoint(text) is not None
    except ValueError:
        return False


def _topic(text: str) -> dict[str, Any]:
    """A topic of a bridge: `PATTERN DIRECTION QOS LOCAL REMOTE`."""
    words = [each.strip('"') for each in text.split()]
    pattern, direction, qos, local, remote, *more = [
        *words,
        *("", "out", "0", "", "")[len(words) :],
    ]
    if not words or more or direction not in ("in", "out", "both") or qos not in ("0", "1", "2"):
        raise ValueError('accepted: PATTERN [in, out or both [0, 1 or 2 ["LOCAL" ["REMOTE"]]]]')
    return (
        {"pattern": pattern, "direction": direction, "qos": int(qos)}
        | ({"local_prefix": local} if local else {})
        | ({"remote_prefix": remote} if remote else {})
    )


_BRIDGE: Final = {
    "client_id": Rule("client_id"),
    "username": Rule("username"),
    "password": Rule("password"),
    "cleansession": Rule("clean_session", flag),
    "keepalive_interval": Rule("keepalive", number),
    "restart_timeout": Rule("reconnect_delay", decimal),
    "try_private": Rule("try_private", flag),
    "cafile": Rule("cafile", is_path=True),
    "certfile": Rule("certfile", is_path=True),
    "keyfile": Rule("keyfile", is_path=True),
    "insecure": Rule("insecure", flag),
    "max_outgoing_buffered_messages": Rule("max_offline_messages", number),
    "mqtt_version": Rule("protocol_version", number),
}
