"""All peers in reach have a stream open before its maker goes on."""

import asyncio
from collections.abc import Callable
from typing import Any, cast

import pytest

from tests.support.until import PATIENCE
from vmq.clustering.streams.introductions import Introductions


class Peers:
    """The records and the outboxes of a node whose peers answer when they are told to."""

    def __init__(self) -> None:
        self.answers: dict[str, Callable[[bool], None]] = {}

    def get(self, *_: str) -> bytes:
        return b"definition"

    def send(self, peer: str, _message: object, answered: Callable[[bool], None]) -> bool:
        self.answers[peer] = answered
        return True

    def flush(self) -> None:
        """Nothing is under way."""


@pytest.mark.parametrize("goes", ["answers", "is down", "is no member any more"])
async def test_who_answers_or_goes_is_waited_for_no_longer(goes: str) -> None:
    peers = Peers()
    known = Introductions(cast("Any", peers), cast("Any", peers), lambda: ["b", "c"])
    telling = asyncio.create_task(known.tell_all("s", 2 * PATIENCE))
    await asyncio.sleep(0)
    peers.answers["b"](True)
    await asyncio.sleep(0)
    assert not telling.done()
    if goes == "answers":
        peers.answers["c"](False)
    elif goes == "is down":
        known.forget("c")
    else:
        known.keep({"b"})
    await asyncio.wait_for(telling, PATIENCE)
    peers.answers["c"](True)  # late: nobody minds
