"""A broker of several processes, seen from outside."""

import http.client
import json
import os
import signal
import socket
from contextlib import closing
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

from tests.support.until import reach
from tests.support.wire import Wire
from vmq.admin.paths import socket_of, within_limit
from vmq.testing.process import BrokerProcess

TIMEOUT = 60.0
LISTEN = ("tcp://127.0.0.1:0", "ws://127.0.0.1:0/mqtt", "http://127.0.0.1:0")
ARGS = ("--allow-anonymous", "--workers", "2", "--node-name", "n")


class AdminConnection(http.client.HTTPConnection):
    def __init__(self, path: Path) -> None:
        super().__init__("localhost", timeout=TIMEOUT)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(TIMEOUT)
        with within_limit(self._path) as address:
            self.sock.connect(address)


class Several:
    """What tests ask of it: all together by `api`, one worker alone by `worker_api`."""

    def __init__(self, broker: BrokerProcess) -> None:
        self.broker = broker
        self.folder = broker.data_dir

    def api(self, method: str, path: str, **parameters: Any) -> tuple[int, Any]:
        """Status and answer of an operation, on the socket in the data directory."""
        return _ask(self.folder, method, path, parameters)

    def worker_api(self, number: int, method: str, path: str, **parameters: Any) -> Any:
        status, answer = self.ask_worker(number, method, path, **parameters)
        assert status == 200, answer
        return answer

    def ask_worker(self, number: int, method: str, path: str, **parameters: Any) -> tuple[int, Any]:
        """Status and answer of an operation that may fail."""
        return _ask(self.folder / "workers" / str(number), method, path, parameters)

    def pid(self, number: int) -> int:
        """The process of a worker that serves; 0 if it does not."""
        _, status = self.get("/status.json")
        worker = status["workers"][str(number)]
        return int(worker["pid"]) if worker["state"] == "running" else 0

    def get(self, path: str) -> tuple[int, Any]:
        """Status and JSON, or text, of what the listener of HTTP answers."""
        host = self.broker.http.removeprefix("http://")
        with closing(http.client.HTTPConnection(host, timeout=TIMEOUT)) as connection:
            connection.request("GET", path)
            response = connection.getresponse()
            body = response.read().decode()
        is_json = response.headers["Content-Type"].startswith("application/json")
        return response.status, json.loads(body) if is_json else body

    def client_on(self, number: int, name: str, *, clean: bool = True) -> Wire:
        """A client that is connected to this worker: the system chooses, so some may have to go again."""
        for _ in range(100):
            wire = Wire.connected(self.broker.tcp, name, clean=clean)
            where = f"client_id = {json.dumps(name)} and is_online"
            if self.worker_api(number, "GET", "/sessions", where=where, local="true")["rows"]:
                return wire
            wire.close()
        raise AssertionError(f"no connection came to worker {number}")

    def kill(self, number: int) -> None:
        """Ends a worker with SIGKILL; returns when another process serves in its place."""
        before = reach(lambda: self.pid(number))
        os.kill(before, signal.SIGKILL)
        reach(lambda: self.pid(number) not in (0, before))


def _ask(folder: Path, method: str, path: str, parameters: dict[str, Any]) -> tuple[int, Any]:
    with closing(AdminConnection(socket_of(folder))) as connection:
        if method == "POST":
            body = json.dumps(parameters)
            connection.request(method, f"/api/v1{path}", body, {"Content-Type": "application/json"})
        else:
            query = f"?{urlencode(parameters)}" if parameters else ""
            connection.request(method, f"/api/v1{path}{query}")
        response = connection.getresponse()
        return response.status, json.loads(response.read())


def is_gone(pid: int) -> bool:
    """Whether there is no such process any more."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
