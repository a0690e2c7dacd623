"""mosquitto_sub and mosquitto_pub as a client: one program subscribes, another publishes."""

import re
import subprocess
import threading
from queue import Empty, Queue
from typing import IO

from tests.clients.client import TIMEOUT, Client, Kind, Message, Will

SIGNAL_TIMEOUT = 3.0

# What -F prints, told apart from the lines of -d by its first word.
FORMAT = "message %q %r %x %t"
RECEIVED = re.compile(r"received PUBLISH \(d(\d), ")
SUBSCRIBED = re.compile(r"^Subscribed \(mid: \d+\): ([\d, ]+)")


class MosquittoClient(Client):
    """mosquitto_sub for the subscriptions, and a mosquitto_pub for each publish."""

    def __init__(self, kind: Kind, client_id: str, address: tuple[str, int]) -> None:
        super().__init__(kind, client_id)
        host, port = address
        version = "mqttv31" if kind.version == 3 else "mqttv311"
        self._connection = ["-h", host, "-p", str(port), "-V", version]
        self._sub: subprocess.Popen[str] | None = None
        self._thread: threading.Thread | None = None
        self._granted: Queue[list[int] | None] = Queue()

    def open(
        self,
        filters: tuple[tuple[str, int], ...],
        *,
        clean: bool,
        keepalive: int,
        will: Will | None,
    ) -> list[int]:
        """Start mosquitto_sub and wait for its SUBACK; return what was granted.

        Without filters there is nothing to start: publishing brings its own program.
        """
        if not filters:
            return []
        [qos] = {qos for _, qos in filters}  # the program has one QoS for all
        command = ["mosquitto_sub", *self._connection, "-d", "-F", FORMAT, "-i", self.client_id]
        command += ["-q", str(qos), "-k", str(keepalive)]
        command += [] if clean else ["-c"]
        for topic_filter, _ in filters:
            command += ["-t", topic_filter]
        if will is not None:
            command += ["--will-topic", will.topic, "--will-payload", will.payload]
            command += ["--will-qos", str(will.qos)] + (["--will-retain"] if will.retain else [])
        # Without a terminal the C library would hold its lines back in a block buffer.
        self._sub = subprocess.Popen(
            ["stdbuf", "-oL", *command],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        assert self._sub.stdout is not None
        self._thread = threading.Thread(target=self._read, args=(self._sub.stdout,), daemon=True)
        self._thread.start()
        try:
            granted = self._granted.get(timeout=TIMEOUT)
        except Empty:
            raise AssertionError("mosquitto_sub: no SUBACK") from None
        assert granted is not None, "mosquitto_sub ended"
        return granted

    def _read(self, lines: IO[str]) -> None:
        dup: bool | None = None
        for line in lines:
            if line.startswith("message "):
                _, qos, retain, payload, topic = line.rstrip("\n").split(" ", 4)
                message = Message(topic, bytes.fromhex(payload), int(qos), retain == "1", dup)
                self.inbox.put(message)
            elif (received := RECEIVED.search(line)) is not None:
                dup = received[1] == "1"
            elif (subscribed := SUBSCRIBED.search(line)) is not None:
                self._granted.put([int(qos) for qos in subscribed[1].split(",")])
        self._granted.put(None)
        self.inbox.put_end()

    def publish(
        self,
        topic: str,
        *payloads: bytes,
        qos: int = 0,
        retain: bool = False,
        timeout: float = TIMEOUT,
    ) -> None:
        command = ["mosquitto_pub", *self._connection, "-t", topic, "-q", str(qos)]
        # Without a client id: it would take its predecessor over, of whom messages at QoS 0 may lie unread.
        command += ["-r"] if retain else []
        if len(payloads) == 1:
            command += ["-s"] if payloads[0] else ["-n"]
            data = payloads[0]
        else:
            assert not any(b"\n" in payload or not payload for payload in payloads)
            command += ["-l"]
            data = b"".join(payload + b"\n" for payload in payloads)
        result = subprocess.run(
            command, input=data, capture_output=True, check=False, timeout=timeout
        )
        assert result.returncode == 0, result.stderr.decode(errors="backslashreplace")

    def close(self) -> None:
        if self._sub is not None:
            # It disconnects properly on SIGTERM, but does so from within its signal handler: when that
            # interrupts the handling of a message, it may wait for its own lock and never end.
            self._sub.terminate()
            try:
                self._sub.wait(SIGNAL_TIMEOUT)
            except subprocess.TimeoutExpired:
                self._sub.kill()
            self._end()

    def kill(self) -> None:
        if self._sub is not None:
            self._sub.kill()
            self._end()

    def _end(self) -> None:
        assert self._sub is not None
        assert self._thread is not None
        assert self._sub.stdout is not None
        self._sub.wait(TIMEOUT)
        self._thread.join(TIMEOUT)
        self._sub.stdout.close()
        self._sub = None
