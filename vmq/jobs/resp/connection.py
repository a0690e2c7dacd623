"""A RESP connection: the callbacks of an asyncio transport on one side, the jobs on the other.

Commands are done in the order in which they come. One that waits (GETJOB for a job, any for a plugin's verdict) holds
up those behind it on its connection, and nobody else.
"""

import logging
from collections.abc import Callable
from typing import Any, Final

from mypy_extensions import i64

from vmq.core.limits import RateLimit
from vmq.jobs.options import AddOptions
from vmq.jobs.queue import Job, JobWaiter
from vmq.jobs.queues import JobRefusedError
from vmq.jobs.resp.adding import read_add
from vmq.jobs.resp.door import HEADERS, REPLY_LIMIT, STRANGERS_LIMIT, RespDoor
from vmq.jobs.resp.getting import GetOptions, read_get
from vmq.jobs.resp.reader import RespError, RespReader, TooLargeError
from vmq.jobs.resp.replies import NO_ARRAY, NO_BULK, NOTHING, error, number
from vmq.jobs.resp.user import NOAUTH, WHILE_SHUT, RespUser, check_ids

log = logging.getLogger("vmq.jobs")
#: The work of one pass, in commands: a flood must not hold up the others.
_PASS: Final = 500
#: Arguments that make as much work as a command.
_ARGUMENTS: Final = 8
#: Jobs of one connection that are on their way to other hosts.
_MOST_PROMISED: Final = 1000

_ADD: Final = 1
_GET: Final = 2
_ACK: Final = 3
_AUTH: Final = 4
_HELLO: Final = 5
_QUIT: Final = 6
_OTHER: Final = 7
_CODES: Final = {
    b"ADDJOB": _ADD,
    b"GETJOB": _GET,
    b"ACKJOB": _ACK,
    b"FASTACK": _ACK,
    b"AUTH": _AUTH,
    b"HELLO": _HELLO,
    b"QUIT": _QUIT,
}

_COUNTED: Final = b"\r\n"


class GetWaiter(JobWaiter):
    """A GETJOB that waits."""

    def __init__(self, connection: "RespConnection", options: GetOptions) -> None:
        super().__init__(options.queues, options.count)
        self.connection = connection
        self.with_counters = options.with_counters

    def serve(self, jobs: list[Job]) -> None:
        connection = self.connection
        connection.waiter = None
        connection.give(jobs, self.with_counters)
        connection.wake()

    def give_up(self) -> None:
        connection = self.connection
        connection.waiter = None
        connection.reply(connection.nothing())
        connection.wake()


class RespConnection(RespUser):
    """One client's connection."""

    def __init__(
        self,
        door: RespDoor,
        opened: "Callable[[RespConnection], None]",
        closed: "Callable[[RespConnection], None]",
    ) -> None:
        super().__init__(door)
        self.opened = opened
        self.closed = closed
        self.reader = RespReader(STRANGERS_LIMIT)
        self.protocol: int = 2
        #: As CLIENT SETNAME says.
        self.label: bytes = b""
        self.number: int = 0
        self.since: float = 0.0
        #: The transport takes no more.
        self.socket_full = False
        self.waiter: GetWaiter | None = None
        self.is_due = False
        self.is_paused = False
        self.closing = False
        self.lost = False
        self.byte_rate: RateLimit | None = None
        self.held_back = False
        #: What the pass has done.
        self.work: i64 = 0

    # Callbacks of the transport

    def connection_made(self, transport: Any) -> None:
        self.transport = transport
        core = self.core
        core.counters.socket_open += 1
        self.since = core.clock()
        if self.identity is not None:
            self.username = self.identity
        if self.identity is not None or self.door.is_open():
            self.let_in()
        if core.options.max_byte_rate > 0:
            self.byte_rate = RateLimit(core.options.max_byte_rate, self.since)
        self.opened(self)
        if self.closing:
            self.commit.end_pass(self.commit.clock())

    def let_in(self) -> None:
        super().let_in()
        if self.is_known:
            self.reader.limit = self.door.max_job_size + HEADERS

    def data_received(self, data: bytes) -> None:
        if self.closing:
            return
        core = self.core
        core.counters.bytes_received += len(data)
        core.memory_grown += len(data)
        self.reader.feed(data)
        if self.byte_rate is not None:
            self.hold_back(self.byte_rate.spend(len(data), core.clock()))
        self.run_pass()
        if core.memory_grown > core.memory_room:
            core.memory.look()

    def eof_received(self) -> bool:
        return False

    def send_corked(self) -> None:
        """TLS asks before it closes: each pass has written what it had to tell."""

    def connection_lost(self, error: Exception | None) -> None:
        if self.lost:
            return
        self.lost = True
        self.closing = True
        core = self.core
        core.counters.socket_close += 1
        if error is not None:
            core.counters.socket_error += 1
        self.stop_waiting()
        self.transport = None
        self.closed(self)

    def pause_writing(self) -> None:
        self.socket_full = True

    def resume_writing(self) -> None:
        self.socket_full = False
        self.wake()

    # A pass

    def run_pass(self) -> None:
        """Does commands until there are no more, one waits, or it is somebody else's turn."""
        now = self.commit.clock()
        try:
            self.run_commands(now)
        except RespError as flaw:
            self.core.counters.protocol_errors += 1
            self.reply(error(str(flaw)))
            self.end(str(flaw))
        self.commit.end_pass(now)
        self.look_at_reading()

    def run_commands(self, now: float) -> None:
        reader = self.reader
        self.work = 0
        while self.work < _PASS:
            # While the socket is full, what is told next would only wait in memory.
            if self.waits() or self.closing or self.socket_full:
                return
            if self.unsent > REPLY_LIMIT:
                if self.commit.syncing is None and not self.promised:
                    self.wake()
                return
            argv = self.asked
            self.asked = None
            self.work += 1
            try:
                if argv is None:
                    argv = reader.next()
                    if argv is None:
                        return
                self.work += len(argv) // _ARGUMENTS
                self.run(argv, now)
            except JobRefusedError as refusal:
                self.reply(error(str(refusal)))
            except TooLargeError as flaw:
                self.reply(error(str(flaw)) if self.is_known else NOAUTH)
            if self.has_answer:
                self.take_answer()  # the command had no use for it; the next one is to have none
        self.wake()

    def end_pass(self) -> None:
        """A command that has looked at much is the last one of its pass."""
        self.work = _PASS

    def waits(self) -> bool:
        """Whether a command is under way."""
        if len(self.promised) >= _MOST_PROMISED:
            return True
        return self.waiter is not None or self.pending is not None

    def wake(self) -> None:
        """Has the commands that came go on in the next turn of the event loop."""
        if not self.is_due and not self.lost and not self.closing:
            self.is_due = True
            self.core.call_soon(self.next_pass)

    def next_pass(self) -> None:
        self.is_due = False
        if not self.lost:
            self.run_pass()

    def look_at_reading(self) -> None:
        """A client that sends more than is done of it is not read."""
        transport = self.transport
        if transport is None or self.closing:
            return
        is_held_up = self.waits() or self.socket_full or self.unsent > REPLY_LIMIT
        is_full = (
            self.held_back
            or self.reader.unread() > STRANGERS_LIMIT
            or (is_held_up and self.reader.kept() > STRANGERS_LIMIT)
        )
        if is_full and not self.is_paused:
            self.is_paused = True
            transport.pause_reading()
        elif not is_full and self.is_paused:
            self.is_paused = False
            transport.resume_reading()

    def hold_back(self, wait: float) -> None:
        core = self.core
        if wait > 0.0 and core.call_later is not None and not self.held_back:
            self.held_back = True
            core.counters.rate_limited += 1
            core.call_later(wait, self.read_again)

    def read_again(self) -> None:
        self.held_back = False
        self.look_at_reading()

    # Replies

    def nothing(self) -> bytes:
        """There is no array to give."""
        return NO_ARRAY if self.protocol == 2 else NOTHING

    def write(self, data: bytes) -> None:
        self.unsent -= len(data)
        transport = self.transport
        if transport is None:
            return
        self.core.counters.bytes_sent += len(data)
        transport.write(data)
        if self.closing:
            transport.close()

    def end(self, reason: str) -> None:
        """Ends the connection as soon as what it was told is written."""
        if self.closing:
            return
        self.closing = True
        self.stop_waiting()
        log.info('closed listener=%s peer=%s reason="%s"', self.door.name, self.describe(), reason)
        if not self.is_touched and self.transport is not None:
            self.transport.close()

    def end_if_unknown(self) -> None:
        """Whoever has not said who it is by now goes."""
        if not self.is_known and not self.lost:
            self.core.counters.socket_close_timeout += 1
            self.end("no AUTH within mqtt_connect_timeout")

    def cut(self, reason: str) -> None:
        self.closing = True
        self.stop_waiting()
        if self.transport is not None:
            log.warning(
                'cut off listener=%s peer=%s reason="%s"', self.door.name, self.describe(), reason
            )
            self.transport.abort()

    def stop_waiting(self) -> None:
        if self.waiter is not None:
            self.machine.stop_waiting(self.waiter)
            self.waiter = None
        if self.pending is not None:
            self.pending.then = None
            self.pending.cancel()
            self.pending = None

    def refuse_waiting(self, reason: str) -> None:
        """A GETJOB that waits is answered with an error."""
        if self.waiter is not None:
            self.machine.stop_waiting(self.waiter)
            self.waiter = None
            self.reply(error(reason))
            self.wake()

    def nothing_of(self) -> bytes:
        """There is no value to give."""
        return NO_BULK if self.protocol == 2 else NOTHING

    # Commands

    def run(self, argv: list[bytes], now: float) -> None:
        name = argv[0]
        code = _CODES.get(name, 0)
        if not code:
            code = _CODES.get(name.upper(), _OTHER)
        if not self.is_known and code != _AUTH and code != _HELLO and code != _QUIT:
            self.reply(NOAUTH)
        elif self.core.shut_to_clients and name.upper() not in WHILE_SHUT:
            self.reply(error("CLUSTERDOWN " + self.core.shut_to_clients))
        elif code == _ADD:
            self.on_add(argv, now)
        elif code == _GET:
            self.on_get(argv, now)
        elif code == _ACK:
            self.on_acknowledge(argv)
        elif code == _AUTH:
            self.on_auth(argv)
        elif code == _QUIT:
            self.reply(b"+OK\r\n")
            self.end("QUIT")
        else:
            others = self.door.others
            assert others is not None
            reply = others(self, argv)
            if reply:
                self.reply(reply)

    def on_add(self, argv: list[bytes], now: float) -> None:
        options = read_add(argv)
        name = self.door.prefix + options.queue if self.door.prefix else options.queue
        if self.door.hooks.auth_on_publish is not None and not self.may_add(argv, options.queue):
            return
        reply = self.added(options, argv[2], name, now)
        if self.machine.unsettled:
            self.reply_when_copied(options, reply, now)
        else:
            self.reply(reply)

    def added(self, options: AddOptions, body: bytes, name: bytes, now: float) -> bytes:
        """Adds one job; the reply is its id."""
        queue = self.machine.queue(name, now, self.username or "")
        if self.core.memory_is_high:
            raise JobRefusedError("OOM memory is above limits.max_memory")
        self.commit.check_disk(queue.rules.persistence)
        if len(body) > self.door.max_job_size:
            raise JobRefusedError(f"TOOBIG {len(body)} bytes are above limits.max_job_size")
        job = self.machine.add(
            queue,
            body,
            now,
            options.ttl,
            options.retry,
            options.delay,
            options.priority,
            options.maxlen,
            options.key,
            options.replicate,
        )
        return b"+" + job.id + b"\r\n"

    def on_get(self, argv: list[bytes], now: float) -> None:
        if self.door.hooks.auth_on_subscribe is not None and not self.may_get(argv):
            return
        options = read_get(argv, self.machine, self.door.prefix, now, self.username or "")
        queues = options.queues
        if options.count == 1 and len(queues) == 1:
            job = self.machine.take(queues[0], now)
            if job is not None:
                if job.body is None:
                    self.give([job], options.with_counters)
                else:
                    self.give_one(job, job.body, options.with_counters, True)
                return
        else:
            jobs = self.machine.take_some(queues, options.count, now)
            if jobs:
                self.give(jobs, options.with_counters)
                return
        if options.nohang:
            self.reply(self.nothing())
            return
        if self.machine.sharing.is_leaving:
            raise JobRefusedError("LEAVING this node is leaving the cluster")
        self.waiter = waiter = GetWaiter(self, options)
        until = now + options.timeout / 1000 if options.timeout else float("inf")
        self.machine.wait(waiter, until, now)

    def give(self, jobs: list[Job], with_counters: bool) -> None:
        """Tells of jobs that are its to do now. One that cannot be read is given again after its RETRY."""
        bodies: list[bytes | None] = []
        count = 0
        for job in jobs:
            body = job.body
            if body is None:
                body = self.read(job)
            bodies.append(body)
            if body is not None:
                count += 1
        if not count:
            self.reply(
                error("IOERR a job cannot be read from disk; it is given again after its RETRY")
            )
            return
        self.reply(b"*%d\r\n" % count)
        for place, job in enumerate(jobs):
            found = bodies[place]
            if found is not None:
                self.give_one(job, found, with_counters, False)

    def give_one(self, job: Job, body: bytes, with_counters: bool, is_alone: bool) -> None:
        queue = job.queue
        head = queue.reply_head
        if not head:
            name = queue.name[len(self.door.prefix) :]
            queue.reply_head = head = b"$%d\r\n%b\r\n$40\r\n" % (len(name), name)
        lead = b"*7\r\n" if with_counters else b"*3\r\n"
        if is_alone:
            lead = b"*1\r\n" + lead
        pieces = self.promised[-1].after if self.promised else self.pieces
        pieces.append(lead)
        pieces.append(head)
        pieces.append(job.id)
        pieces.append(_length(len(body)))
        pieces.append(body)
        pieces.append(_COUNTED)
        size = len(lead) + len(head) + 42 + len(_length(len(body))) + len(body)
        self.unsent += size
        if with_counters:
            counters = (
                b"$5\r\nnacks\r\n"
                + number(job.nacks)
                + b"$21\r\nadditional-deliveries\r\n"
                + number(job.repeats)
            )
            self.reply(counters)
        if not self.promised:
            self.commit.touch(self)

    def read(self, job: Job) -> bytes | None:
        """The body of a job that is on disk only; None: it cannot be read."""
        try:
            return self.commit.writer.body(job)
        except OSError as failure:
            log.error("job %s cannot be read: %s", job.id.decode("latin-1"), failure)
            return None

    def on_acknowledge(self, argv: list[bytes]) -> None:
        count: i64 = len(argv)
        if count == 1:
            raise JobRefusedError("ERR wrong number of arguments for 'ackjob' command")
        machine = self.machine
        if self.door.hooks.auth_on_subscribe is not None and not self.may_touch(argv):
            return
        check_ids(argv)
        found: i64 = 0
        prefix = self.door.prefix
        is_on = machine.sharing.is_on
        for at in range(1, count):
            if prefix and not self.is_here(argv[at]):
                continue
            if machine.acknowledge(argv[at]):
                found += 1
            elif is_on and self.may_take_all():
                machine.sharing.acknowledge_unknown(argv[at])  # another node may have it
        if count > _ARGUMENTS:
            self.work += count  # an id is as much work as a command
        self.reply(b":1\r\n" if found == 1 else number(found))

    def is_here(self, job_id: bytes) -> bool:
        """Whether a job is in a queue of the listener's mountpoint, or nowhere."""
        job = self.machine.find(job_id)
        return job is None or job.queue.name.startswith(self.door.prefix)


_LENGTHS: Final = [b"\r\n$%d\r\n" % size for size in range(4096)]


def _length(size: int) -> bytes:
    """What stands between the id of a job and its body."""
    return _LENGTHS[size] if size < 4096 else b"\r\n$%d\r\n" % size
