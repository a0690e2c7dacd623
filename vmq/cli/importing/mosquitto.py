"""mosquitto.conf: names and values, a line each; `listener` and `connection` begin sections."""

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from vmq.cli.importing.mosquitto_access import AccessSettings, write_access
from vmq.cli.importing.mosquitto_rules import BRIDGE, GLOBAL, PER_LISTENER
from vmq.cli.importing.rules import (
    EVERYWHERE,
    Imported,
    ImportProblem,
    Setting,
    address,
    flag,
    number,
    port,
    read_text,
    url,
)

_DEEPEST: Final = 10
_TOPIC: Final = 'accepted: PATTERN [in, out or both [0, 1 or 2 ["LOCAL" ["REMOTE"]]]]'
_WEBSOCKETS: Final = "any path does there; here it is /mqtt, and pages that other servers send need `allowed_origins`"


def read(path: Path) -> Imported:
    """Imports a configuration of mosquitto 1.6 or later.

    Raises:
        ImportProblem: a file cannot be read.
    """
    return _MosquittoReader(path).result()


class _MosquittoReader:
    """Goes through the settings; `listener` and `connection` say whose those behind them are."""

    def __init__(self, path: Path) -> None:
        self._folder = path.absolute().parent
        self._found = Imported(lambda text: self._folder / text)
        self._listener: str | None = None
        self._bridge: str | None = None
        #: What a listener says of its address before it is known: port, host, protocol; port None: it is left out.
        self._parts: dict[str, dict[str, Any]] = {}
        #: The bridges: where each is named, and those whose link is encrypted whatever else they say.
        self._connections: dict[str, Setting] = {}
        self._encrypted: set[str] = set()
        self._access = AccessSettings()
        #: Seconds between the topics below $SYS; 0 = there are none.
        self._systree = 10
        for each in self._settings(path, 0):
            try:
                self._take(each)
            except ValueError as error:
                self._found.wrong(each, str(error))

    def result(self) -> Imported:
        """What came of it all."""
        found = self._found
        local_only = not self._parts
        if local_only:
            # mosquitto 2 without a listener: this machine only, everybody on it.
            self._parts["default"] = {"host": "127.0.0.1", "port": 1883}
        for name, parts in self._parts.items():
            self._address(name, parts)
        names = [name for name, parts in self._parts.items() if parts["port"] is not None]
        write_access(self._access, names, self._folder, found, local_only=local_only)
        if self._systree:
            found.set("plugins.vmq_systree.interval", float(self._systree))
        for name, setting in self._connections.items():
            self._finish_bridge(name, setting)
        return found

    def _settings(self, path: Path, depth: int) -> Iterator[Setting]:
        """The settings of a file and of those that it includes, in order."""
        if depth > _DEEPEST:
            raise ImportProblem(f"{path}: include_dir goes round in a circle")
        for count, line in enumerate(read_text(path).split("\n"), 1):
            key, _, value = line.strip().partition(" ")
            if not key or key.startswith("#"):
                continue
            setting = Setting(f"{path}:{count}", key, value.strip())
            if key == "include_dir":
                for each in self._included(setting):
                    yield from self._settings(each, depth + 1)
                continue
            yield setting

    def _included(self, setting: Setting) -> list[Path]:
        try:
            folder = Path(self._found.located(setting))
            files = sorted(each for each in folder.iterdir() if each.suffix == ".conf")
        except (OSError, ValueError) as error:
            reason = error.strerror if isinstance(error, OSError) else str(error)
            self._found.wrong(setting, f"{reason}; accepted: a folder with files *.conf")
            return []
        if not files:
            self._found.wrong(setting, "there is no *.conf in it")
        return files

    def _address(self, name: str, parts: Mapping[str, Any]) -> None:
        listeners = self._found.tree.setdefault("listeners", {})
        table = listeners.setdefault(name, {})
        if "psk" in parts and "certfile" not in table:
            # Without a key of either kind it would be an open port, where nothing was encrypted.
            self._parts[name]["port"] = None
        if parts["port"] is None:
            del listeners[name]
            return
        if parts["port"] == 0:
            table["url"] = f"unix://{parts['host']}"
            return
        is_tls, is_web = "certfile" in table, parts.get("protocol") == "websockets"
        scheme = {(0, 0): "tcp", (1, 0): "tls", (0, 1): "ws", (1, 1): "wss"}[is_tls, is_web]
        table["url"] = url(scheme, parts["host"], parts["port"], "/mqtt" if is_web else "")

    def _finish_bridge(self, name: str, setting: Setting) -> None:
        bridges = self._found.tree["plugins"]["vmq_bridge"]["bridges"]
        bridge = bridges[name]
        missing = [
            key for key, of in (("address", "url"), ("topic", "topics")) if not bridge.get(of)
        ]
        if missing:
            self._found.wrong(setting, f"left out: it has no {' and no '.join(missing)}")
            del bridges[name]
            if not bridges:
                del self._found.tree["plugins"]["vmq_bridge"]
        elif name in self._encrypted or {"cafile", "certfile", "insecure"} & set(bridge):
            bridge["url"] = bridge["url"].replace("mqtt://", "mqtts://")

    def _take(self, setting: Setting) -> None:
        key = setting.key
        special = getattr(self, f"_on_{key}", None)
        if special is not None:
            special(setting)
        elif self._bridge is not None and key in BRIDGE:
            if key in ("bridge_capath", "bridge_psk", "bridge_identity"):
                self._encrypted.add(self._bridge)
            self._found.apply(BRIDGE, setting, key, f"plugins.vmq_bridge.bridges.{self._bridge}")
        elif key in PER_LISTENER:
            self._found.apply(PER_LISTENER, setting, key, f"listeners.{self._name()}")
        elif key.startswith(("plugin_opt_", "auth_opt_")):
            self._found.lost(setting, "an option of a plugin")
        else:
            self._found.apply(GLOBAL, setting, key)

    def _name(self) -> str:
        """The listener that settings are about now."""
        return self._listener or self._default()

    def _default(self) -> str:
        self._parts.setdefault("default", {"host": EVERYWHERE, "port": 1883})
        return "default"

    # Listeners

    def _on_listener(self, setting: Setting) -> None:
        number_of, _, host = setting.value.partition(" ")
        count = len(self._parts) + 1
        name = (
            f"port{number_of}" if re.fullmatch("[1-9][0-9]{0,4}", number_of) else f"socket{count}"
        )
        self._listener = name if name not in self._parts else f"{name}_{count}"
        self._bridge = None
        # Until it is known, so that what follows is nobody else's.
        parts = self._parts[self._listener] = {"host": host.strip() or EVERYWHERE, "port": None}
        there = port(number_of)
        if there == 0 and not host.strip():
            raise ValueError("accepted: 0 and the path of a socket, or a port, 1 to 65535")
        parts["port"] = there

    def _on_port(self, setting: Setting) -> None:
        parts = self._parts[self._default()]
        parts["port"] = None
        parts["port"] = port(setting.value) or None
        if parts["port"] is None:
            raise ValueError("accepted: a port, 1 to 65535")

    def _on_bind_address(self, setting: Setting) -> None:
        parts = self._parts[self._default()]
        if not setting.value:
            parts["port"] = None
            raise ValueError("accepted: an address or a name")
        parts["host"] = setting.value

    def _on_bind_interface(self, setting: Setting) -> None:
        self._parts[self._name()]["host"] = "127.0.0.1"
        self._found.wrong(setting, PER_LISTENER["bind_interface"].note)

    def _on_psk_hint(self, setting: Setting) -> None:
        self._parts[self._name()]["psk"] = True
        self._found.wrong(setting, PER_LISTENER["psk_hint"].note)

    def _on_protocol(self, setting: Setting) -> None:
        parts = self._parts[self._name()]
        if setting.value not in ("mqtt", "websockets"):
            parts["port"] = None
            instead = "a listener `http://HOST:PORT` serves vmq's own API"
            if setting.value != "http_api":
                raise ValueError("the listener is left out; accepted: mqtt, websockets")
            self._found.lost(setting, instead)
        parts["protocol"] = setting.value
        if setting.value == "websockets":
            self._found.differs(setting, _WEBSOCKETS)

    # Who may connect, and may what

    def _scope(self) -> str | None:
        """Whose these are: a listener's where each has its own, else all of them's."""
        return (self._listener or "default") if self._access.is_per_listener else None

    def _on_per_listener_settings(self, setting: Setting) -> None:
        # If it cannot be read: what stands before the listeners opens none of them.
        self._access.is_per_listener = True
        self._access.is_per_listener = flag(setting.value)

    def _on_allow_anonymous(self, setting: Setting) -> None:
        own = self._access.of(self._scope())
        own.anonymous, own.anonymous_said = False, setting
        own.anonymous = flag(setting.value)

    def _on_password_file(self, setting: Setting) -> None:
        if not setting.value:
            raise ValueError("accepted: a path")
        self._access.of(self._scope()).password_file = setting
        if self._access.is_per_listener and self._listener is None:
            self._default()  # mosquitto listens there for that alone

    def _on_acl_file(self, setting: Setting) -> None:
        # Without a path too: somebody meant to have rules.
        self._access.of(self._scope()).acl_file = setting

    def _on_plugin(self, setting: Setting) -> None:
        self._access.of(self._scope()).plugin = setting
        self._found.lost(setting, GLOBAL["plugin"].note)

    _on_auth_plugin = _on_global_plugin = _on_plugin

    # The rest

    def _on_sys_interval(self, setting: Setting) -> None:
        self._systree = number(setting.value)
        if self._systree:
            self._found.differs(setting, "the topics are $SYS/NODE/..., with names of vmq's own")

    def _on_log_dest(self, setting: Setting) -> None:
        kind, _, file = setting.value.partition(" ")
        if kind == "file":
            named = Setting(setting.place, setting.key, file.strip())
            self._found.set("log.file", self._found.located(named))
        elif kind != "stderr":
            self._found.lost(setting, "the log goes to standard error, or to `log.file`")

    def _on_connection(self, setting: Setting) -> None:
        name = re.sub(r"[^A-Za-z0-9_]", "_", setting.value) or "bridge"
        while name in self._connections:
            name += "_"
        self._bridge = name
        self._connections[name] = setting
        self._found.set(f"plugins.vmq_bridge.bridges.{name}", {"topics": []})

    def _on_address(self, setting: Setting) -> None:
        table = self._bridge_table()
        first, *others = setting.value.split() or [":"]
        host, port_of = address(first if ":" in first else f"{first}:", 1883)
        if first.startswith(":"):
            raise ValueError("accepted: HOST or HOST:PORT")
        table["url"] = url("mqtt", host, port_of)
        if others:
            self._found.lost(setting, "a bridge has one address: the first")

    _on_addresses = _on_address

    def _on_topic(self, setting: Setting) -> None:
        topics = self._bridge_table()["topics"]
        words = [each.strip('"') for each in setting.value.split()]
        if not 1 <= len(words) <= 5:
            raise ValueError(_TOPIC)
        pattern, direction, qos, local, remote = [*words, *("", "out", "0", "", "")[len(words) :]]
        if direction not in ("in", "out", "both") or qos not in ("0", "1", "2"):
            raise ValueError(_TOPIC)
        rule = {"pattern": pattern, "direction": direction, "qos": int(qos)}
        rule |= {"local_prefix": local} if local else {}
        rule |= {"remote_prefix": remote} if remote else {}
        topics.append(rule)

    def _bridge_table(self) -> dict[str, Any]:
        if self._bridge is None:
            raise ValueError("there is no connection before it")
        table: dict[str, Any] = self._found.tree["plugins"]["vmq_bridge"]["bridges"][self._bridge]
        return table
