"""Questions to other nodes, by messages that arrive at most once: the answer has the number of its question."""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from typing import Generic, TypeVar

from vmq.clustering.messages.base import NodeAnswer

A = TypeVar("A", bound=NodeAnswer)


class Questions(Generic[A]):
    """What this node asks, with answers of one type. In the event loop.

    Args:
        last: a number above those of an earlier life whose answers might still come.
        again: seconds until a question is asked again; None: it is not.
    """

    def __init__(self, last: int = 0, again: float | None = None) -> None:
        self._last = last
        self._again = again
        self._asked: dict[int, Callable[[A], None]] = {}

    async def ask(
        self, say: Callable[[int], bool], take: Callable[[A], bool], patience: float | None
    ) -> None:
        """Returns when it is answered, or nobody is to be asked; after `patience` seconds in any case.

        Args:
            say: sends the question of a number; False: there is nobody to ask.
            take: an answer; returns whether nothing more is to come.
            patience: None: for ever.
        """
        self._last = number = self._last + 1
        done = asyncio.Event()

        def heard(answer: A) -> None:
            if take(answer):
                done.set()

        self._asked[number] = heard
        try:
            with suppress(TimeoutError):
                async with asyncio.timeout(patience):
                    while not done.is_set() and say(number):
                        with suppress(TimeoutError):
                            async with asyncio.timeout(self._again):
                                await done.wait()
        finally:
            del self._asked[number]

    async def first(self, say: Callable[[int], bool], patience: float | None) -> A | None:
        """The first answer to a question that one node answers; None: there is none, see `ask`."""
        found: list[A] = []

        def take(answer: A) -> bool:
            found.append(answer)
            return True

        await self.ask(say, take, patience)
        return found[0] if found else None

    def on_answer(self, _peer: str, answer: A) -> None:
        """A peer answers."""
        heard = self._asked.get(answer.question)
        if heard is not None:
            heard(answer)
