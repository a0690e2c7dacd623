"""A whole fleet is back at once, each device with a password that is slow to check: nobody is refused."""

import json
import resource
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import psutil
import pytest

from tests.attacks.size import FULL, size
from tests.attacks.users import PASSWORD, start, write_users
from tests.conftest import BrokerFactory
from vmq.testing.process import BrokerProcess

#: Devices that are back at once: more than once could wait.
DEVICES = size(130, 20_000)
#: Processes that serve them, and such as they come from: in some places one may have no more than 20,000 files.
WORKERS = size(1, 2)
PROCESSES = size(2, 4)
#: Seconds for all of them; each password takes some 20 ms of a core, and others may want those as well.
PATIENCE = size(60, 3000)
#: Seconds for which one may wait (`session.login_timeout`).
LOGIN_TIMEOUT = 600


@pytest.fixture(autouse=True)
def many_files() -> None:
    """As many connections as `make attack` wants."""
    if FULL:
        _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


@contextmanager
def fleet(broker: BrokerProcess) -> Iterator[list[dict[str, float]]]:
    """What the devices of each process were told, all back at once; who is in stays until the block ends."""
    share = DEVICES // PROCESSES
    host, port = broker.tcp
    with ExitStack() as stack:
        parts = []
        for number in range(PROCESSES):
            # Each from an address of its own: one has about 28,000 ports.
            given = (host, port, number * share, share, f"127.0.0.{2 + number}", PASSWORD.decode())
            command = [sys.executable, "-m", "tests.attacks.fleet", *map(str, given)]
            part = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
            parts.append(stack.enter_context(part))
            stack.callback(part.kill)
        assert [line(part) for part in parts] == ["ready"] * PROCESSES
        for part in parts:
            assert part.stdin is not None
            part.stdin.write(b"go\n")
            part.stdin.flush()
        yield [json.loads(line(part)) for part in parts]


def line(part: subprocess.Popen[bytes]) -> str:
    """The next one that a process says."""
    assert part.stdout is not None
    return part.stdout.readline().decode().strip()


def processor_seconds(broker: BrokerProcess) -> float:
    """What a broker and its workers have taken so far."""
    whole = psutil.Process(broker.pid)
    times = [each.cpu_times() for each in (whole, *whole.children(recursive=True))]
    return float(sum(each.user + each.system for each in times))


@pytest.mark.timeout(PATIENCE + 60)
def test_a_fleet_that_is_back_at_once_gets_in(
    fresh_broker: BrokerFactory, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """After a restart nobody's password is remembered; clients take CONNACK 4 and 5 as final."""
    users = write_users(tmp_path / "passwd", DEVICES)
    workers = ("--workers", str(WORKERS)) if WORKERS > 1 else ()
    broker = start(fresh_broker, users, tmp_path, "", *workers)
    before = processor_seconds(broker)
    with fleet(broker) as told:
        spent = processor_seconds(broker) - before
        seconds = max(each.pop("seconds") for each in told)
    got: Counter[str] = Counter()
    for each in told:
        got.update({name: int(count) for name, count in each.items()})
    if FULL:
        with capsys.disabled():
            cost = 1000 * spent / DEVICES
            print(f"\n{dict(got)}, the last in after {seconds:.0f} s, {cost:.1f} ms of a core each")
    if seconds > LOGIN_TIMEOUT:
        # The machine was not free for them: who waited for so long is told to come again, not that he may not.
        del got["again"]
    assert got == {"0": DEVICES}
