"""emqx.conf of EMQX 5, in HOCON."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from vmq.cli.importing.emqx_acl import SHIPPED, acl
from vmq.cli.importing.hocon import Lines, as_text, parsed, settings
from vmq.cli.importing.rules import (
    Imported,
    ImportProblem,
    Rule,
    Setting,
    address,
    flag,
    mountpoint,
    number,
    read_text,
    seconds,
    size,
    span,
    url,
    zero_if_none,
)


def _infinite(text: str) -> int:
    return -1 if text in ("infinity", "0") else number(text)


_POLICIES: Final = {"random": "random", "local": "prefer_local"}

_GLOBAL: Final = {
    "mqtt.max_packet_size": Rule("session.max_packet_size", size),
    "mqtt.max_clientid_len": Rule("session.max_client_id_size", number),
    "mqtt.max_topic_levels": Rule("limits.topic_max_depth", number),
    "mqtt.max_inflight": Rule("queue.max_inflight_messages", number),
    "mqtt.max_mqueue_len": Rule("queue.max_online_messages queue.max_offline_messages", _infinite),
    "mqtt.upgrade_qos": Rule("session.upgrade_outgoing_qos", flag),
    "mqtt.idle_timeout": Rule("session.mqtt_connect_timeout", seconds),
    "mqtt.retry_interval": Rule(
        "session.retry_interval", lambda text: 0.0 if text == "infinity" else seconds(text)
    ),
    "mqtt.session_expiry_interval": Rule("session.persistent_client_expiration", span),
    "mqtt.max_subscriptions": Rule("limits.max_subscriptions_per_client", zero_if_none),
    "mqtt.shared_subscription_strategy": Rule(
        "session.shared_subscription_policy", lambda text: _POLICIES.get(text, "random")
    ),
    "mqtt.shared_subscription": Rule(note="they are there"),
    "mqtt.wildcard_subscription": Rule(note="they are there; vmq_acl refuses what is not to be"),
    "mqtt.exclusive_subscription": Rule(note="a plugin decides (auth_on_subscribe)"),
    "mqtt.retain_available": Rule(note="a plugin may take RETAIN away (auth_on_publish)"),
    "mqtt.max_qos_allowed": Rule(note="a plugin may change the QoS (auth_on_publish)"),
    "mqtt.mqueue_store_qos0": Rule(note="QoS 0 is not kept for clients that are away"),
    "mqtt.mqueue_priorities": Rule(note="queues have none; jobs have (docs/jobs.md)"),
    "mqtt.mqueue_default_priority": Rule(note="queues have none; jobs have (docs/jobs.md)"),
    "mqtt.await_rel_timeout": Rule(note="a QoS 2 message is remembered until it is released"),
    "mqtt.max_awaiting_rel": Rule(note="MQTT bounds them by their packet ids"),
    "mqtt.ignore_loop_deliver": Rule(note="bridges get back nothing of their own"),
    "mqtt.keepalive_multiplier": Rule(note="1.5, as the standard has it"),
    "mqtt.keepalive_backoff": Rule(note="1.5, as the standard has it"),
    "mqtt.server_keepalive": Rule(note="it belongs to MQTT 5"),
    "mqtt.max_topic_alias": Rule(note="it belongs to MQTT 5"),
    "mqtt.response_information": Rule(note="it belongs to MQTT 5"),
    "mqtt.strict_mode": Rule(note="what breaks the standard ends the connection"),
    "mqtt.use_username_as_clientid": Rule(
        note="a plugin may change the client id (auth_on_register)"
    ),
    "mqtt.peer_cert_as_username": Rule(note="`use_identity_as_username` of a listener"),
    "mqtt.peer_cert_as_clientid": Rule(note="a plugin may change the client id (auth_on_register)"),
    "retainer.max_payload_size": Rule(note="`limits.max_message_size` is for all messages"),
    "retainer.backend.max_retained_messages": Rule(
        "limits.max_retained_messages", lambda text: number(text) or None
    ),
    "retainer.msg_expiry_interval": Rule(note="retained messages stay until they are cleared"),
    "retainer.enable": Rule(note="retained messages are kept"),
    "flapping_detect.max_count": Rule("limits.flapping_limit", number),
    "flapping_detect.window_time": Rule("limits.flapping_window", seconds),
    "flapping_detect.ban_time": Rule("limits.flapping_ban", seconds),
    "log.console.level": Rule(
        "log.level", lambda text: {"notice": "info", "critical": "error"}.get(text, text)
    ),
    "log.console.formatter": Rule("log.format"),
    "log.file.to": Rule("log.file", is_path=True),
    "node.name": Rule(note="a node of a cluster is named by `cluster.node_name`; docs/cluster.md"),
    "node.cookie": Rule(
        note="nodes of a cluster share a key: `vmq cluster keygen`, `cluster.key_file`"
    ),
    "node.data_dir": Rule(
        note="`broker.data_dir` has a folder of its own: the data have another form"
    ),
    "sys_topics.sys_msg_interval": Rule("plugins.vmq_systree.interval", seconds),
    "prometheus.enable": Rule(note="a listener `http://` serves /metrics"),
}

_SECTIONS: Final = {
    "cluster": "nodes join by `cluster.join`; docs/cluster.md",
    "dashboard": "a listener `http://` has a page, /status.json and the API; there are no users of it",
    "rule_engine": "a plugin (on_publish), or a stream (docs/streams.md) that programs read",
    "bridges": "vmq_bridge for MQTT; for the rest a stream (docs/streams.md) that programs read",
    "connectors": "vmq_bridge for MQTT; for the rest a stream (docs/streams.md) that programs read",
    "actions": "a plugin, or a stream (docs/streams.md) that programs read",
    "exhook": "vmq_webhooks, or a plugin",
    "gateway": "there is MQTT alone",
    "sysmon": "the watchdog and /health need no setting",
    "limiter": "`limits.max_message_rate` and `limits.max_byte_rate`, a client",
    "rewrite": "a plugin may change topics (auth_on_publish, auth_on_subscribe)",
    "delayed": "publish to `$delayed/SECONDS/TOPIC` (docs/jobs.md)",
    "auto_subscribe": "clients subscribe",
    "telemetry": "nothing is sent anywhere",
    "rpc": "nodes are linked by ZeroMQ; docs/cluster.md",
    "durable_sessions": "sessions are durable where clients ask for it",
    "durable_storage": "sessions are durable where clients ask for it",
    "force_shutdown": "`queue.max_memory_bytes` and `limits.stalled_client_timeout`",
    "force_gc": "it belongs to Erlang",
    "conn_congestion": "`limits.stalled_client_timeout`",
    "api_key": "`vmq api-key create`",
    "opentelemetry": "a listener `http://` serves /metrics",
}

_PER_LISTENER: Final = {
    "max_connections": Rule("max_connections", zero_if_none),
    "proxy_protocol": Rule(
        "proxy_protocol",
        flag,
        "only from addresses in `proxy_protocol_trusted`, this machine's by default",
    ),
    "ssl_options.certfile": Rule("certfile", is_path=True),
    "ssl_options.keyfile": Rule("keyfile", is_path=True),
    "ssl_options.password": Rule("keypasswd"),
    "ssl_options.cacertfile": Rule("cafile", is_path=True),
    "ssl_options.fail_if_no_peer_cert": Rule("require_certificate", flag, closed=True),
    "mountpoint": Rule(
        "mountpoint",
        mountpoint,
        "there it is put before the topics; here it makes a topic tree of its own. A listener whose mountpoint has "
        "a placeholder is left out",
    ),
    "ssl_options.verify": Rule(
        read=str, note="a certificate is verified where there is a `cafile`"
    ),
    "ssl_options.versions": Rule(note="TLS 1.2 and later: `tls_version`"),
    "ssl_options.ciphers": Rule(note="`ciphers`, in OpenSSL's form"),
    "websocket.check_origin_enable": Rule(note="`allowed_origins`"),
    "websocket.check_origins": Rule(note="`allowed_origins`"),
    "acceptors": Rule(note="there is one, which accepts all that wait"),
    "tcp_options.backlog": Rule(note="`network.backlog`"),
    "enable_authn": Rule(note="`auth_plugins` and `allow_anonymous` of a listener"),
    "access_rules": Rule(
        note="a firewall, or `vmq ban add --address`; where they deny anybody, the listener is left out"
    ),
    "authentication": Rule(
        note="nobody is let in there: `auth_plugins` of a listener names plugins"
    ),
    "zone": Rule(note="settings hold for all listeners"),
}

#: All of them, for the page.
TABLE: Final = {**_GLOBAL, **_PER_LISTENER}

_SCHEMES: Final = {
    "tcp": ("tcp", 1883),
    "ssl": ("tls", 8883),
    "ws": ("ws", 8083),
    "wss": ("wss", 8084),
}


def read(path: Path) -> Imported:
    """Imports a configuration of EMQX 5.

    Raises:
        ImportProblem: it cannot be read, or it is no HOCON.
    """
    return _EmqxReader(path).result()


class _EmqxReader:
    def __init__(self, path: Path) -> None:
        self._path = path
        self._tree = parsed(path)
        self._lines = Lines(path)
        self._found = Imported(self._locate)

    def result(self) -> Imported:
        """What comes of it all."""
        tree, found = self._tree, self._found
        said = tree.get("authorization")
        has_sources = isinstance(said, dict) and "sources" in said
        authentication = tree.pop("authentication", [])
        authorization = self._table(tree.pop("authorization", {}), "authorization")
        self._listeners(self._table(tree.pop("listeners", {}), "listeners"))
        for setting in settings(self._lines, tree):
            section = setting.key.partition(".")[0]
            if section in _SECTIONS:
                if not any(note.what.startswith(section + ".") for note in found.notes):
                    whole = Setting(self._lines.place(section), f"{section}.*", "")
                    found.lost(whole, _SECTIONS[section])
                continue
            if setting.key == "flapping_detect.enable":
                continue
            found.apply(_GLOBAL, setting, setting.key)
        flapping = tree.get("flapping_detect")
        if not (isinstance(flapping, dict) and flapping.get("enable") is True):
            found.tree.get("limits", {}).pop("flapping_limit", None)
        self._authentication(authentication)
        self._authorization(authorization, has_sources)
        return found

    def _setting(self, key: str, value: object = "") -> Setting:
        return Setting(self._lines.place(key), key, as_text(value))

    def _table(self, value: object, key: str) -> dict[str, Any]:
        if isinstance(value, dict):
            return dict(value)
        self._found.wrong(self._setting(key, value), "accepted: a table")
        return {}

    def _flag(self, value: object, key: str) -> bool | None:
        """Yes, no, or None: it is neither, which is told."""
        try:
            return flag(as_text(value))
        except ValueError as error:
            self._found.wrong(self._setting(key, value), str(error))
            return None

    def _locate(self, text: str) -> Path:
        """Where a file lies: EMQX's own folders stand in variables, or are relative to its root."""
        named = Path(re.sub(r"^\$\{\w+\}/", "", text))
        folder = self._path.absolute().parent
        places = [folder / named, folder.parent / named, folder / Path(*named.parts[1:])]
        return next((each for each in places if each.is_file()), places[0])

    # Listeners

    def _listeners(self, kinds: dict[str, Any]) -> None:
        """Those of the file, over EMQX's own four: a file that names none has them too."""
        for kind, (scheme, port) in _SCHEMES.items():
            stated = self._table(kinds.get(kind, {}), f"listeners.{kind}")
            for name, value in {"default": {}, **stated}.items():
                table = self._table(value, f"listeners.{kind}.{name}")
                if kind in ("ssl", "wss") and not table:
                    continue  # with EMQX's own certificate, which is nobody's
                self._listener(kind, name, table, (scheme, port))
        for kind in kinds:
            if kind not in _SCHEMES:
                self._found.lost(self._setting(f"listeners.{kind}"), "there is no QUIC")

    def _listener(self, kind: str, name: str, stated: dict[str, Any], own: tuple[str, int]) -> None:
        found, key = self._found, f"listeners.{kind}.{name}"
        scheme, port = own
        enabled = stated.pop("enable", stated.pop("enabled", True))
        if not self._flag(enabled, f"{key}.enable"):
            return
        plain = re.sub(r"[^a-z0-9]+", "_", name.lower()).strip("_")
        here = kind if name == "default" else f"{kind}_{plain}"
        bind = stated.pop("bind", port)
        try:
            host, number_of = address(as_text(bind), port)
        except ValueError as error:
            found.wrong(self._setting(f"{key}.bind", bind), str(error))
            return
        rules = stated.get("access_rules", "allow all")
        if as_text(rules) != "allow all":
            what = "the listener is left out: a firewall, or `vmq ban add --address`"
            found.wrong(self._setting(f"{key}.access_rules", rules), what)
            return
        stated.pop("access_rules", None)
        if not self._keeps_apart(key, stated.get("mountpoint", "")):
            return
        websocket = self._table(stated.pop("websocket", {}), f"{key}.websocket")
        web = str(websocket.pop("mqtt_path", "/mqtt")) if scheme in ("ws", "wss") else ""
        if websocket:
            stated["websocket"] = websocket
        found.set(f"listeners.{here}.url", url(scheme, host, number_of, web))
        if stated.pop("authentication", []):
            # Who may log in there is said there alone, so nobody whom the others let in.
            found.set(f"listeners.{here}.allow_anonymous", False)
            found.set(f"listeners.{here}.auth_plugins", [])
            found.lost(self._setting(f"{key}.authentication"), _PER_LISTENER["authentication"].note)
        for each in settings(self._lines, stated, f"{key}."):
            short = each.key.removeprefix(f"{key}.".replace('"', ""))
            found.apply(_PER_LISTENER, each, short, f"listeners.{here}")

    def _keeps_apart(self, key: str, value: object) -> bool:
        """Whether the listener's clients can be kept from the topics of the others, as they are there."""
        try:
            mountpoint(as_text(value))
        except ValueError as error:
            self._found.wrong(self._setting(f"{key}.mountpoint", value), str(error))
            return False
        return True

    # Who may connect, and may what

    def _authentication(self, chain: Any) -> None:
        found, key = self._found, "authentication"
        links = chain if isinstance(chain, list) else [chain]
        if not chain and isinstance(chain, (list, dict)):
            found.set("auth.allow_anonymous", True)
            what = "nobody authenticates: everybody is let in, and no plugin is asked"
            found.differs(self._setting(key), what)
            return
        # The default would open listeners on loopback where no plugin authenticates.
        found.set("auth.allow_anonymous", False)
        for link in links:
            if not isinstance(link, dict):
                found.wrong(self._setting(key, link), "accepted: a list of tables")
                continue
            backend = str(link.get("backend", link.get("mechanism", "")))
            place = self._lines.place(key)
            setting = Setting(place, f"authentication {backend}", "")
            if not self._flag(link.get("enable", True), f"{key}.enable"):
                found.lost(setting, "it is off")
            elif backend == "built_in_database":
                found.files.setdefault("passwd", b"# vmq passwd add passwd USER\n")
                found.set("plugins.vmq_passwd.file", "passwd")
                what = "its users are in EMQX's database: give each a password by `vmq passwd add`"
                found.lost(setting, what)
            elif backend == "http":
                found.lost(setting, "vmq_webhooks (its own format), or a plugin")
            else:
                found.lost(
                    setting, "a plugin: docs/examples has some for PostgreSQL, SQLite and Redis"
                )

    def _authorization(self, table: dict[str, Any], has_sources: bool) -> None:
        """The rules of the sources in their order: what one decides, those behind it are not asked."""
        found = self._found
        no_match = as_text(table.get("no_match", "allow"))
        texts = list(self._rules(table.get("sources", []), has_sources))
        if not texts and no_match == "allow":
            return  # nobody decides, and everybody may do everything
        found.files["acl"] = "".join(acl_of for acl_of in texts).encode()
        found.set("plugins.vmq_acl.file", "acl")
        if no_match == "allow":
            found.lost(
                self._setting("authorization.no_match", "allow"),
                "what no rule of vmq_acl allows is refused; `pattern readwrite #` allows the rest",
            )

    def _rules(self, sources: Any, has_sources: bool) -> Iterator[str]:
        """The rules here of each source, up to the first of which nothing can be known."""
        found, key = self._found, "authorization.sources"
        if not has_sources:
            beside = self._locate("etc/acl.conf")
            sources = [{"type": "file", "path": "etc/acl.conf"}] if beside.is_file() else None
            if sources is None:
                what = (
                    "there is no acl.conf beside this file: the rules are those that come with EMQX"
                )
                found.differs(Setting(str(self._path), key, ""), what)
                sources = [{"type": "file", "rules": SHIPPED}]
        written: list[tuple[str, str]] = []
        for source in sources if isinstance(sources, list) else [sources]:
            if not isinstance(source, dict):
                found.wrong(self._setting(key, source), "accepted: a list of tables")
                yield ""
                break
            if self._flag(source.get("enable", True), f"{key}.enable") is False:
                continue
            text = self._text_of(source)
            if text is None:
                what = "nothing is allowed that it, or a source behind it, decides"
                found.lost(Setting(self._lines.place(key), "authorization", ""), what)
                yield ""
                break
            written.append(text)
        if written:
            yield self._acl(written)

    def _text_of(self, source: dict[str, Any]) -> tuple[str, str] | None:
        """The rules of a source, with the name of their place; None: they are not known."""
        kind = str(source.get("type", ""))
        key = "authorization.sources"
        setting = Setting(
            self._lines.place(key), f"authorization {kind}", str(source.get("path", ""))
        )
        if kind != "file":
            self._found.lost(
                setting, "a plugin: docs/examples has some for PostgreSQL, SQLite and Redis"
            )
            return None
        if "rules" in source:
            return str(source["rules"]), f"{self._path} rules"
        file = self._locate(str(source.get("path", "etc/acl.conf")))
        try:
            return read_text(file), str(file)
        except ImportProblem as problem:
            self._found.wrong(setting, str(problem))
            return None

    def _acl(self, texts: list[tuple[str, str]]) -> str:
        """The sources one after the other; one that is no list of rules allows nothing, nor do those behind it."""
        try:
            return acl(texts, self._found)
        except ImportProblem as problem:
            place, _, what = str(problem).rpartition(": ")
            self._found.wrong(
                Setting(place, "authorization file", ""), f"{what}; nothing is allowed"
            )
            return ""
