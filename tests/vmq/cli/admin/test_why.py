"""`vmq why`: who may do what, and by which rule, asked of a running broker from a shell."""

import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conftest import BrokerFactory
from tests.support.wire import Wire
from tests.vmq.cli.admin.conftest import Connect
from tests.vmq.cli.program import on
from vmq.testing.process import BrokerProcess


def test_why_tells_the_verdict_and_each_reason(shared: BrokerProcess, connect: Connect) -> None:
    connect("why-pub")
    connect("why-sub").subscribe(("why/#", 1))
    away = connect("why-away", clean=False)
    away.subscribe(("why/+", 1))
    away.ended_by(b"\xe0\x00")
    done = on(shared, "why", "why-pub", "why/x", "--qos", "1", "--retain", "--size", "10")
    lines = done.out.decode().splitlines()
    assert (done.code, done.err) == (0, "")
    assert lines[0] == "It goes to 2 of the subscribers below"
    rows = [line.split()[:4] for line in lines]
    assert ["why-sub", "why/#", "1", "sent"] in rows
    assert ["why-away", "why/+", "1", "stored"] in rows
    done = on(shared, "why", "nobody", "why/x", "--json")
    assert done.code == 1
    said = json.loads(done.out)
    assert said["arrives"] is False
    assert said["steps"][0]["verdict"] == "stop"
    assert on(shared, "why", "why-pub", "why/x", "--qos", "3").code == 2


ACL = """\
user alice
topic read news/#
topic write home/alice/#
topic deny home/alice/safe
"""


@pytest.fixture
def guarded(tmp_path: Path, fresh_broker: BrokerFactory) -> Iterator[BrokerProcess]:
    """A broker whose rules vmq_acl has, of which alice and bob are clients."""
    (tmp_path / "config").mkdir()
    (tmp_path / "config" / "acl").write_text(ACL)
    config = tmp_path / "config" / "vmq.toml"
    config.write_text("[plugins.vmq_acl]\n")
    broker = fresh_broker(args=("--config", str(config), "--allow-anonymous"))
    with Wire.connect_tcp(broker.tcp) as alice, Wire.connect_tcp(broker.tcp) as bob:
        alice.connect("alice", username="alice")
        alice.subscribe(("news/#", 1))
        bob.connect("bob", username="bob")
        yield broker


def test_why_names_the_rule_that_is_missing(guarded: BrokerProcess, tmp_path: Path) -> None:
    acl = tmp_path / "config" / "acl"
    done = on(guarded, "why", "alice", "news/x")
    assert done.code == 1
    verdict, remedy, *_ = done.out.decode().splitlines()
    assert verdict == (
        f"It goes nowhere: vmq_acl: no rule of {acl} lets alice write news/x: the connection is closed"
    )
    assert remedy == "What would help: `topic write news/x` below `user alice` would grant it"
    said = json.loads(on(guarded, "why", "alice", "news/x", "--json").out)
    (step,) = [each for each in said["steps"] if each["step"] == "rights"]
    assert (step["plugin"], step["verdict"]) == ("vmq_acl", "stop")
    assert said["remedy"] == step["remedy"] == remedy.removeprefix("What would help: ")
    with acl.open("a") as file:
        file.write("topic write news/x\n")
    os.kill(guarded.pid, signal.SIGHUP)
    guarded.wait_log("new content is in force")
    said = json.loads(on(guarded, "why", "alice", "news/x", "--json").out)
    (step,) = [each for each in said["steps"] if each["step"] == "rights"]
    assert step["reason"] == f"vmq_acl: {acl}, line 5 grants it: topic write news/x"
    assert on(guarded, "why", "alice", "news/x").code == 0


def test_why_names_the_line_that_denies(guarded: BrokerProcess, tmp_path: Path) -> None:
    done = on(guarded, "why", "alice", "home/alice/safe")
    line = f"vmq_acl: {tmp_path}/config/acl, line 4 denies it: topic deny home/alice/safe"
    assert f"It goes nowhere: {line}: the connection is closed" in done.out.decode()
    # Somebody who is not there is asked about by name.
    assert (
        on(guarded, "why", "nobody", "home/alice/x", "--user", "alice").out.count(b"grants it") == 1
    )


def test_why_subscribe(guarded: BrokerProcess, tmp_path: Path) -> None:
    done = on(guarded, "why", "bob", "news/#", "--subscribe")
    assert done.code == 1
    assert done.out.decode().startswith(
        f"It is not granted: vmq_acl: no rule of {tmp_path}/config/acl lets bob read all that news/# "
        "matches: it is answered with failure (0x80)\n"
        "What would help: `topic read news/#` below `user bob` would grant it\n"
    )
    done = on(guarded, "why", "alice", "news/local", "--subscribe", "-q", "1")
    assert done.code == 0
    assert done.out.startswith(b"It is granted at QoS 1\n")


def test_why_receive(guarded: BrokerProcess) -> None:
    done = on(guarded, "why", "alice", "news/x", "--receive", "-q", "1")
    assert done.code == 0
    assert done.out.startswith(b"It receives it: sent\n")
    done = on(guarded, "why", "alice", "news/x", "--receive", "--from", "bob")
    assert done.code == 1
    assert b"It does not receive it: bob: vmq_acl: no rule of " in done.out
    done = on(guarded, "why", "bob", "news/x", "--receive")
    assert done.out.startswith(b"It does not receive it: it has no subscription\n")


@pytest.mark.parametrize(
    "words",
    [
        ("--from", "x"),
        ("--subscribe", "--receive"),
        ("--subscribe", "-r"),
        ("--receive", "--user", "x"),
    ],
)
def test_why_takes_what_belongs_together(shared: BrokerProcess, words: tuple[str, ...]) -> None:
    done = on(shared, "why", "a", "b", *words)
    done.tells(2, "goes with")
