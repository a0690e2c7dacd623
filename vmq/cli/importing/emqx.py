"""emqx.conf of EMQX 5, in HOCON, and its acl.conf, in Erlang's terms."""

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
    number,
    read_text,
    seconds,
    size,
    url,
    zero_if_none,
)


def _infinite(text: str) -> int:
    return -1 if text in ("infinity", "0") else int(text)


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
    "mqtt.session_expiry_interval": Rule("session.persistent_client_expiration", lifetime),
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
        "limits.max_retained_messages", lambda text: int(text) or None
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
    "log.file.to": Rule("log.file"),
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
    "ssl_options.certfile": Rule("certfile"),
    "ssl_options.keyfile": Rule("keyfile"),
    "ssl_options.password": Rule("keypasswd"),
    "ssl_options.cacertfile": Rule("cafile"),
    "ssl_options.fail_if_no_peer_cert": Rule("require_certificate", flag),
    "mountpoint": Rule(
        note="there it is put before the topics; here `mountpoint` makes a topic tree of its own"
    ),
    "ssl_options.verify": Rule(
        read=str, note="a certificate is verified where there is a `cafile`"
    ),
    "ssl_options.versions": Rule(note="TLS 1.2 and later: `tls_version`"),
    "ssl_options.ciphers": Rule(note="`ciphers`, in OpenSSL's form"),
    "websocket.check_origin_enable": Rule(note="`allowed_origins`"),
    "websocket.check_origins": Rule(note="`allowed_origins`"),
    "acceptors": Rule(note="there is one, which accepts all that wait"),
    "tcp_options.backlog": Rule("", note="`network.backlog`"),
    "enable_authn": Rule(note="`auth_plugins` and `allow_anonymous` of a listener"),
    "access_rules": Rule(note="a firewall, or `vmq ban add --address`"),
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
    tree = parsed(path)
    found = Imported()
    authentication, authorization = tree.pop("authentication", []), tree.pop("authorization", {})
    _listeners(path, tree.pop("listeners", {}), found)
    for setting in settings(path, tree):
        section = setting.key.partition(".")[0]
        if section in _SECTIONS:
            if not any(note.what.startswith(section + ".") for note in found.notes):
                found.lost(Setting(setting.place, f"{section}.*", ""), _SECTIONS[section])
            continue
        if setting.key == "flapping_detect.enable":
            continue
        found.apply(_GLOBAL, setting, setting.key)
    if not tree.get("flapping_detect", {}).get("enable", False):
        found.tree.get("limits", {}).pop("flapping_limit", None)
    _authentication(path, authentication, found)
    _authorization(path, authorization, found)
    return found


def parsed(path: Path) -> dict[str, Any]:
    """The file as nested tables.

    Raises:
        ImportProblem: it cannot be read, it is no HOCON, or the library for that is missing.
    """
    text = read_text(path)
    try:
        from pyhocon import ConfigFactory
        from pyhocon.exceptions import ConfigException
        from pyparsing import ParseBaseException
    except ImportError:
        raise ImportProblem("EMQX's HOCON is read by pyhocon; pip install 'vmq[emqx]'") from None
    try:
        found = ConfigFactory.parse_string(text, basedir=str(path.parent), resolve=True)
    except (ConfigException, ParseBaseException, OSError) as error:
        raise ImportProblem(f"{path}: no HOCON: {error}") from None
    return dict(found.as_plain_ordered_dict())


def settings(path: Path, tree: Mapping[str, Any], above: str = "") -> Iterator[Setting]:
    """The settings of nested tables by dotted key."""
    for name, value in tree.items():
        key = f"{above}{name}".replace('"', "")
        if isinstance(value, Mapping):
            yield from settings(path, value, f"{key}.")
        else:
            yield Setting(str(path), key, _text(value))


def _text(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if hasattr(value, "seconds"):  # as the library reads `30s`
        return f"{_seconds_in(value):g}s"
    if isinstance(value, list):
        return ", ".join(map(str, value))
    return str(value)


def _seconds_in(span: Any) -> float:
    """Seconds of a span, of either of the two kinds that the library gives."""
    parts = {"days": 86_400, "hours": 3600, "minutes": 60, "seconds": 1}
    whole = sum(getattr(span, name, 0) * each for name, each in parts.items())
    return float(whole) + float(getattr(span, "microseconds", 0)) / 1e6


def _listeners(path: Path, kinds: Mapping[str, Any], found: Imported) -> None:
    """Those of the file, over EMQX's own four: a file that names none has them too."""
    for kind, (scheme, port) in _SCHEMES.items():
        listeners = {"default": {}, **kinds.get(kind, {})}
        for name, table in listeners.items():
            stated = dict(table)
            if kind in ("ssl", "wss") and not stated:
                continue  # with EMQX's own certificate, which is nobody's
            if not (flag(_text(stated.pop("enable", stated.pop("enabled", True))))):
                continue
            here = kind if name == "default" else f"{kind}_{name}"
            host, number_of = address(str(stated.pop("bind", port)), port)
            websocket = dict(stated.pop("websocket", {}))
            web = str(websocket.pop("mqtt_path", "/mqtt")) if scheme in ("ws", "wss") else ""
            if websocket:
                stated["websocket"] = websocket
            found.set(f"listeners.{here}.url", url(scheme, host, number_of, web))
            for each in settings(path, stated):
                wider = Setting(each.place, f"listeners.{kind}.{name}.{each.key}", each.value)
                found.apply(_PER_LISTENER, wider, each.key, f"listeners.{here}")
    for kind in kinds:
        if kind not in _SCHEMES:
            found.lost(Setting(str(path), f"listeners.{kind}", ""), "there is no QUIC")


def _authentication(path: Path, chain: Any, found: Imported) -> None:
    links = chain if isinstance(chain, list) else [chain] if chain else []
    if not links:
        found.set("auth.allow_anonymous", True)
        found.differs(
            Setting(str(path), "authentication", ""),
            "nobody authenticates: everybody is let in, and no plugin is asked",
        )
    for link in links:
        backend = str(link.get("backend", link.get("mechanism", "")))
        setting = Setting(str(path), f"authentication {backend}", "")
        if backend == "built_in_database":
            found.files.setdefault("passwd", b"# vmq passwd add passwd USER\n")
            found.set("plugins.vmq_passwd.file", "passwd")
            found.lost(
                setting,
                "its users are in EMQX's database: give each a password by `vmq passwd add`",
            )
        elif backend == "http":
            found.lost(setting, "vmq_webhooks (its own format), or a plugin")
        else:
            found.lost(setting, "a plugin: docs/examples has some for PostgreSQL, SQLite and Redis")


def _authorization(path: Path, table: Mapping[str, Any], found: Imported) -> None:
    for source in table.get("sources", []):
        kind = str(source.get("type", ""))
        setting = Setting(str(path), f"authorization {kind}", str(source.get("path", "")))
        if kind != "file":
            found.lost(setting, "a plugin: docs/examples has some for PostgreSQL, SQLite and Redis")
            continue
        text = str(source["rules"]) if "rules" in source else None
        if text is None:
            named = Path(re.sub(r"\$\{\w+\}/", "", str(source.get("path", "etc/acl.conf"))))
            places = [path.parent / named, path.parent / named.name]
            file = next((each for each in places if each.is_file()), None)
            if file is None:
                found.lost(setting, "there is no such file beside this one")
                continue
            text = read_text(file)
        found.files["acl"] = acl(text, str(source.get("path", path)), found).encode()
        found.set("plugins.vmq_acl.file", "acl")
    if _text(table.get("no_match", "allow")) == "allow":
        found.lost(
            Setting(str(path), "authorization.no_match", "allow"),
            "what no rule of vmq_acl allows is refused; `pattern readwrite #` allows the rest",
        )


_TERM: Final = re.compile(r'"(?:[^"\\]|\\.)*"|[{}\[\],.]|[A-Za-z_]\w*|[^\s{}\[\],."%]+')


def acl(text: str, place: str, found: Imported) -> str:
    """Rules of an acl.conf in the syntax of vmq_acl. What would allow more is left out, and told."""
    bare = re.sub(r"%.*", "", re.sub(r'"(?:[^"\\]|\\.)*"', lambda m: m[0].replace("%", "\0"), text))
    rules = list(_terms(bare.replace("\0", "%"), place))
    lines: list[str] = []
    users: dict[str, list[str]] = {}
    allowed = [topic for rule in rules if rule[0] == "allow" for topic in _topics(rule)]
    for rule in rules:
        for topic in _topics(rule):
            setting = Setting(place, _shown(rule), "")
            if isinstance(topic, tuple):
                found.lost(setting, f"no rule is about the very filter {topic[1]}")
            else:
                _rule(rule, topic, allowed, setting, (lines, users), found)
    for user, own in users.items():
        lines += ["", f"user {user}", *own]
    return "\n".join(lines) + "\n"


def _rule(
    rule: list[Any],
    topic: str,
    allowed: list[Any],
    setting: Setting,
    into: tuple[list[str], dict[str, list[str]]],
    found: Imported,
) -> None:
    lines, users = into
    action = rule[2] if len(rule) > 2 else "all"
    if isinstance(action, list):
        action = str(action[0])
    access = {"subscribe": "read", "publish": "write"}.get(action, "readwrite")
    who = rule[1]
    here = topic.replace("${clientid}", "%c").replace("${username}", "%u")
    if "${" in here:
        found.lost(setting, f"a placeholder in {topic}")
        return
    if rule[0] == "deny":
        if who != "all":
            found.lost(setting, "a denial for some alone: give the others what they may")
        elif topic == "#":
            return  # what is not allowed is refused
        elif topic.startswith("$") and not any(
            isinstance(each, str) and each.startswith("$") for each in allowed
        ):
            return
        else:
            lines.append(f"pattern deny {here}")
            found.differs(
                setting, "it denies reading and writing, and wins over every rule that allows"
            )
        return
    if who == "all":
        lines.append(f"pattern {access} {here}")
    elif isinstance(who, list) and who[0] in ("username", "user") and isinstance(who[1], str):
        users.setdefault(who[1], []).append(f"topic {access} {here}")
    else:
        found.lost(setting, "rules are for user names, and for client ids by %c")


def _topics(rule: list[Any]) -> list[Any]:
    """The filters of a rule; of `{eq, FILTER}` a pair."""
    if len(rule) < 4:
        return ["#"]
    return [("eq", each[1]) if isinstance(each, list) else each for each in rule[3]]


def _shown(rule: list[Any]) -> str:
    return "{" + ", ".join(map(str, rule)) + "}"


def _terms(text: str, place: str) -> Iterator[list[Any]]:
    """The tuples of a file of Erlang's terms: tuples and lists as lists, atoms and strings as text."""
    stack: list[list[Any]] = [[]]
    for token in _TERM.findall(text):
        match token:
            case "{" | "[":
                stack.append([])
            case "}" | "]":
                if len(stack) < 2:
                    raise ImportProblem(f"{place}: a bracket too many")
                done = stack.pop()
                stack[-1].append(done)
            case ",":
                pass
            case ".":
                yield from stack[0]
                stack[0].clear()
            case _:
                stack[-1].append(token[1:-1] if token.startswith('"') else token)
    if len(stack) != 1 or stack[0]:
        raise ImportProblem(f"{place}: a rule does not end with a dot")
