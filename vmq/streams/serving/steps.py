"""Commits that publish, of members in a cluster: their messages are on this node's disk before the coordinator decides.

Whatever ends in between, the node asks again after its next start, before its members ask for anything.
"""

import asyncio
import logging

from vmq.streams.catalog import Catalog
from vmq.streams.flight.groups import GroupPublishQuery
from vmq.streams.flight.sink import member_query
from vmq.streams.groups.port import GroupsElsewhere
from vmq.streams.groups.share import GroupShare
from vmq.streams.groups.steps import StepMove
from vmq.streams.replay.program import ProgramMember
from vmq.streams.serving.sinks import RETRY_AFTER, Sinks
from vmq.streams.staging.state import BusyError, StagedStep, StagingError

log = logging.getLogger("vmq.streams")


class GroupSteps:
    """The steps of this node's members.

    Args:
        catalog: knows who coordinates groups, if somebody does.
        sinks: publishes what is accepted.
    """

    def __init__(self, catalog: Catalog, sinks: Sinks) -> None:
        self.catalog = catalog
        self.sinks = sinks
        self.works: set[asyncio.Task[None]] = set()

    async def publish(
        self,
        groups: GroupsElsewhere,
        share: GroupShare,
        member: ProgramMember,
        asked: GroupPublishQuery,
    ) -> bool:
        """Moves a member's cursors and publishes what goes with that; False: some are another's, and neither is done.

        Raises:
            StagingError: neither is done.
        """
        query = member_query(member.name)
        if not all(member.is_own(number, each) for number, (each, _) in asked.commit.items()):
            return False
        moves = [
            StepMove(number, generation, member.parts[number].done, position)
            for number, (generation, position) in sorted(asked.commit.items())
            if position > member.parts[number].done
        ]
        if not moves:
            raise StagingError("the commit moves no cursor; accepted: publish it as others do")
        step = share.new_step(member.name, moves)
        try:
            marks = await self.sinks.marks()
            staged = StagedStep(share.key, step)
            await asyncio.to_thread(
                self.sinks.staging.prepare, query, asked.batch, asked.parts, marks, staged
            )
        except BaseException:
            share.finish(step)
            raise
        is_accepted = await self.decided(groups, query, staged)
        if is_accepted:
            for move in moves:
                if member.is_own(move.partition, move.generation):
                    member.commit(move.partition, move.to)
            await self.send_out(query, asked.batch)
        share.finish(step)
        return is_accepted

    async def decided(self, groups: GroupsElsewhere, query: str, staged: StagedStep) -> bool:
        """Whether the coordinator accepts a step; noted on the disk when this returns."""
        is_accepted = await groups.decided(staged.key, staged.step)
        while True:
            try:
                await asyncio.to_thread(self.sinks.staging.settle, query, is_accepted=is_accepted)
                break
            except BusyError as error:
                log.warning("what was decided of query %s cannot be noted: %s", query, error)
                await asyncio.sleep(RETRY_AFTER)
        if is_accepted:
            self.sinks.begin(query)
        return is_accepted

    async def send_out(self, query: str, batch: int) -> None:
        """Publishes a batch that is decided, to its end, unless the broker ends before."""
        while True:
            try:
                await self.sinks.publish_once(query, batch, [])
                return
            except BusyError as error:
                if self.sinks.is_stopping:
                    raise
                log.warning("batch %d of query %s has to wait: %s", batch, query, error)
                await asyncio.sleep(RETRY_AFTER)

    # After a start

    def resume(self) -> None:
        """Asks for what was not decided when the broker ended; to be called before there are members."""
        groups = self.catalog.groups
        for query, batch, staged in self.sinks.staging.asked():
            if groups is None:
                text = "batch %d of query %s waits: only the cluster knows whether it is to be published"
                log.warning(text, batch, query)
                continue
            share = groups.share_of(staged.key)
            share.ask(staged.step)
            work = asyncio.create_task(self.go_on(groups, share, query, batch, staged))
            self.works.add(work)
            work.add_done_callback(self.works.discard)

    async def go_on(
        self, groups: GroupsElsewhere, share: GroupShare, query: str, batch: int, staged: StagedStep
    ) -> None:
        """Asks for one, and publishes it or throws it away."""
        try:
            if await self.decided(groups, query, staged):
                await self.send_out(query, batch)
                log.info("published batch %d of query %s, as its group has it", batch, query)
            else:
                text = "batch %d of query %s is not published: its group has not moved with it"
                log.warning(text, batch, query)
        except BusyError:
            return  # the broker ends
        except StagingError as error:
            log.error("batch %d of query %s cannot be published: %s", batch, query, error)
            return
        share.finish(staged.step)
        await self.sinks.forget(query)

    async def stop(self) -> None:
        """The broker ends: what is not decided waits for the next start."""
        works = list(self.works)
        for work in works:
            work.cancel()
        await asyncio.gather(*works, return_exceptions=True)
