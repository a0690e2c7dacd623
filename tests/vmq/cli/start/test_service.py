"""Messages to the service manager."""

import os
import socket
import uuid

import pytest

from vmq.cli.start.service import Notifier


def test_without_a_manager_nothing_is_said() -> None:
    notifier = Notifier({"WATCHDOG_USEC": "1000000"})
    assert notifier.watchdog_seconds is None
    notifier.ready("here")
    notifier.alive()


def test_an_abstract_address_works() -> None:
    name = f"vmq-test-{uuid.uuid4().hex}"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind("\0" + name)
        manager.settimeout(30)
        Notifier({"NOTIFY_SOCKET": "@" + name}).ready("tcp://127.0.0.1:1")
        assert manager.recv(1000) == b"READY=1\nSTATUS=tcp://127.0.0.1:1"


def test_a_manager_that_is_gone_is_a_line_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    Notifier({"NOTIFY_SOCKET": "/nonexistent/notify"}).stopping()
    assert "cannot notify the service manager" in caplog.text


@pytest.mark.parametrize(
    ("variables", "seconds"),
    [
        ({}, None),
        ({"WATCHDOG_USEC": "2500000"}, 2.5),
        ({"WATCHDOG_USEC": "2500000", "WATCHDOG_PID": "{own}"}, 2.5),
        ({"WATCHDOG_USEC": "2500000", "WATCHDOG_PID": "1"}, None),
        ({"WATCHDOG_USEC": "0"}, None),
        ({"WATCHDOG_USEC": "soon"}, None),
    ],
)
def test_the_watchdog_is_that_of_this_process(
    variables: dict[str, str], seconds: float | None
) -> None:
    given = {name: text.format(own=os.getpid()) for name, text in variables.items()}
    assert Notifier({"NOTIFY_SOCKET": "/x", **given}).watchdog_seconds == seconds
