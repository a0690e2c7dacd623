"""What a node takes of its peers: once, and confirmed when it is safe, whatever fails."""

import asyncio
import logging
import shutil
from functools import partial
from pathlib import Path
from typing import Any, cast
from unittest.mock import patch

import pytest
from msgspec.structs import replace

from tests.support.until import until
from tests.vmq.clustering.nodes import hushed
from tests.vmq.clustering.sides import Side, payloads, rounds, sides
from vmq.clustering.delivery import inbox as arrivals
from vmq.clustering.messages.base import NodeMessage
from vmq.clustering.messages.codec import VERSIONS, AnyMessage, encode
from vmq.clustering.messages.streams import Append
from vmq.store.store import Store
from vmq_cluster import link
from vmq_cluster.messages import Frame, Received, Unreliable
from vmq_cluster.metadata.versions import Dialects, Versions


async def test_a_message_is_kept_until_the_peer_has_committed_what_it_made_of_it(
    tmp_path: Path,
) -> None:
    async with sides(tmp_path) as (a, b):
        with b.suspended():
            a.send(b"1")
            await until(lambda: b.got == [b"1"])
            await rounds(a, b)
            assert a.done == []
            assert a.spooled() == 1
            await b.kill()
        # What it had handled died with it, uncommitted: it is handled anew.
        await b.start()
        await until(lambda: a.done == [True])
        assert b.got == [b"1", b"1"]
        assert len(b.records(b"rgot/")) == 1
        assert len(b.records(b"t")) == 1


async def test_who_has_not_heard_of_the_new_store_of_a_peer_is_told_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(arrivals, "TELL_AGAIN", 0.05)
    async with sides(tmp_path) as (a, b):
        a.send(b"1")
        await until(lambda: a.done == [True])
        await b.stop()
        a.send(b"2")
        shutil.rmtree(tmp_path / "b")
        hear, lost = a.node.link._on_frame, 0

        def mishear(frame: Frame) -> None:
            nonlocal lost
            rest = [each for each in frame.messages if not isinstance(each, Unreliable)]
            if lost < 5 and len(rest) < len(frame.messages):
                lost += 1
                frame = replace(frame, messages=rest)
            hear(frame)

        monkeypatch.setattr(a.node.link, "_on_frame", mishear)
        await b.start()
        await until(lambda: a.done == [True, True])
        assert b.got == [b"1", b"2"]
        assert lost == 5


# --- what left no trace is confirmed late


@pytest.fixture
def never(monkeypatch: pytest.MonkeyPatch) -> None:
    """Late is never."""
    monkeypatch.setattr(arrivals, "LATE", 3600.0)


async def publish(a: Side, b: Side, *texts: bytes, qos: int = 1) -> None:
    """What a client says at `a`, each message in a batch of its own, is handled at `b` without a trace."""
    b.keeps = False
    await b.wants(a)
    client = a.client()
    for text in texts:
        more = len(b.got) + 1
        client.publish("t", text, qos=qos)
        await until(partial(b.has_got, more))


def received(side: Side, patch: pytest.MonkeyPatch) -> list[Received]:
    """The confirmations that come to a node from now on."""
    found: list[Received] = []
    link = side.node.link
    hear = link._on_frame

    def listen(frame: Frame) -> None:
        found.extend(each for each in frame.messages if isinstance(each, Received))
        hear(frame)

    patch.setattr(link, "_on_frame", listen)
    return found


async def test_what_nobody_waits_for_is_confirmed_for_many_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(arrivals, "LATE", 0.5)
    async with sides(tmp_path) as (a, b):
        confirmed = received(a, monkeypatch)
        await publish(a, b, *payloads(1, 20))
        await until(lambda: a.outboxes.waiting() == (0, 0))
        assert 1 <= len(confirmed) < 20
        assert len(b.records(b"t")) == 1
        assert b.got == payloads(1, 20)


async def test_late_confirmations_go_with_the_first_that_is_waited_for(
    tmp_path: Path, never: None
) -> None:
    async with sides(tmp_path) as (a, b):
        await rounds(a, b)
        known = b.records(b"t")  # nodes say how it is about wills when they meet
        await publish(a, b, *payloads(1, 3))
        await rounds(a, b)
        assert a.spooled() == 3
        assert b.records(b"t") == known
        a.send(b"4")
        await until(lambda: a.done == [True])
        assert a.outboxes.waiting() == (0, 0)
        assert len(b.records(b"t")) == 1


@patch.object(arrivals, "LATE_BYTES", 1000)
async def test_so_much_is_late_and_no_more(tmp_path: Path, never: None) -> None:
    async with sides(tmp_path) as (a, b):
        await publish(a, b, b"1", b"2" * 1000)
        await until(lambda: a.outboxes.waiting() == (0, 0))
        await publish(a, b, b"3")
        await rounds(a, b)
        assert a.spooled() == 1


@pytest.mark.parametrize(
    ("qos", "options"),
    [
        (2, {}),
        (1, {"ack_after": "remote"}),
        (1, {"overflow": "pause_publisher", "buffer_bytes": 65_536}),
    ],
)
async def test_who_waits_waits_no_longer_for_it(
    tmp_path: Path, never: None, qos: int, options: dict[str, Any]
) -> None:
    """At QoS 2 the subscriber does: a crash must hardly ever find it without the confirmation."""
    async with sides(tmp_path, **options) as (a, b):
        await publish(a, b, b"1" * 40_000, qos=qos)
        await until(lambda: a.outboxes.waiting() == (0, 0))


async def test_what_is_late_when_a_node_stops_in_order_is_not_handled_again(
    tmp_path: Path, never: None
) -> None:
    async with sides(tmp_path) as (a, b):
        await publish(a, b, *payloads(1, 3))
        await b.stop()
        await until(lambda: a.spooled() == 0)  # it has said so
        await b.start()
        b.keeps = True
        a.send(b"4")
        await until(lambda: a.done == [True])
        assert b.got == payloads(1, 4)


async def test_what_is_late_when_a_node_dies_is_handled_again(tmp_path: Path, never: None) -> None:
    async with sides(tmp_path) as (a, b):
        await publish(a, b, *payloads(1, 2))
        with hushed(b.running):
            await b.kill()
        await b.start()
        a.send(b"3")
        await until(lambda: a.done == [True])
        assert b.got == [*payloads(1, 2), *payloads(1, 3)]


async def test_what_the_streams_had_not_committed_is_handled_again_and_nothing_else(
    tmp_path: Path,
) -> None:
    async with sides(tmp_path) as (a, b):
        a.send(b"1")
        a.outboxes.send("b", Append("s", b"t", b"2", 1, "p", 0), a.done.append)
        a.send(b"3")
        await until(lambda: b.got == payloads(1, 3))
        await until(lambda: [len(value) for _, value in b.records(b"t")] == [72])
        await rounds(a, b)
        assert a.done == []
        await b.kill()
        await b.start()
        await until(lambda: b.got == [*payloads(1, 3), b"2"])
        b.commits_of_streams()
        await until(lambda: a.done == [True, True, True])
        await until(lambda: [len(value) for _, value in b.records(b"t")] == [24])


async def test_a_receiver_that_starts_again_takes_nothing_twice(tmp_path: Path) -> None:
    async with sides(tmp_path) as (a, b):
        a.send(b"1")
        await until(lambda: a.done == [True])
        with hushed(b.running):
            for payload in payloads(2, 5):
                a.send(payload)
            await until(lambda: b.got == payloads(1, 5) and len(b.records(b"rgot/")) == 5)
            await b.kill()
        a.send(b"6")
        await b.start()
        await until(lambda: len(a.done) == 6)
        assert b.got == payloads(1, 6)


@patch.object(link, "_DEAF_SECONDS", 0.3)
async def test_nonsense_drops_the_link_for_a_while_and_nothing_else(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with sides(tmp_path) as (a, b):
        for bad in (a.node.send, a.node.send_unreliable):
            caplog.clear()
            bad("b", b"nonsense")
            await until(lambda: "dropped the link of a: no " in caplog.text)
            assert b.node.is_running
            a.send(b"1")
            await until(lambda: a.done == [True])
            a.done.clear()
        assert b.got == [b"1", b"1"]
        assert a.node.machine.channels.waiting("b") == (0, 0)


class New(NodeMessage, frozen=True, tag=999):
    """What a later version says."""


async def test_what_a_later_version_says_besides_is_passed_over_and_drops_no_link(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    async with sides(tmp_path) as (a, b):
        machine = a.node.machine
        machine.dialects = Dialects(Versions(VERSIONS.speaks + 1, 1), machine._outbox)
        await until(lambda: b.node.spoken_by("a") == VERSIONS.speaks + 1)
        for payload in payloads(1, 3):
            assert a.node.send_unreliable("b", encode(New()))
            a.outboxes.send("b", cast(AnyMessage, New()))
            a.send(payload)
        await until(lambda: a.done == [True, True, True])
        assert b.got == payloads(1, 3)
        assert caplog.text.count("passes over what node a says in a later version") == 1
        assert "dropped the link" not in caplog.text


async def test_a_handler_that_fails_is_logged_and_holds_up_nobody(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    def trouble() -> None:
        raise RuntimeError("a defect")

    async with sides(tmp_path) as (a, b):
        b.trouble = trouble
        for payload in payloads(1, 2):
            a.send(payload)
        await until(lambda: a.done == [True, True])
        assert b.got == payloads(1, 2)
        assert "cannot handle a RemotePublish of a" in caplog.text


@patch("vmq.persistence.group_commit.RETRY_AFTER", 0.05)
async def test_a_node_whose_store_cannot_write_takes_nothing_until_it_can(tmp_path: Path) -> None:
    async with sides(tmp_path) as (a, b):
        await until(lambda: not a.outboxes._outboxes["b"].messages)  # of wills, as they met
        with patch.object(b.running.parts.committer, "write", full):
            a.send(b"1")
            await until(lambda: b.store.failing)
            for payload in payloads(2, 50):
                a.send(payload)
                await asyncio.sleep(0)
            await until(lambda: len(b.outboxes.arrivals._untaken) > 0)
            assert b.got == [b"1"]
            assert a.done == []
            await rounds(a, b)
        await until(lambda: len(a.done) == 50)
        assert b.got == payloads(1, 50)
        assert not b.outboxes.arrivals._untaken


def full(_: Store) -> None:
    raise OSError("no space left")


async def test_a_node_that_is_behind_takes_as_much_as_its_clients_would_be_let(
    tmp_path: Path,
) -> None:
    async with sides(tmp_path) as (a, b):
        core = b.running.parts.core
        core.options.max_uncommitted_writes = 5
        most = 0

        def write_much() -> None:
            nonlocal most
            b.store.put(b"rmuch/%d" % len(b.got), b"\0" * 10_000)
            most = max(most, b.store.gathered)

        b.trouble = write_much
        with patch("vmq.clustering.delivery.outbox.PARCEL", 10):
            for payload in payloads(1, 50):
                a.send(payload)
        await until(lambda: len(a.done) == 50)
        assert b.got == payloads(1, 50)
        assert most < 30  # one message counts 10 or so
