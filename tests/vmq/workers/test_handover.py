import asyncio
import os
import socket

import msgspec
import pytest

from tests.support.until import until
from vmq.listeners.sockets import AcceptedSocket
from vmq.workers.control import DoorCount
from vmq.workers.handover import MOST_BEGUN, Handed, Receiver, hand_over, pair
from vmq.workers.process import Doors


async def test_a_connection_arrives_with_what_was_read_of_it() -> None:
    ours, theirs = pair()
    taken: asyncio.Queue[tuple[Handed, AcceptedSocket]] = asyncio.Queue()
    receiver = Receiver(theirs, lambda *what: taken.put_nowait(what))
    here, there = socket.socketpair()
    handed = Handed("web", socket.AF_UNIX, b"GET /mqtt ")
    with ours, here:
        assert hand_over(ours, handed, there.fileno())
        there.close()
        found, sock = await taken.get()
        assert found == handed
        assert not os.get_inheritable(sock.fileno()), "what a plugin starts has none of it"
        with sock:
            here.sendall(b"more")
            assert sock.recv(9) == b"more"
        receiver.close()
        assert not hand_over(ours, handed, here.fileno()), "nobody is there any more"


async def test_one_whose_descriptor_is_lost_counts_as_taken() -> None:
    """As when the worker has as many files as it may have: else the supervisor would count it as open for ever."""
    ours, theirs = pair()
    receiver = Receiver(theirs, lambda _handed, _sock: pytest.fail("there is no connection"))
    with ours:
        ours.send(msgspec.msgpack.encode(Handed("web", socket.AF_UNIX, b"GET /mqtt ")))
        await until(lambda: receiver.taken["web"] == 1)
        receiver.close()


async def test_what_is_too_much_is_not_taken() -> None:
    ours, theirs = pair()
    with ours, theirs:
        most = Handed("web", socket.AF_INET, b"x" * MOST_BEGUN)
        assert hand_over(ours, most, ours.fileno())
        more = Handed("web", socket.AF_INET, b"x" * (MOST_BEGUN + 1))
        assert not hand_over(ours, more, ours.fileno())
        small = Handed("web", socket.AF_INET, b"")
        for _ in range(100_000):
            if not hand_over(ours, small, ours.fileno()):
                break
        else:
            pytest.fail("a worker that takes none is given connections without end")


async def test_the_end_of_the_supervisor_ends_it() -> None:
    ours, theirs = pair()
    receiver = Receiver(theirs, lambda _handed, sock: sock.close())
    ours.close()
    await until(lambda: theirs.fileno() < 0)
    receiver.close()


def test_connections_are_counted_before_they_are_told_of() -> None:
    doors = Doors()
    doors.given("web")
    doors.given("web")
    assert doors.connections("web") == 2
    doors.told({"web": DoorCount(taken=1, connections=1)})
    assert (doors.connections("web"), doors.connections("other")) == (2, 0)
    doors.told({"web": DoorCount(taken=2, connections=1)})
    assert doors.connections("web") == 1
