"""The driver as a process, as far as it goes without Spark."""

from __future__ import annotations

import json
import re
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from io import BytesIO, TextIOWrapper
from pathlib import Path
from typing import Any

import msgspec
import pytest
from pyspark.errors import AnalysisException
from vmq_spark import driver as module
from vmq_spark import status
from vmq_spark.driver import FAILED, HOPELESS, Driver, QueryError, build
from vmq_spark.errors import PipelineError, UnreadyError
from vmq_spark.flow import Flow
from vmq_spark.pipeline import Pipeline, find
from vmq_spark.settings import Settings

from tests.spark.support import executors_environment
from tests.support.present import present
from tests.vmq.streams.flight_support import Running
from vmq.config.streams import StreamOptions
from vmq.streams.flight.access import Anybody
from vmq.streams.flight.service import StreamServer
from vmq.testing.ports import lasting_port


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
) -> int:
    """Exit code of one life of a driver, whose runner waits for its end; in this process."""
    given = connection or {"server": "grpc://127.0.0.1:1"}
    settings = settings_of(folder, source, given) | {"options": options or {}, "is_new": is_new}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "watch", lambda _driver: None)
        patch.setattr(sys, "stdin", TextIOWrapper(BytesIO(json.dumps(settings).encode())))
        return module.main()


def started(folder: Path, settings: Mapping[str, object]) -> subprocess.Popen[bytes]:
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
    assert driver(tmp_path, find("sensors"), options=options) == HOPELESS
    assert said in status.read(tmp_path).progress.error


def test_a_module_that_cannot_be_imported_is_hopeless(tmp_path: Path) -> None:
    path = tmp_path / "mine.py"
    path.write_text("import nowhere\n")
    with started(tmp_path, settings_of(tmp_path, path, {})) as process:
        assert present(process.stdout).read() == b""
        assert process.wait(60) == HOPELESS
    assert "No module named 'nowhere'" in status.read(tmp_path).progress.error


# --- what the broker says, before Spark is there: it would fail in other words


class Rules(Anybody):
    """User `ann` may read nothing, `bob` all."""

    def authenticate(self, user: str | None, password: bytes) -> bool:
        return user in {"ann", "bob"} and password == b"secret"

    def may_read(self, user: str | None, _filters: Sequence[str], _group: str = "") -> bool:
        return user == "bob"

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
    assert driver(tmp_path, path, given, is_new=is_new) == code
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
    assert driver(tmp_path, find("sensors"), {**away, **given}) == code
    assert said in status.read(tmp_path).progress.error


def test_what_is_right_comes_to_spark(tmp_path: Path, server: str) -> None:
    path = tmp_path / "mine.py"
    path.write_text(READING.format("'s/+', startingOffsets='latest', failOnDataLoss=False"))
    given = {"server": server, "username": "bob", "password": "secret"}
    with started(tmp_path, settings_of(tmp_path, path, given)) as process:
        present(process.stdout).read()
        assert process.wait(60) == FAILED
    assert "JAVA_GATEWAY_EXITED" in status.read(tmp_path).progress.error


def test_a_stop_does_not_wait_for_a_broker_that_is_away(tmp_path: Path) -> None:
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        silent.settimeout(60)
        away = {"server": f"grpc://127.0.0.1:{silent.getsockname()[1]}"}
        with started(tmp_path, settings_of(tmp_path, find("sensors"), away)) as process:
            asking, _ = silent.accept()
            present(process.stdin).close()
            assert process.wait(60) == 0  # who hangs is killed
            asking.close()


# --- queries that end while they come up


class Query:
    """A query that has ended, as Spark has it."""

    isActive = False  # noqa: N815 - Spark's name
    recentProgress: tuple[Mapping[str, object], ...] = ()  # noqa: N815

    def __init__(self, error: Exception | None) -> None:
        self.error = error
        self.status = {"message": "Initializing sources"}

    def exception(self) -> Exception | None:
        return self.error


EARLY = """\
[STREAM_FAILED] Query [id = 1] terminated with exception: gone
=== Streaming Query ===
Current State: INITIALIZING
"""


@pytest.mark.parametrize(
    ("error", "code", "said"),
    [
        (
            RuntimeError(EARLY),
            FAILED,
            "query q: [STREAM_FAILED] Query [id = 1] terminated with exception: gone (before its first batch)",
        ),
        (None, FAILED, "query q: has ended by itself: Initializing sources"),
        (RuntimeError("pyspark_vmq.errors.OptionError: vmq: no"), HOPELESS, "query q: no"),
    ],
)
def test_a_query_that_ends_while_it_comes_up_ends_the_driver_with_its_reason(
    tmp_path: Path, error: Exception | None, code: int, said: str
) -> None:
    with pytest.raises(QueryError) as caught:
        run(tmp_path, lambda: Query(error))
    assert (caught.value.code, str(caught.value)) == (code, said)


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("[X] Python worker exited unexpectedly (crashed)", QueryError),
        ("[UNRESOLVED_COLUMN] There is no column `x`.", PipelineError),
    ],
)
def test_a_query_that_spark_does_not_accept_is_hopeless_unless_a_worker_was_gone(
    tmp_path: Path, text: str, kind: type[Exception]
) -> None:
    def refuse() -> Query:
        raise AnalysisException(text)

    with pytest.raises(kind, match=f"query q: {re.escape(text)}"):
        run(tmp_path, refuse)


def run(folder: Path, start: Callable[[], Query]) -> None:
    """One life of a driver with one query."""

    class Writer:
        def queryName(self, _name: str) -> Writer:  # noqa: N802 - Spark's names
            return self

        def option(self, _name: str, _value: str) -> Writer:
            return self

        def trigger(self, **_when: str) -> Writer:
            return self

        def start(self) -> Query:
            return start()

    def declare(flow: Any) -> None:
        flow.queries["q"] = Writer()

    settings = msgspec.convert(settings_of(folder, find("sensors"), {}), Settings)
    life = Driver(settings, threading.Event())
    life.run_in(lambda: None, Pipeline("", {}, declare), {})  # type: ignore[arg-type,return-value]  # it needs no Spark


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (ConnectionRefusedError(111, "Connection refused"), UnreadyError),
        (RuntimeError("Python worker exited unexpectedly (crashed)"), UnreadyError),
        (RuntimeError("no such column"), PipelineError),
    ],
)
def test_a_pipeline_whose_spark_is_gone_while_it_is_built_is_built_again(
    error: Exception, kind: type[Exception]
) -> None:
    def fail(_flow: object) -> None:
        raise error

    flow = Flow(lambda: None, {}, "out")  # type: ignore[arg-type,return-value]  # it needs no Spark
    with pytest.raises(kind, match=f"cannot be built: {type(error).__name__}"):
        build(Pipeline("", {}, fail), flow, {})
