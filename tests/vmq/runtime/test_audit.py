"""The audit log, as a file of a running broker."""

import json
import logging
import os
import pwd
import signal
import socket
import stat
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import BrokerFactory
from tests.support.guarded import CONFIG, line_of
from tests.support.wire import CONNACK, Wire, connect_packet
from tests.vmq.cli.program import here
from vmq.cli.start.log_flood import FloodFilter
from vmq.runtime.audit import tell_of_operation, user_of
from vmq.testing.process import BrokerProcess

ME = f"{pwd.getpwuid(os.getuid()).pw_name} (uid {os.getuid()})"


class Audited:
    """A broker that asks vmq_passwd, and its audit log."""

    def __init__(
        self,
        factory: BrokerFactory,
        folder: Path,
        more: str = "",
        args: Sequence[str] = (),
        *,
        log: str = 'audit_file = "{}"',
    ) -> None:
        self.file = folder / "audit.log"
        self.config = folder / "vmq.toml"
        (folder / "passwd").write_text(line_of("bob", "bob"))
        (folder / "acl").write_text("topic #\n")
        text = f"[log]\n{log.format(self.file)}\n{CONFIG}{more}"
        self.config.write_text(text)
        arguments = ("--config", str(self.config), *args)
        self.broker: BrokerProcess = factory((), data_dir=folder / "data", args=arguments)

    def vmq(self, *words: str) -> int:
        return here(*words, "--data-dir", str(self.broker.data_dir)).code

    def events(self, file: Path | None = None) -> list[dict[str, Any]]:
        return [json.loads(line) for line in (file or self.file).read_text().splitlines()]

    def refuse(self, client_id: str, user: str = "bob") -> str:
        """A login with a wrong password; returns its address."""
        with Wire.connect_tcp(self.broker.tcp) as wire:
            host, port = wire.stream.address()
            wire.send(connect_packet(client_id, username=user, password="wrong"))
            assert wire.expect(CONNACK).return_code != 0
            wire.expect_closed()
        return f"{host}:{port}"


def plain(event: dict[str, Any]) -> dict[str, Any]:
    """What an event says, but for what is the same in all of them."""
    assert event.pop("logger") == "vmq.audit"
    assert event.pop("time").endswith("Z")
    event.pop("level")
    return event


def operation(called: str, **parameters: object) -> dict[str, Any]:
    said = {"message": "operation", "name": called, "by": ME, "peer": "socket"}
    return {**said, "parameters": parameters, "result": "ok"}


def test_operations_and_plugin_changes_are_told_of_with_who_and_result(
    fresh_broker: BrokerFactory, tmp_path: Path
) -> None:
    audited = Audited(fresh_broker, tmp_path)
    assert stat.S_IMODE(audited.file.stat().st_mode) == 0o600
    assert audited.vmq("set", "queue.drop", "oldest") == 0
    assert audited.vmq("session", "list") == 0  # changes nothing
    assert audited.vmq("plugin", "disable", "vmq_acl") == 0
    assert audited.vmq("plugin", "enable", "vmq_acl") == 0
    assert audited.vmq("plugin", "reload", "vmq_acl") == 0
    assert audited.vmq("plugin", "enable", "vmq_acl") != 0
    *done, refused = [plain(each) for each in audited.events()]
    assert done == [
        operation("set_option", option="queue.drop", value="oldest"),
        operation("disable_plugin", name="vmq_acl"),
        operation("enable_plugin", name="vmq_acl"),
        operation("reload_plugin", name="vmq_acl", force=False, commit=False),
    ]
    assert refused.pop("result").startswith("refused: ")
    assert {**refused, "result": "ok"} == operation("enable_plugin", name="vmq_acl")
    assert "operation name=" not in audited.broker.stderr_text()


def test_a_refused_login_names_user_client_address_reason_and_plugin(
    fresh_broker: BrokerFactory, tmp_path: Path
) -> None:
    audited = Audited(fresh_broker, tmp_path)
    peer = audited.refuse("lamp")
    assert audited.broker.terminate() == 0
    (event,) = [plain(each) for each in audited.events()]
    assert event.pop("reason").startswith("refused: ")
    assert event == {
        "message": "login refused",
        "client": "lamp",
        "user": "bob",
        "peer": peer,
        "code": 4,
        "plugin": "vmq_passwd",
    }
    assert "login refused" not in audited.broker.stderr_text()


def test_a_reload_is_told_of_whether_it_was_taken_or_not(
    fresh_broker: BrokerFactory, tmp_path: Path
) -> None:
    audited = Audited(fresh_broker, tmp_path, "[limits]\ntopic_max_depth = 5\n")
    text = audited.config.read_text()
    audited.config.write_text(text.replace("depth = 5", "depth = 6"))
    os.kill(audited.broker.pid, signal.SIGHUP)
    audited.broker.wait_log("reloaded changed")
    audited.config.write_text(text.replace("depth = 5", "depth = false"))
    os.kill(audited.broker.pid, signal.SIGHUP)
    audited.broker.wait_log("reload refused")
    text = text.replace("depth = 5", "depth = 7")
    audited.config.write_text(text.replace("vmq_passwd]", 'vmq_passwd]\ncolour = "red"'))
    os.kill(audited.broker.pid, signal.SIGHUP)
    audited.broker.wait_log("reloaded in part")
    assert audited.broker.terminate() == 0
    events = [plain(each) for each in audited.events()]
    taken, refused = events[:2]
    partly = next(each for each in events if "in part" in each.get("result", ""))
    assert "limits.topic_max_depth" in partly["changed"]
    assert "plugins.vmq_passwd.colour" in partly["result"]
    assert [each["result"] for each in events if each.get("result") == "ok"] == ["ok"]
    told = {"message": "configuration reload", "by": "SIGHUP"}
    assert taken == {**told, "changed": "limits.topic_max_depth", "result": "ok"}
    assert "topic_max_depth = false" in refused["result"]


def test_the_file_is_opened_anew_with_the_log(fresh_broker: BrokerFactory, tmp_path: Path) -> None:
    audited = Audited(fresh_broker, tmp_path)
    assert audited.vmq("set", "queue.drop", "oldest") == 0
    moved = audited.file.rename(tmp_path / "audit.1")
    os.kill(audited.broker.pid, signal.SIGUSR1)
    audited.broker.wait_log("log opened anew")
    assert audited.vmq("set", "queue.drop", "newest") == 0
    values = [audited.events(each)[0]["parameters"]["value"] for each in (moved, audited.file)]
    assert values == ["oldest", "newest"]


def test_a_login_storm_is_summed_up_and_hides_no_operation(
    fresh_broker: BrokerFactory, tmp_path: Path
) -> None:
    audited = Audited(fresh_broker, tmp_path, log='flood_limit = 3\naudit_file = "{}"')
    for number in range(8):
        audited.refuse("lamp", f"user{number}")  # one after the other of one user wait
    for _ in range(5):
        assert audited.vmq("set", "queue.drop", "oldest") == 0
    assert audited.broker.terminate() == 0
    told = [each["message"] for each in audited.events()]
    assert told.count("operation") == 5
    assert told.count("login refused") == 3
    (summary,) = [each for each in audited.events() if each["message"] == "suppressed"]
    assert (summary["count"], summary["of"]) == (5, "login refused")


def test_without_a_file_the_log_has_the_events_at_every_level(
    fresh_broker: BrokerFactory, tmp_path: Path
) -> None:
    audited = Audited(fresh_broker, tmp_path, log='level = "error"')
    assert audited.vmq("set", "queue.drop", "oldest") == 0
    audited.broker.wait_log(r'info operation name=set_option by=".*\(uid \d+\)" peer=socket par')
    audited.refuse("lamp")
    audited.broker.wait_log('login refused client=lamp user="bob" .* plugin=vmq_passwd')


def test_workers_write_one_file_and_an_operation_is_told_of_once(
    fresh_broker: BrokerFactory, tmp_path_factory: pytest.TempPathFactory
) -> None:
    short = tmp_path_factory.mktemp("w")  # the path of a socket has 100 bytes at most
    audited = Audited(fresh_broker, short, args=("--workers", "2"))
    assert audited.vmq("set", "queue.drop", "oldest") == 0
    assert audited.vmq("plugin", "disable", "vmq_acl") == 0
    seen: set[int] = set()
    for number in range(200):  # the kernel chooses the worker
        audited.refuse("lamp", f"user{number}")  # one after the other of one user wait
        logins = [each for each in audited.events() if each["message"] == "login refused"]
        seen = {each["worker"] for each in logins}
        if len(seen) == 2:
            break
    assert seen == {1, 2}
    done = [plain(each) for each in audited.events() if each["message"] == "operation"]
    assert [each["name"] for each in done] == ["set_option", "disable_plugin"]
    assert all(each["by"] == ME and "worker" not in each for each in done)


def test_a_file_that_cannot_be_had_stops_the_start_and_the_check(tmp_path: Path) -> None:
    config = tmp_path / "vmq.toml"
    config.write_text(f'[log]\naudit_file = "{tmp_path / "none" / "audit.log"}"\n')
    for words in (("start", "--data-dir", str(tmp_path / "data")), ("config", "check")):
        done = here(*words, "--config", str(config))
        assert done.code != 0
        assert "log.audit_file" in done.err


@pytest.mark.parametrize(
    ("parameters", "shown"),
    [
        ({"option": "plugins.x.password", "value": "sesame"}, '"value": "(hidden)"'),
        ({"api_key": "sesame"}, '"api_key": "(hidden)"'),
        ({"name": "s", "key": "level:2"}, '"key": "level:2"'),
        ({"filter": "a" * 900, "cleanup": True, "x": None}, '"cleanup": true, "x": null'),
    ],
)
def test_no_secret_and_nothing_endless_is_shown(
    parameters: dict[str, object], shown: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "vmq.audit")
    tell_of_operation("any", parameters, "me", "socket", "ok")
    assert shown in caplog.text
    assert "sesame" not in caplog.text
    assert "a" * 300 not in caplog.text


def test_the_other_end_of_a_socket_is_known_by_its_user() -> None:
    one, other = socket.socketpair()
    with one, other:
        assert user_of(one.fileno()) == ME
        assert one.fileno() >= 0  # it stays open


def test_no_operation_is_held_back(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "vmq.audit")
    flood = FloodFilter(1)
    for _ in range(3):
        tell_of_operation("any", {}, "me", "socket", "ok")
    assert [flood.filter(each) for each in caplog.records] == [True] * 3
