"""Clients that live in a program which takes orders: see programs/__init__.py for the lines."""

import json
import subprocess
import sys
import tempfile
import threading
from base64 import b64decode, b64encode
from itertools import count
from pathlib import Path
from queue import Empty, Queue
from typing import Any

from tests.clients.client import TIMEOUT, Client, Inbox, Kind, Message, Will
from tests.support.node import NODE

ROOT = Path(__file__).resolve().parents[2]
Record = dict[str, Any]


def command_of(program: str) -> list[str]:
    """The command line that starts the program of this name."""
    if program == "mqttjs":
        return ["node", str(NODE / "program.js")]
    return [sys.executable, "-m", f"tests.clients.programs.{program}_program"]


class Program:
    """A running program that holds any number of clients of one library."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._stderr = tempfile.TemporaryFile()  # noqa: SIM115 - closed by close()
        self._process = subprocess.Popen(
            command_of(name),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._stderr,
            cwd=ROOT,
        )
        self._calls = count(1)
        self._answers: Queue[Record] = Queue()
        self._inboxes: dict[str, Inbox] = {}
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            record = json.loads(line)
            if "call" in record:
                self._answers.put(record)
            elif (inbox := self._inboxes.get(record["client"])) is not None:
                _deliver(inbox, record)
        self._answers.put({"call": 0, "error": "the program ended"})
        for inbox in list(self._inboxes.values()):
            inbox.put_end()

    def adopt(self, client: str, inbox: Inbox) -> None:
        """Let what happens to the client of this name go to `inbox`."""
        self._inboxes[client] = inbox

    def call(self, client: str, op: str, timeout: float = TIMEOUT, **fields: object) -> Record:
        """Give an order and wait for its answer."""
        number = next(self._calls)
        order = {"call": number, "client": client, "op": op, **fields}
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(order).encode() + b"\n")
        self._process.stdin.flush()
        while True:
            try:
                answer = self._answers.get(timeout=timeout)
            except Empty:
                raise AssertionError(
                    f"{self.name}: no answer to {op} in {timeout} s\n{self._errors()}"
                ) from None
            if answer["call"] in (number, 0):
                break
        if "error" in answer:
            raise AssertionError(f"{self.name}: {op} failed: {answer['error']}\n{self._errors()}")
        result: Record = answer["result"]
        return result

    def _errors(self) -> str:
        self._stderr.seek(0)
        return self._stderr.read().decode(errors="backslashreplace")[-4000:]

    def kill(self) -> None:
        """End the program with SIGKILL and wait for its end."""
        self._process.kill()
        self._process.wait()

    def close(self) -> None:
        self.kill()
        self._thread.join(TIMEOUT)
        for pipe in (self._process.stdin, self._process.stdout, self._stderr):
            if pipe is not None:
                try:
                    pipe.close()
                except BrokenPipeError:
                    pass  # an order that the program did not live to read


def _deliver(inbox: Inbox, record: Record) -> None:
    if record["event"] == "closed":
        inbox.put_end()
        return
    inbox.put(
        Message(
            record["topic"],
            b64decode(record["payload"]),
            record["qos"],
            bool(record["retain"]),
            record["dup"],
        )
    )


class ProgramClient(Client):
    def __init__(self, kind: Kind, client_id: str, program: Program, name: str) -> None:
        super().__init__(kind, client_id)
        self._program = program
        self._name = name
        self._open = False
        program.adopt(name, self.inbox)

    def open(self, url: str, *, clean: bool, keepalive: int, will: Will | None) -> None:
        """Connect; return when the broker has accepted the connection."""
        answer = self._program.call(
            self._name,
            "open",
            url=url,
            id=self.client_id,
            version=self.kind.version,
            clean=clean,
            keepalive=keepalive,
            will=None if will is None else vars(will),
        )
        self.session_present = answer["session_present"]
        self._open = True

    def subscribe(self, *filters: tuple[str, int]) -> list[int]:
        """Subscribe; return what the broker granted for each filter."""
        answer = self._program.call(self._name, "subscribe", filters=filters)
        granted: list[int] = answer["granted"]
        return granted

    def unsubscribe(self, *filters: str) -> None:
        """Unsubscribe; return when the broker has confirmed it."""
        self._program.call(self._name, "unsubscribe", filters=filters)

    def publish(
        self,
        topic: str,
        *payloads: bytes,
        qos: int = 0,
        retain: bool = False,
        timeout: float = TIMEOUT,
    ) -> None:
        texts = [b64encode(payload).decode() for payload in payloads]
        self._program.call(
            self._name, "publish", timeout, topic=topic, qos=qos, retain=retain, payloads=texts
        )

    def close(self) -> None:
        if self._open:
            self._open = False
            self._program.call(self._name, "close")

    def kill(self) -> None:
        self._open = False
        self._program.kill()
