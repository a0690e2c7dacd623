"""Commits that publish, of members in a cluster: their messages are on two hosts before the coordinator decides.

Whatever ends in between, the node asks again after its next start, before its members ask for anything. If its disk is
lost the other host asks instead, under a step of its own (`vmq.streams.groups.steps`), and publishes what was accepted.
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
from vmq.streams.serving.copying import StepKeeper
from vmq.streams.serving.sinks import RETRY_AFTER, Sinks
from vmq.streams.staging.state import BusyError, Decided, StagedStep, StagingError

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
        self.keeper = StepKeeper(sinks.staging, self.take_over)

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
        staging = self.sinks.staging
        marks, now = await self.sinks.marks(), int(self.sinks.core.wall_clock() * 1_000_000)
        given = query, asked.batch, asked.parts, marks, now
        what = await asyncio.to_thread(staging.asking, *given)
        self.keeper.giving.add(query)
        try:
            staged = await self.copied(groups, share, member.name, moves, query, what)
            step = staged.step
            try:
                await asyncio.to_thread(staging.prepare, query, what)
            except BaseException:
                share.finish(step)
                self.keeper.end(query, staged)
                raise
        finally:
            self.keeper.giving.discard(query)
        is_accepted = await self.decided(groups, query, staged)
        if is_accepted:
            for move in moves:
                if member.is_own(move.partition, move.generation):
                    member.commit(move.partition, move.to)
            await self.send_out(query, asked.batch)
        share.finish(step)
        self.keeper.end(query, staged)
        return is_accepted

    async def copied(
        self,
        groups: GroupsElsewhere,
        share: GroupShare,
        member: str,
        moves: list[StepMove],
        query: str,
        what: Decided,
    ) -> StagedStep:
        """A step that another host has, too, if there is another; each host is asked for a step of its own.

        Raises:
            StagingError: none of them answers.
        """
        for keeper in groups.keepers() if groups.has_hosts() else [""]:
            step = share.new_step(member, moves)
            what.step = staged = StagedStep(share.key, step, keeper)
            try:
                if not keeper or await self.keeper.give(query, what):
                    return staged
            except BaseException:
                share.finish(step)
                raise
            share.finish(step)
            self.keeper.end(query, staged)
        raise BusyError("no other host keeps what is to be published")

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
        if is_accepted and staged.step.takes_over is None:
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
        if groups is not None:
            self.keeper.begin(groups)
        for query, each, is_decided in self.sinks.staging.asked():
            assert each.step is not None
            if groups is None:
                if not is_decided:
                    text = "batch %d of query %s waits: only the cluster knows whether it is to be published"
                    log.warning(text, each.batch, query)
            elif not is_decided or each.step.keeper:
                share = groups.share_of(each.step.key)
                share.ask(each.step.step)
                self.sinks.held.add(query)
                work = self.go_on(groups, share, query, each.batch, each.step, is_decided)
                self.keeper.spawn(work)

    async def take_over(self, query: str, staged: StagedStep) -> None:
        """Asks for what a store staged that is lost, and publishes it or throws it away."""
        groups = self.catalog.groups
        if groups is None:
            return
        share, lost = groups.share_of(staged.key), staged.step
        if lost.store == groups.store:
            step = lost  # an earlier life was at it
        else:
            step = share.new_step("heir", lost.moves, (lost.store, lost.number))
        taken = StagedStep(staged.key, step)
        try:
            batch = await asyncio.to_thread(self.keeper.copies.adopt, query, taken)
        except StagingError as error:
            share.finish(step)
            log.error("batch of query %s cannot be taken over yet: %s", query, error)
            self.keeper.keep_on(query, staged)
            return
        log.warning("batch %d of query %s is taken over: %s is lost", batch, query, lost.store)
        share.ask(step)
        await self.go_on(groups, share, query, batch, taken)

    async def go_on(
        self,
        groups: GroupsElsewhere,
        share: GroupShare,
        query: str,
        batch: int,
        staged: StagedStep,
        is_decided: bool = False,
    ) -> None:
        """Asks for one, and publishes it or throws it away. `is_decided`: it was accepted, and may be another's."""
        try:
            if is_decided:
                is_accepted = await groups.decided(staged.key, staged.step)
                if not is_accepted:
                    await asyncio.to_thread(self.sinks.staging.finish, query, batch)
            else:
                is_accepted = await self.decided(groups, query, staged)
            if is_accepted:
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
        self.keeper.end(query, staged)
        await self.sinks.forget(query)

    async def stop(self) -> None:
        """The broker ends: what is not decided waits for the next start."""
        await self.keeper.stop()
