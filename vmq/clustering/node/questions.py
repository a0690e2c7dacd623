"""Questions to other nodes, which answer each at once or not at all."""

import asyncio
from collections.abc import Callable
from typing import Generic, TypeVar

from vmq.clustering.delivery.outboxes import Outboxes
from vmq.clustering.messages.base import NodeAnswer
from vmq.clustering.messages.codec import AnyMessage

Answer = TypeVar("Answer", bound=NodeAnswer)


class PeerQuestions(Generic[Answer]):
    """The questions of one node that have answers of one type.

    Args:
        outboxes: to the other nodes; of them only what arrives at most once.
        kind: the type of the answers.
    """

    def __init__(self, outboxes: Outboxes, kind: type[Answer]) -> None:
        self._outboxes = outboxes
        self._last = 0
        self._asked: dict[int, asyncio.Future[Answer]] = {}
        outboxes.on(kind, self._on_answer)

    async def ask(
        self, peer: str, question: Callable[[int], AnyMessage], patience: float
    ) -> Answer | None:
        """What a node answers to the question that is made of a number; None: nothing within so many seconds."""
        self._last = number = self._last + 1
        self._asked[number] = answer = asyncio.get_running_loop().create_future()
        try:
            if self._outboxes.send_quick(peer, question(number)):
                return await asyncio.wait_for(answer, patience)
        except TimeoutError:
            pass
        finally:
            del self._asked[number]
        return None

    def _on_answer(self, _peer: str, message: Answer) -> None:
        answer = self._asked.get(message.question)
        if answer is not None and not answer.done():
            answer.set_result(message)
