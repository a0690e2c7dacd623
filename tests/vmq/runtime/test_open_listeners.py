"""Listeners by name: opened, closed, counted, and errors that name them."""

import errno
import os

import pytest

from vmq.config.options import ListenerOptions
from vmq.config.values import Endpoint
from vmq.listeners.certificates import CertificateError
from vmq.runtime.errors import StartError
from vmq.runtime.open_listeners import OpenListeners

TCP = ListenerOptions(url="tcp://127.0.0.1:0")
WS = ListenerOptions(url="ws://127.0.0.1:0/mqtt")


class Door:
    """A listener without a socket."""

    def __init__(self, name: str, options: ListenerOptions) -> None:
        self.name = name
        self.endpoint: Endpoint = options.endpoint
        self.url = options.url
        self.connections = 0
        self.is_open = True
        self.is_wanting = False

    def close(self) -> None:
        self.is_open = False


async def door(name: str, options: ListenerOptions) -> Door:
    return Door(name, options)


async def test_they_are_found_by_name_while_they_are_open() -> None:
    listeners = OpenListeners(door)
    await listeners.open("one", TCP)
    await listeners.open("two", WS)
    found = [(name, each.url) for name, each in listeners.items()]
    assert found == [("one", TCP.url), ("two", WS.url)]
    closed = listeners.close("one")
    assert (closed.name, closed.is_open) == ("one", False)
    assert list(listeners) == ["two"]
    with pytest.raises(KeyError):
        listeners.close("one")


async def test_connections_count_until_they_end_whatever_becomes_of_their_listener() -> None:
    listeners = OpenListeners(door)
    await listeners.open("one", TCP)
    await listeners.open("two", WS)
    one, two = listeners["one"], listeners["two"]
    one.connections, two.connections = 3, 2
    listeners.close("one")
    await listeners.open("one", TCP)
    listeners["one"].connections = 1
    assert listeners.connections() == {"mqtt": 4, "mqttws": 2}
    one.connections = 0
    listeners.close("two")
    assert listeners.connections() == {"mqtt": 1, "mqttws": 2}


async def test_one_that_does_not_accept_is_a_problem() -> None:
    listeners = OpenListeners(door)
    await listeners.open("one", TCP)
    await listeners.open("two", WS)
    assert listeners.problems() == []
    listeners["two"].is_open = False
    assert listeners.problems() == [f"listener two ({WS.url}) does not accept connections"]


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (
            OSError(errno.EADDRINUSE, os.strerror(errno.EADDRINUSE)),
            f"listeners.one: cannot listen on {TCP.url}: Address already in use",
        ),
        (CertificateError("keyfile", "no such file"), "listeners.one.keyfile: no such file"),
    ],
)
async def test_what_cannot_be_had_is_said_with_the_name(error: Exception, said: str) -> None:
    async def no_door(_name: str, _options: ListenerOptions) -> Door:
        raise error

    listeners = OpenListeners(no_door)
    with pytest.raises(StartError) as caught:
        await listeners.open("one", TCP)
    assert str(caught.value) == said
    assert len(listeners) == 0
