"""Programs that are members of consumer groups, by Flight: in the event loop, beside the clients of MQTT.

A program that says nothing for `WAIT` seconds is a member no more; it stops handing over rows before that, since each
answer is a lease for less.
"""

import asyncio
import logging
import secrets
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from pathlib import Path
from typing import Final

import msgspec

from vmq.mqtt.special import SpecialTopicError, encode_level
from vmq.streams.catalog import Stream
from vmq.streams.flight.access import Access, OwnAccess
from vmq.streams.flight.groups import (
    Asked,
    BeatQuery,
    GivenPart,
    GroupAnswer,
    GroupPublishQuery,
    JoinQuery,
    LeaveQuery,
    UnknownMemberError,
    no_right,
)
from vmq.streams.flight.sink import member_query
from vmq.streams.flight.tickets import BadTicketError
from vmq.streams.groups.coordinator import WAIT
from vmq.streams.log.columns import Projection
from vmq.streams.log.conditions import Condition
from vmq.streams.log.errors import PassingError, StreamError
from vmq.streams.logs import LogsAnywhere
from vmq.streams.reader_places import CursorError, CursorKey, Place
from vmq.streams.replay.cursors import Cursors
from vmq.streams.replay.group import ConsumerGroup
from vmq.streams.replay.group_request import GroupRequest
from vmq.streams.replay.groups import deleted
from vmq.streams.replay.keeping import FILE
from vmq.streams.replay.port import StreamReaders
from vmq.streams.replay.program import ProgramMember
from vmq.streams.replay.reading import ReplayReader
from vmq.streams.replay.replay import ReplayStart
from vmq.streams.serving.sinks import RETRY_AFTER, SinkCursor, Sinks
from vmq.streams.serving.steps import GroupSteps
from vmq.streams.staging.parts import MEMBERS, Staging
from vmq.streams.staging.state import BusyError, StagedCursor

log = logging.getLogger("vmq.streams")

#: Seconds between two beats of a member: ordinarily, and while a group is being shared out.
_AGAIN: Final = 1.0
_SOON: Final = 0.1
_SETTLES: Final = 10.0
#: Seconds after which it is asked again whether a user may be a member.
_JUDGED_FOR: Final = 10.0
#: Members of one user.
MOST_OF_USER: Final = 200


class Judged(msgspec.Struct):
    """By which right a member is one, and when that was asked last."""

    access: Access
    filters: Sequence[str]
    at: float


class Programs:
    """The programs of a broker.

    Args:
        readers: the readers of its streams.
        sinks: publishes what goes with a commit.
    """

    def __init__(self, readers: StreamReaders, sinks: Sinks) -> None:
        self.readers = readers
        self.sinks = sinks
        self.steps = GroupSteps(readers.catalog, sinks)
        self.loop = asyncio.get_running_loop()
        self.members: dict[str, ProgramMember] = {}
        self.judged: dict[str, Judged] = {}
        self.timer: asyncio.TimerHandle | None = None
        self.forgetting: set[asyncio.Task[None]] = set()
        readers.groups.on_left = self.end

    def ask(self, access: Access, user: str | None, asked: Asked) -> "Future[GroupAnswer]":
        """An answer, from the event loop; asked in another thread.

        Raises:
            FlightUnauthorizedError: the user may not be a member, or not any more.
            StreamError: it cannot be answered.
        """
        if isinstance(asked, JoinQuery):
            answer = self.join(self.judge(access, user, asked), user, asked)
        elif isinstance(asked, BeatQuery):
            answer = self.beat(user, asked, self.still_may(user, asked.member))
        elif isinstance(asked, GroupPublishQuery):
            answer = self.publish(user, asked)
        else:
            answer = self.leave(user, asked)
        try:
            return asyncio.run_coroutine_threadsafe(answer, self.loop)
        except RuntimeError:
            answer.close()
            raise PassingError("the broker ends") from None

    def judge(self, access: Access, user: str | None, asked: JoinQuery) -> "Judged":
        """By which right a user may join."""
        stream = self.readers.catalog.streams.get(asked.stream)
        filters = ["#"] if stream is None else stream.filters_of(asked.filter)
        judged = Judged(access, filters, self.readers.core.clock())
        if not access.may_read(user, filters, asked.group):
            raise no_right(user, asked.group, " ".join(filters))
        return judged

    def still_may(self, user: str | None, name: str) -> bool:
        """Whether a member may be one; asked now and then."""
        judged, member = self.judged.get(name), self.members.get(name)
        now = self.readers.core.clock()
        if judged is None or member is None or now < judged.at + _JUDGED_FOR:
            return True
        judged.at = now
        return judged.access.may_read(user, judged.filters, member.group.request.group)

    # What they say

    async def join(self, judged: Judged, user: str | None, asked: JoinQuery) -> GroupAnswer:
        """Makes a program a member.

        Raises:
            StreamError: it cannot be one.
        """
        readers = self.readers
        own = isinstance(judged.access, OwnAccess)
        request = request_of(asked, readers.core.wall_clock(), is_mapping=own)
        try:
            stream = request.stream_of(readers.catalog.streams)
        except SpecialTopicError as error:
            raise BadTicketError(str(error)) from None
        Projection(None, asked.filter, stream.options.typed, asked.where)  # refuses what gets would
        start = ReplayStart(request, stream)
        start.key = request.key()
        await self.loop.run_in_executor(None, self.look, start, stream)
        flaw = deleted(stream) if stream.gone else readers.groups.limit()
        if sum(each.user == user for each in self.members.values()) >= MOST_OF_USER:
            flaw = flaw or f"{MOST_OF_USER} programs of this user are members of groups already"
        if flaw:
            raise StreamError(flaw)
        member = ProgramMember(secrets.token_hex(16), user, readers.groups.group_of(start))
        self.members[member.name] = member
        self.judged[member.name] = judged
        readers.groups.join(member)
        readers.keeping.begin()
        if self.timer is None:
            self.timer = self.loop.call_later(_AGAIN, self.look_at_all)
        return self.answer(member)

    async def beat(self, user: str | None, asked: BeatQuery, still_may: bool) -> GroupAnswer:
        """A member is there; what it commits is as safe as cursors are when it is answered.

        Raises:
            StreamError: it is none any more, or that cannot be kept now.
        """
        member = self.member(user, asked.member)
        group = member.group
        if not still_may:
            self.end(member)
            raise no_right(user, group.request.group, "what it reads")
        member.heard = self.readers.core.clock()
        member.hand_over(asked.has)
        member.seen = asked.ends
        for number, generation in asked.back.items():
            member.give_back(number, generation)
        own, fenced = own_of(member, asked.commit)
        for number in own:
            member.commit(number, asked.commit[number][1])
        if own:
            await self.readers.groups.keep(group)
            fenced += [number for number in own if group.has_lost(number, own[number])]
        self.readers.groups.on_heard(member, has_committed=bool(asked.commit))
        return self.answer(self.member(user, asked.member), fenced)

    async def publish(self, user: str | None, asked: GroupPublishQuery) -> GroupAnswer:
        """Publishes what a member has staged and moves its cursors, both or neither.

        Raises:
            StreamError: it is none any more, or neither can be done.
        """
        member = self.member(user, asked.member)
        member.heard = self.readers.core.clock()
        if member.publishing is None and asked.batch > member.published:
            own, fenced = own_of(member, asked.commit)
            fenced += [
                number
                for number, since in asked.since.items()
                if number in own and member.parts[number].done != since
            ]
            if fenced:
                query = member_query(member.name)
                await asyncio.to_thread(self.sinks.staging.discard, query, asked.batch)
                self.readers.groups.on_heard(member, has_committed=True)
                return self.answer(member, fenced)
            member.batch = asked.batch
            member.busy = set(asked.commit)
            member.publishing = self.loop.create_task(self.publish_batch(member, asked))
            member.publishing.add_done_callback(lambda done: done.cancelled() or done.exception())
        if member.publishing is not None:
            if member.batch != asked.batch:
                raise PassingError(f"batch {member.batch} is being published: try again")
            publishing = member.publishing
            await asyncio.wait([publishing])
            if publishing.cancelled():
                raise PassingError(
                    "the broker ends: what is decided is published after its next start"
                )
            return self.answer(member, publishing.result())
        # The answer was lost, and its parts were staged again.
        await asyncio.to_thread(self.sinks.staging.discard, member_query(member.name), asked.batch)
        return self.answer(member)

    async def publish_batch(self, member: ProgramMember, asked: GroupPublishQuery) -> list[int]:
        """Publishes a batch; once it is decided, to its end. The partitions stay the member's meanwhile.

        Returns the partitions that are another's: then nothing is published.
        """
        share, groups = member.group.share, self.readers.catalog.groups
        try:
            if share is None or groups is None:
                await self.publish_alone(member, asked)
            elif not await self.steps.publish(groups, share, member, asked):
                return list(asked.commit)
            member.published = asked.batch
            return []
        finally:
            member.busy.clear()
            member.publishing = None
            if member.is_ending and member.name in self.members:
                self.end(member)
            else:
                self.readers.groups.on_heard(member, has_committed=True)

    async def publish_alone(self, member: ProgramMember, asked: GroupPublishQuery) -> None:
        """Publishes a batch of a broker that keeps its groups itself."""
        query, group = member_query(member.name), member.group

        async def move() -> None:
            for number, (_, position) in asked.commit.items():
                member.commit(number, position)
            if group.key is None:
                return  # of a stream that was deleted
            try:
                await self.readers.keeping.write(group, is_synced=True)
            except CursorError as error:
                raise BusyError(str(error)) from None

        cursor = SinkCursor(staged_cursor(group, asked.commit), move)
        while True:
            try:
                await self.sinks.publish_once(query, asked.batch, asked.parts, cursor)
                return
            except BusyError as error:
                decided = await asyncio.to_thread(self.sinks.staging.decided, query)
                if decided != asked.batch or self.sinks.is_stopping:
                    raise
                log.warning("batch %d of query %s has to wait: %s", asked.batch, query, error)
                await asyncio.sleep(RETRY_AFTER)

    async def leave(self, user: str | None, asked: LeaveQuery) -> GroupAnswer:
        """A program is a member no more.

        Raises:
            StreamError: it was none.
        """
        member = self.member(user, asked.member)
        member.hand_over(asked.has)
        self.end(member)
        return self.answer(member)

    def member(self, user: str | None, name: str) -> ProgramMember:
        """The member of a name, which is its own user's.

        Raises:
            UnknownMemberError: there is none.
        """
        member = self.members.get(name)
        if member is None or member.user != user:
            raise UnknownMemberError("this member is not known, or not any more: join again")
        if member.error:
            raise StreamError(member.error)
        return member

    def answer(self, member: ProgramMember, fenced: Sequence[int] = ()) -> GroupAnswer:
        """What it has."""
        now = self.readers.core.clock()
        group = member.group
        group.may_send()  # a lease that is over takes away
        parts = {
            number: GivenPart(part.generation, part.done, part.rows, number in member.leaving)
            for number, part in member.parts.items()
        }
        moves = any(each.leaving for each in group.members.values())
        waits = not parts and now - member.joined < _SETTLES
        again = _SOON if moves or waits else _AGAIN
        return GroupAnswer(member.name, member.lease(now), again, parts, list(fenced))

    # Time

    def look_at_all(self) -> None:
        """Who is silent is gone."""
        self.timer = None
        now = self.readers.core.clock()
        for member in list(self.members.values()):
            if now - member.heard > WAIT and not member.busy:
                text = "group=%s: client=%s is a member no more: it says nothing"
                log.warning(text, member.group.request.group, member.client_id)
                member.vanish()
                self.end(member)
        if self.members:
            self.timer = self.loop.call_later(_AGAIN, self.look_at_all)

    def end(self, member: ProgramMember) -> None:
        """One is gone: others have what it had, once it publishes nothing any more."""
        if member.busy:
            member.is_ending = True
            return
        if member.batch >= 0:
            forgetting = self.loop.create_task(self.sinks.forget(member_query(member.name)))
            self.forgetting.add(forgetting)
            forgetting.add_done_callback(self.forgetting.discard)
        del self.members[member.name]
        del self.judged[member.name]
        self.readers.groups.leave(member)

    async def stop(self) -> None:
        """The broker ends: sinks publish nothing any more."""
        if self.timer is not None:
            self.timer.cancel()
        await self.steps.stop()
        works = [each.publishing for each in self.members.values() if each.publishing is not None]
        for work in works if self.readers.catalog.groups is not None else ():
            work.cancel()  # the coordinator may not answer; what it decides is asked for after the next start
        await asyncio.gather(*works, return_exceptions=True)
        for member in list(self.members.values()):
            self.end(member)
        await asyncio.gather(*self.forgetting)

    # In a thread

    def look(self, start: ReplayStart, stream: Stream) -> None:
        """Finds where a group is, or begins.

        Raises:
            StreamError: that cannot be had.
        """
        assert start.key is not None
        readers = self.readers
        try:
            start.place = readers.keeping.find(start.key, stream.ref)
        except CursorError as error:
            raise StreamError(str(error)) from None
        known: Mapping[int, int] | None = None if start.place is None else start.place.positions
        logs = LogsAnywhere(stream, readers.catalog.places)
        reader = ReplayReader(logs, stream.name, start.request.filter)
        start.starts = reader.begin(start.request.start, known)


def own_of(
    member: ProgramMember, commit: Mapping[int, tuple[int, int]]
) -> tuple[dict[int, int], list[int]]:
    """The generations of those partitions of a commit that the member has, and the others."""
    own = {
        number: generation
        for number, (generation, _) in commit.items()
        if member.is_own(number, generation)
    }
    return own, [number for number in commit if number not in own]


def staged_cursor(group: ConsumerGroup, commit: Mapping[int, tuple[int, int]]) -> StagedCursor:
    """How the cursor of a group is to move."""
    key = group.request.key()
    moved = {number: position for number, (_, position) in commit.items()}
    return StagedCursor(*key, group.stream.ref.text, dict(group.place().positions), moved)


def recover_cursors(staging: Staging, folder: Path) -> None:
    """Moves the cursors that go with batches of a broker that was killed, and forgets what was not decided.

    Before anybody reads by them.

    Raises:
        StreamError: that cannot be done.
    """
    moving = list(staging.cursors())
    try:
        if moving:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            cursors = Cursors(folder / FILE)
            for query, each in moving:
                place = Place(each.positions, {})
                cursors.advance(CursorKey(each.owner, each.name), each.stream, place, each.moved)
                staging.settle_cursor(query)
            cursors.close()
    except (CursorError, OSError) as error:
        raise StreamError(f"the cursors of groups cannot be used: {error}") from None
    for path in staging.folder.glob(f"{MEMBERS}*"):
        staging.forget(path.name)


def request_of(asked: JoinQuery, now: float, *, is_mapping: bool = False) -> GroupRequest:
    """What a program asks for, as a client of MQTT would.

    Raises:
        BadTicketError: it means nothing; the text says what is accepted.
    """
    group, stream = encode_level(asked.group), encode_level(asked.stream)
    start = encode_level(asked.start)
    try:
        text = f"$share/{group}/$stream/{stream};from={start}/{asked.filter}"
        request = GroupRequest(text, now, is_mapping=is_mapping)
    except SpecialTopicError as error:
        raise BadTicketError(str(error)) from None
    if asked.where:
        # No expression of CEL is of this form: no client of MQTT is in the same group by chance.
        request.where = f"conditions {conditions_text(asked.where)}"
    return request


def conditions_text(where: Sequence[Condition]) -> str:
    """Conditions, in whatever order, as one text."""
    return msgspec.json.encode(sorted(where, key=msgspec.json.encode)).decode()
