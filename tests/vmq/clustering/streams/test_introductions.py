"""All peers in reach have a stream open before its maker goes on."""

import asyncio
from collections.abc import Callable
from unittest.mock import Mock

import pytest

from tests.support.until import PATIENCE
from vmq.clustering.streams.introductions import Introductions


@pytest.mark.parametrize("goes", ["answers", "is down", "is no member any more"])
async def test_who_answers_or_goes_is_waited_for_no_longer(goes: str) -> None:
    outboxes, answers = Mock(), dict[str, Callable[[bool], None]]()
    outboxes.send = lambda peer, _message, answered: answers.update({peer: answered})
    known = Introductions(Mock(), outboxes, lambda: ["b", "c"])
    telling = asyncio.create_task(known.tell_all("s", 2 * PATIENCE))
    await asyncio.sleep(0)
    answers["b"](True)
    await asyncio.sleep(0)
    assert not telling.done()
    if goes == "answers":
        answers["c"](False)
    elif goes == "is down":
        known.forget("c")
    else:
        known.keep({"b"})
    await asyncio.wait_for(telling, PATIENCE)
    answers["c"](True)  # late: nobody minds
