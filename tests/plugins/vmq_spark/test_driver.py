"""The driver as a process, as far as it goes without Spark."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import pytest
from vmq_spark import status
from vmq_spark.driver import FAILED, HOPELESS
from vmq_spark.pipeline import find

from tests.spark.support import executors_environment
from tests.support.ports import lasting_port
from tests.vmq.streams.flight_support import Running
from vmq.config.streams import StreamOptions
from vmq.streams.flight.service import StreamServer


def settings_of(folder: Path, source: Path, connection: Mapping[str, str]) -> dict[str, object]:
    return {
        "name": "p",
        "source": str(source),
        "connection": connection,
        "master": "local",
        "folder": str(folder),
        "checkpoint": str(folder / "checkpoints"),
        "output": str(folder / "tables"),
        "trigger": "1 second",
    }


def driver(
    folder: Path,
    source: Path,
    connection: Mapping[str, str] | None = None,
    options: Mapping[str, str] | None = None,
    *,
    is_new: bool = True,
) -> tuple[int, bytes]:
    """Exit code and output of one life of a driver, whose runner waits for its end."""
    given = connection or {"server": "grpc://127.0.0.1:1"}
    settings = settings_of(folder, source, given) | {"options": options or {}, "is_new": is_new}
    with started(folder, settings) as process:
        assert process.stdout is not None
        output = process.stdout.read()
        return process.wait(60), output


def started(folder: Path, settings: Mapping[str, object]) -> subprocess.Popen[bytes]:
    """A driver that has its settings."""
    process = subprocess.Popen(
        [sys.executable, "-m", "vmq_spark.driver"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        # Without Java Spark does not come up: nothing here needs it.
        env=executors_environment() | {"JAVA_HOME": str(folder / "nowhere")},
        start_new_session=True,  # it kills its group if it hangs
    )
    assert process.stdin is not None
    process.stdin.write(json.dumps(settings).encode() + b"\n")
    process.stdin.flush()
    return process


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"windows": "1m"}, "there is no option 'windows'; there are: topic, lowest,"),
        ({"window": "1 minute"}, "option 'window': '1 minute' is not accepted; accepted: a number"),
        ({"qos": "3"}, "option 'qos': '3' is not accepted"),
    ],
)
def test_wrong_options_are_hopeless(tmp_path: Path, options: dict[str, str], said: str) -> None:
    assert driver(tmp_path, find("sensors"), options=options) == (HOPELESS, b"")
    assert said in status.read(tmp_path).progress.error


def test_a_module_that_cannot_be_imported_is_hopeless(tmp_path: Path) -> None:
    path = tmp_path / "mine.py"
    path.write_text("import nowhere\n")
    assert driver(tmp_path, path)[0] == HOPELESS
    assert "No module named 'nowhere'" in status.read(tmp_path).progress.error


# --- what the broker says, before Spark is there: it would fail in other words


class Rules:
    """User `ann` may read nothing, `bob` all."""

    def authenticate(self, user: str | None, password: bytes) -> bool:
        return user in {"ann", "bob"} and password == b"secret"

    def may_read(self, user: str | None, _filters: Sequence[str]) -> bool:
        return user == "bob"

    def longest_payload(self) -> int:
        return 0

    def may_write(self, _user: str | None, _topic: str) -> bool:
        return False


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    running = Running(
        tmp_path_factory.mktemp("streams"), s=StreamOptions(filters=["s/#"], partitions=1)
    )
    with StreamServer(running.catalog, access=Rules()) as server:
        yield f"grpc://127.0.0.1:{server.port}"
    running.close()


READING = "def pipeline(flow):\n    flow.table('t', flow.messages({}))\n"
REFUSED = "refuses user 'eve' (options 'username' and 'password')"


@pytest.mark.parametrize(
    ("user", "is_new", "arguments", "code", "said"),
    [
        ("bob", True, "'t/+'", HOPELESS, "option 'topic': no stream keeps all of 't/+'; declare"),
        ("bob", False, "'t/+'", HOPELESS, "option 'topic': no stream keeps all of 't/+'; declare"),
        ("bob", True, "'s/#/x'", HOPELESS, "option 'topic': 's/#/x' is no MQTT topic filter"),
        ("bob", True, "'s/#', startingOffset=1", HOPELESS, "option 'startingoffset': is unknown"),
        ("bob", True, "stream='x'", HOPELESS, "there is no stream 'x'; there are: s"),
        ("ann", True, "stream='s'", HOPELESS, "'ann' may not read stream 's'"),
        ("eve", True, "'s/#'", HOPELESS, REFUSED),
        ("eve", False, "'s/#'", FAILED, REFUSED),
    ],
)
def test_what_the_broker_refuses_is_said_before_spark_is_there(
    tmp_path: Path, server: str, user: str, is_new: bool, arguments: str, code: int, said: str
) -> None:
    path = tmp_path / "mine.py"
    path.write_text(READING.format(arguments))
    given = {"server": server, "username": user, "password": "secret"}
    assert driver(tmp_path, path, given, is_new=is_new) == (code, b"")
    assert said in status.read(tmp_path).progress.error


@pytest.mark.parametrize(
    ("given", "code", "said"),
    [
        ({"server": "http://x:1"}, HOPELESS, "option 'server': 'http://x:1' is not accepted"),
        ({"cafile": "/nowhere"}, HOPELESS, "option 'cafile': there is no file '/nowhere'"),
        ({}, FAILED, "(option 'server')"),
    ],
)
def test_a_broker_that_is_away_is_tried_again_and_a_wrong_address_is_not(
    tmp_path: Path, given: dict[str, str], code: int, said: str
) -> None:
    away = {"server": f"grpc://127.0.0.1:{lasting_port()}", "retryTimeout": "0"}
    assert driver(tmp_path, find("sensors"), {**away, **given}) == (code, b"")
    assert said in status.read(tmp_path).progress.error


def test_what_is_right_comes_to_spark(tmp_path: Path, server: str) -> None:
    path = tmp_path / "mine.py"
    path.write_text(READING.format("'s/+', startingOffsets='latest', failOnDataLoss=False"))
    given = {"server": server, "username": "bob", "password": "secret"}
    assert driver(tmp_path, path, given)[0] == FAILED
    assert "JAVA_GATEWAY_EXITED" in status.read(tmp_path).progress.error


def test_a_stop_does_not_wait_for_a_broker_that_is_away(tmp_path: Path) -> None:
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        silent.settimeout(60)
        away = {"server": f"grpc://127.0.0.1:{silent.getsockname()[1]}"}
        with started(tmp_path, settings_of(tmp_path, find("sensors"), away)) as process:
            asking, _ = silent.accept()
            assert process.stdin is not None
            process.stdin.close()
            assert process.wait(60) == 0  # who hangs is killed
            asking.close()
