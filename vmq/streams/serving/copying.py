"""Commits that publish, on a second host: both sides of it, in the event loop.

A host that is asked to keep a step has it on its disk when it says so. From then on it asks now and then whether it is
to be kept still, and looks whether the store that staged it is lost.
"""

import asyncio
import logging
from collections.abc import Callable, Coroutine, Iterator
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any, Final

import msgspec

from vmq.streams.groups.copying import (
    PIECE,
    Copying,
    CopyPiece,
    CopyStep,
    IsStepNeeded,
    StepCopied,
    StepEnds,
)
from vmq.streams.groups.port import OtherHosts
from vmq.streams.staging.copies import StepCopies
from vmq.streams.staging.parts import MOST_BYTES, Staging
from vmq.streams.staging.state import Decided, StagedStep, StagingError

log = logging.getLogger("vmq.streams")

#: Seconds until a host is asked again that does not answer; and how often it is asked in all.
_AGAIN: Final = 1.0
_TRIES: Final = 3
#: Seconds between two looks at what is kept here; and for how long a store is missed before its steps are taken over.
_LOOK: Final = 1.0
_MISSED: Final = 3.0
#: Seconds between two questions whether a step is to be kept still.
_ASK: Final = 60.0

#: Publishes a step of a store that is lost.
TakeOver = Callable[[str, StagedStep], Coroutine[Any, Any, None]]


class StepKeeper:
    """What this node has others keep, and keeps for others.

    Args:
        staging: what this node's members have staged.
        take_over: called for each step of a store that is lost.
    """

    def __init__(self, staging: Staging, take_over: TakeOver) -> None:
        self.staging = staging
        self.take_over = take_over
        self.copies = StepCopies(staging.folder.with_name("copies"), staging, MOST_BYTES)
        self.groups: OtherHosts | None = None
        #: What is kept here, by query: the step, when somebody was asked last, and since when its store is missed.
        self.kept: dict[str, StagedStep] = {}
        self.asked: dict[str, float] = {}
        self.missed: dict[str, float] = {}
        #: Queries of which a step is on its way to its keeper.
        self.giving: set[str] = set()
        self.numbers = count(1)
        self.waiting: dict[int, asyncio.Future[str]] = {}
        self.works: set[asyncio.Task[None]] = set()
        #: The disk is asked one thing at a time.
        self.turn = asyncio.Lock()
        self.timer: asyncio.TimerHandle | None = None

    def begin(self, groups: OtherHosts) -> None:
        """The node is one of a cluster."""
        self.groups = groups
        groups.on_copy = self.hear
        try:
            self.kept = dict(self.copies.kept())
        except (StagingError, OSError) as error:
            log.error("what other nodes' members have staged cannot be used: %s", error)
        self.look_later()

    async def stop(self) -> None:
        """The broker ends."""
        self.groups = None
        if self.timer is not None:
            self.timer.cancel()
        works = list(self.works)
        for work in works:
            work.cancel()
        await asyncio.gather(*works, return_exceptions=True)

    def spawn(self, work: Coroutine[Any, Any, None]) -> None:
        """Does something beside all else."""
        task = asyncio.create_task(work)
        self.works.add(task)
        task.add_done_callback(self.works.discard)

    # What this node has others keep

    async def give(self, query: str, what: Decided) -> bool:
        """Has the keeper of a step keep it; whether it does, as far as that is heard.

        Raises:
            StagingError: the files cannot be read.
        """
        assert what.step is not None
        folder, state = self.staging.folder_of(query), msgspec.json.encode(what)
        sizes = [(name, (folder / name).stat().st_size) for name in what.parts]
        keeper = what.step.keeper
        if sum(size for _, size in sizes) <= PIECE:
            pieces = await asyncio.to_thread(lambda: list(pieces_of(folder, sizes)))
            return await self.ask(keeper, lambda at: CopyStep(at, query, pieces, sizes, state))
        pieces_left = pieces_of(folder, sizes)
        while (piece := await asyncio.to_thread(next, pieces_left, None)) is not None:
            if not await self.ask(keeper, partial(CopyStep, query=query, pieces=[piece])):
                return False
        return await self.ask(keeper, lambda at: CopyStep(at, query, [], sizes, state))

    async def ask(self, node: str, make: Callable[[int], CopyStep]) -> bool:
        """Asks a node until it answers, or is not to be reached."""
        number = next(self.numbers)
        answer: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self.waiting[number] = answer
        try:
            for _ in range(_TRIES):
                if self.groups is None or node not in self.groups.keepers():
                    return False
                self.groups.pass_on(node, make(number))
                done, _ = await asyncio.wait([answer], timeout=_AGAIN)
                if done:
                    if answer.result():
                        log.warning(
                            "%s does not keep what is to be published: %s", node, answer.result()
                        )
                    return not answer.result()
            return False
        finally:
            del self.waiting[number]

    def end(self, query: str, staged: StagedStep) -> None:
        """A step is published, or refused."""
        if staged.keeper and self.groups is not None:
            step = staged.step
            self.groups.pass_on(staged.keeper, StepEnds(query, step.store, step.number))

    # What others say

    def hear(self, node: str, saying: Copying) -> None:
        """A node says something."""
        match saying:
            case StepCopied():
                waiting = self.waiting.get(saying.question)
                if waiting is not None and not waiting.done():
                    waiting.set_result(saying.error)
            case CopyStep():
                self.spawn(self.keep(node, saying))
            case StepEnds():
                self.spawn(self.drop(saying))
            case IsStepNeeded():
                self.spawn(self.tell_of(node, saying))

    async def keep(self, node: str, asked: CopyStep) -> None:
        """Keeps something for another node, and says so."""
        error = ""
        async with self.turn:
            try:
                await asyncio.to_thread(self.copies.write, asked.query, asked.pieces)
                if asked.state:
                    given = asked.query, asked.sizes, asked.state
                    self.kept[asked.query] = await asyncio.to_thread(self.copies.keep, *given)
                    self.asked[asked.query] = asyncio.get_running_loop().time()
                    self.look_later()
            except StagingError as flaw:
                error = str(flaw)[:1000]
        if self.groups is not None:
            self.groups.pass_on(node, StepCopied(asked.question, error))

    async def drop(self, ends: StepEnds) -> None:
        """Keeps a step no more."""
        async with self.turn:
            is_gone = await asyncio.to_thread(self.copies.drop, ends.query, ends.store, ends.number)
            if is_gone:
                self.forget(ends.query)

    async def tell_of(self, node: str, asked: IsStepNeeded) -> None:
        """Says so, if a step is not needed."""
        named = asked.query, asked.store, asked.number
        if asked.query in self.giving or await asyncio.to_thread(self.staging.needs, *named):
            return
        if self.groups is not None:
            self.groups.pass_on(node, StepEnds(*named))

    # What is kept here

    def look_later(self) -> None:
        """Looks at it in a while, if there is any."""
        if self.timer is None and self.kept and self.groups is not None:
            self.timer = asyncio.get_running_loop().call_later(_LOOK, self.look)

    def look(self) -> None:
        """Takes over what nobody else will publish, and asks about the rest."""
        self.timer = None
        groups, now = self.groups, asyncio.get_running_loop().time()
        if groups is None:
            return
        for query, staged in list(self.kept.items()):
            step = staged.step
            if step.store == groups.store or groups.is_lost(step.store):
                if now - self.missed.setdefault(query, now) >= _MISSED:
                    self.forget(query)
                    self.spawn(self.take_over(query, staged))
                continue
            self.missed.pop(query, None)
            if now - self.asked.setdefault(query, now) >= _ASK:
                self.asked[query] = now
                node = step.store.rpartition("@")[0]
                groups.pass_on(node, IsStepNeeded(query, step.store, step.number))
        self.look_later()

    def forget(self, query: str) -> None:
        """A step is not kept here."""
        self.kept.pop(query, None)
        self.asked.pop(query, None)
        self.missed.pop(query, None)

    def keep_on(self, query: str, staged: StagedStep) -> None:
        """It could not be taken over; that is tried again."""
        self.kept[query] = staged
        self.look_later()


def pieces_of(folder: Path, sizes: list[tuple[str, int]]) -> Iterator[CopyPiece]:
    """The bytes of some files.

    Raises:
        StagingError: they cannot be read.
    """
    for name, size in sizes:
        try:
            with (folder / name).open("rb") as file:
                for offset in range(0, size, PIECE):
                    yield CopyPiece(name, offset, file.read(min(PIECE, size - offset)))
        except OSError as error:
            raise StagingError(f"{folder / name} cannot be read: {error}") from error
