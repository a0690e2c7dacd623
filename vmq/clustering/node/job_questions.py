"""Operations on jobs over nodes: another node is asked what it has, or to do something with it."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Final, NamedTuple

from vmq.clustering.delivery.outboxes import Outboxes
from vmq.clustering.delivery.questions import Questions
from vmq.clustering.messages.jobs import AskJobs, JobsFound

log = logging.getLogger("vmq.cluster")

#: Seconds that a node has to answer.
PATIENCE: Final = 5.0
#: Bytes of an answer: a longer one might hold up what else goes that way. Questions that are answered at a time.
_LONGEST: Final = 8 << 20
_MOST: Final = 32


class JobsAnswer(NamedTuple):
    """A status as HTTP has it, and JSON, or why not."""

    status: int
    body: bytes


#: Does an operation by its name, with parameters as JSON, for this node alone.
JobsAnswerer = Callable[[str, bytes], Awaitable[JobsAnswer]]


class JobQuestions:
    """Those of one node.

    Args:
        outboxes: to the other nodes; of them only what arrives at most once.
    """

    def __init__(self, outboxes: Outboxes) -> None:
        self._outboxes = outboxes
        self._questions = Questions[JobsFound]()
        self._tasks: set[asyncio.Task[None]] = set()
        #: Answers others; None: nobody does yet.
        self.answerer: JobsAnswerer | None = None
        outboxes.on(AskJobs, self._on_ask)
        outboxes.on(JobsFound, self._questions.on_answer)

    async def ask(self, peer: str, operation: str, parameters: bytes) -> JobsAnswer | None:
        """What a node answers; None: nothing in time."""
        found = await self._questions.first(
            lambda number: self._outboxes.send_quick(peer, AskJobs(number, operation, parameters)),
            PATIENCE,
        )
        return None if found is None else JobsAnswer(found.status, found.body)

    def _on_ask(self, peer: str, message: AskJobs) -> None:
        if self.answerer is None or len(self._tasks) >= _MOST:
            return
        task = asyncio.get_running_loop().create_task(self._answer(self.answerer, peer, message))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _answer(self, answerer: JobsAnswerer, peer: str, message: AskJobs) -> None:
        try:
            status, body = await answerer(message.operation, message.parameters)
        except Exception:  # a defect: who asks must not wait for nothing
            log.exception("node %s asked %s", peer, message.operation)
            status, body = 500, b"it failed; its log says why"
        if len(body) > _LONGEST:
            status, body = 409, b"the answer is too long: ask for fewer rows, or that node alone"
        self._outboxes.send_quick(peer, JobsFound(message.question, status, body))

    def stop(self) -> None:
        """Answers nobody any more."""
        self.answerer = None
        for task in self._tasks:
            task.cancel()
