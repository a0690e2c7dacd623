"""What a command loads: libraries that it has no use for cost each call of it their time and memory."""

import json
import re
import socket
import subprocess
import sys
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from vmq.testing.ports import lasting_port
from vmq.testing.process import BrokerProcess

#: What no command needs to start. (typer.rich_utils loads rich, for help.)
NEVER: Final = {"pydantic", "pyarrow", "pyspark", "duckdb", "cryptography"}
#: The libraries of a broker, which no client needs.
BROKER: Final = {"aiohttp", "aiozmq", "plyvel", "pluggy", "prometheus_client", "uvloop", "zmq"}
HELP: Final = {"rich", "markdown_it", "pygments"}
CLIENT: Final = {"amqtt", "websockets"}

_IMPORTED: Final = re.compile(r"^import time:.*\| +(\S+)$", re.MULTILINE)


def packages_in(log: str) -> set[str]:
    """The packages at the top that an interpreter loaded, by what -X importtime wrote."""
    return {name.partition(".")[0] for name in _IMPORTED.findall(log)}


#: Several commands, one after the other: what each loads, all have loaded.
SCRIPT: Final = """
import json, sys
from vmq.cli.main import main
for command in json.loads(sys.argv[1]):
    main(command)
"""


def loaded_by(*commands: tuple[str, ...]) -> set[str]:
    done = subprocess.run(
        [sys.executable, "-X", "importtime", "-c", SCRIPT, json.dumps(commands)],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    packages = packages_in(done.stderr)
    assert {"vmq", "typer"} <= packages, done.stderr
    return packages


def test_the_version_takes_the_command_line_only() -> None:
    needless = NEVER | BROKER | HELP | CLIENT | {"asyncio", "msgspec", "ssl"}
    assert not loaded_by(("--version",)) & needless


def test_commands_that_ask_a_broker_take_no_libraries_of_it(tmp_path: Path) -> None:
    asked = ("session", "queue", "retain", "listener", "plugin", "ban")
    loaded = loaded_by(*((each, "list", "--data-dir", str(tmp_path)) for each in asked))
    assert "http" in loaded
    assert not loaded & (NEVER | BROKER | HELP | CLIENT | {"asyncio"})


def test_mqtt_clients_take_the_client_only() -> None:
    port = str(lasting_port())
    loaded = loaded_by(("pub", "-p", port, "-t", "x", "-m", "x"), ("sub", "-p", port, "-t", "x"))
    assert "amqtt" in loaded
    assert not loaded & (NEVER | BROKER | HELP)


def test_help_takes_no_more_than_it_prints() -> None:
    loaded = loaded_by(*((each, "--help") for each in ("pub", "sub", "bench", "start")))
    assert not loaded & (NEVER | BROKER | CLIENT)


def test_a_broker_without_cluster_and_streams_loads_no_library_of_theirs() -> None:
    listen = ["tcp://127.0.0.1:0", "http://127.0.0.1:0"]
    with BrokerProcess.start(listen, env={"PYTHONPROFILEIMPORTTIME": "1"}) as broker:
        broker.wait_log(r"\bstarted version=")
        broker.terminate()
        loaded = packages_in(broker.stderr_text())
    assert "plyvel" in loaded
    assert not loaded & (NEVER | HELP | {"aiohttp", "amqtt", "aiozmq", "zmq", "argon2"})


def test_clients_do_not_wait_for_the_library_of_http_and_the_admin_socket() -> None:
    """Nor does who starts a broker wait for a link to its page."""
    listen = ["http://127.0.0.1:0", "tcp://127.0.0.1:0"]
    with BrokerProcess.start(listen, env={"PYTHONPROFILEIMPORTTIME": "1"}) as broker:
        broker.wait_out(r"^vmq page: ")
        broker.wait_log(r"\bstarted version=")
        assert "aiohttp" not in packages_in(broker.stderr_text()), "nobody has asked"
        address = urlsplit(broker.http)
        with socket.create_connection((address.hostname, address.port)):
            broker.wait_log(r"\| aiohttp\b")


def test_a_node_has_its_libraries_before_it_joins(tmp_path: Path) -> None:
    """While it loads them it answers nobody: the others would take it for gone."""
    with BrokerProcess.start(
        ["tcp://127.0.0.1:0", "http://127.0.0.1:0", "grpc://127.0.0.1:0"],
        args=["--node-name", "a", "--cluster-listen", f"ipc://{tmp_path}/a"],
        env={"PYTHONPROFILEIMPORTTIME": "1"},
    ) as broker:
        broker.wait_log(r"\bstarted version=")
        broker.terminate()
        before, joined, later = broker.stderr_text().partition("cluster node name=a")
    assert joined
    assert {"aiohttp", "pyarrow"} <= packages_in(before)
    # Flight's own process loads its libraries anew, and tells of it here, too.
    assert "aiohttp" not in packages_in(later)
