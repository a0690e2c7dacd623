"""A real mosquitto as a second opinion."""

import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from time import monotonic, sleep

from vmq.testing.ports import lasting_port

START_TIMEOUT = 15.0


@contextmanager
def mosquitto(folder: Path, *options: str) -> Iterator[int]:
    """A mosquitto on loopback; yields its port. `options` are lines of its configuration."""
    port = lasting_port()
    config = folder / "mosquitto.conf"
    # As root it would become the user mosquitto, who cannot read a test's folder.
    lines = (f"listener {port} 127.0.0.1", "user root", "persistence false", *options)
    config.write_text("\n".join(lines) + "\n")
    log = folder / "mosquitto.log"
    with log.open("wb") as output:
        process = subprocess.Popen(
            ["mosquitto", "-c", str(config)], stdout=output, stderr=subprocess.STDOUT
        )
    try:
        _wait_accepting(port, process, log)
        yield port
    finally:
        process.terminate()
        process.wait()


def _wait_accepting(port: int, process: subprocess.Popen[bytes], log: Path) -> None:
    deadline = monotonic() + START_TIMEOUT
    while True:
        assert process.poll() is None, log.read_text()
        try:
            socket.create_connection(("127.0.0.1", port)).close()
            return
        except OSError:
            assert monotonic() < deadline, log.read_text()
            sleep(0.02)  # nothing tells when it listens
