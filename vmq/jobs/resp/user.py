"""Somebody at a RESP listener: who it is, and what it may do. The plugins decide, as they do for MQTT clients.

To add to a queue is to publish to `$jobs/QUEUE`, to take from it and to look at it is to subscribe to it.
"""

import logging
from typing import Any, Final, Literal

from mypy_extensions import i64
from vmq_hooks.modifiers import RegisterModifiers
from vmq_hooks.types import REFUSED_QOS, Message, Peer, SubscriberId, Subscription
from vmq_hooks.verdicts import Refuse

from vmq.core.hook_sites import Answer, Pending
from vmq.jobs.commit import JobOutput
from vmq.jobs.machine import JobMachine
from vmq.jobs.options import AddOptions
from vmq.jobs.queue import WAITING, Job
from vmq.jobs.queues import JobRefusedError
from vmq.jobs.resp.door import RespDoor
from vmq.jobs.resp.replies import error
from vmq.jobs.stock import NO_HOSTS
from vmq.mqtt.special import JOBS, encode_level
from vmq.protocol.connection import split_peer
from vmq.protocol.refusals import NOBODY

log = logging.getLogger("vmq.jobs")

#: Seconds that a client which sets no limit waits until a job is on its hosts.
PATIENCE: Final = 30.0
#: What a client may do on a queue that it has the right of.
ADD: Final = "add"
TAKE: Final = "take"
INSPECT: Final = "inspect"
#: What is told who has not said who it is.
NOAUTH: Final = error("NOAUTH Authentication required.")
AUTHENTICATE: Final = "authenticate"
#: What is answered, too, while the node has no place in its cluster: clients find out why, operators mend it.
WHILE_SHUT: Final = frozenset(
    b"AUTH HELLO QUIT PING ECHO SELECT CLIENT COMMAND INFO CONFIG CLUSTER SHUTDOWN".split()
)


class PromisedReply:
    """A reply that is not known yet, and those behind it."""

    def __init__(self) -> None:
        self.data: bytes = b""
        self.is_known = False
        self.after: list[bytes] = []


class RespUser(JobOutput):
    """The client of a connection, as plugins know it. Subclasses read and write."""

    def __init__(self, door: RespDoor) -> None:
        super().__init__()
        self.door = door
        self.core = door.core
        self.commit = door.commit
        self.machine = door.commit.machine
        self.transport: Any = None
        #: It has said who it is, or need not.
        self.is_known = False
        self.username: str | None = None
        #: The name of its TLS certificate.
        self.identity: str | None = None
        self.peer = ""
        self.network = ""
        #: Bytes of replies that are not with the transport yet.
        self.unsent: i64 = 0
        #: Replies that are not known yet, in order: those of jobs on their way to other hosts.
        self.promised: list[PromisedReply] = []
        #: A plugin's verdict is awaited; the command that asked for it is done anew with the answer.
        self.pending: Pending | None = None
        self.asked: list[bytes] | None = None
        self.answer: Answer = None
        self.has_answer = False
        #: What the verdict is about. Jobs may have moved until it comes: for anything else it is no answer.
        self.question: object = None

    def wake(self) -> None:
        """Has the commands that came go on in the next turn of the event loop."""

    def end(self, reason: str) -> None:
        """Ends the connection as soon as what it was told is written."""

    def reply(self, data: bytes) -> None:
        self.unsent += len(data)
        if self.promised:
            self.promised[-1].after.append(data)
            return
        self.pieces.append(data)
        if not self.is_touched:
            self.is_touched = True
            self.commit.touched.append(self)

    def promise(self) -> PromisedReply:
        """A reply in this place, which is to be known later."""
        found = PromisedReply()
        self.promised.append(found)
        return found

    def keep(self, promise: PromisedReply, data: bytes) -> None:
        """A promised reply is known; those before it may not be."""
        promise.data = data
        promise.is_known = True
        self.unsent += len(data)
        promised = self.promised
        if not promised[0].is_known:
            return
        count = 0
        while count < len(promised) and promised[count].is_known:
            each = promised[count]
            self.pieces.append(each.data)
            self.pieces.extend(each.after)
            count += 1
        del promised[:count]
        self.commit.touch(self)
        self.wake()

    def reply_when_copied(self, options: AddOptions, data: bytes, now: float) -> None:
        """Answers once what was just added is on its hosts, or that it is not to be."""
        machine = self.machine
        jobs = unsettled(machine, options.is_async, now)
        if not jobs:
            self.reply(data)
            return
        promise = self.promise()
        refusal = error(NO_HOSTS)

        def told(is_there: bool) -> None:
            twin = jobs[0].twin
            found = b"+" + twin + b"\r\n" if twin else data
            self.keep(promise, found if is_there else refusal)

        machine.sharing.wait(jobs, patience(options, now), told)

    def describe(self) -> str:
        """The peer, for logs and plugins."""
        if not self.peer and self.transport is not None:
            address = self.transport.get_extra_info("peername")
            if isinstance(address, tuple):
                host = str(address[0])
                self.peer = f"[{host}]:{address[1]}" if ":" in host else f"{host}:{address[1]}"
        return self.peer

    def let_in(self) -> None:
        """It is known who it is; the operator may have banned that."""
        reason = self.core.bans.refusal("", self.username, split_peer(self.describe())[0])
        if reason:
            self.core.counters.banned_refused += 1
            self.is_known = False
            self.reply(error("NOPERM " + reason))
            self.end(reason)
            return
        self.is_known = True

    def on_auth(self, argv: list[bytes]) -> None:
        if len(argv) not in {2, 3}:
            raise JobRefusedError("ERR wrong number of arguments for 'auth' command")
        user = argv[1] if len(argv) == 3 else b"default"
        verdict = self.authenticate(argv, user, argv[-1])
        if verdict:
            self.reply(b"+OK\r\n" if verdict == "+" else error(verdict))

    def authenticate(self, argv: list[bytes], user: bytes, password: bytes) -> str:
        """Asks who somebody is: "+", the error, or nothing yet (the command is done anew, then)."""
        hook = self.door.hooks.auth_on_register
        question = (AUTHENTICATE, user, password)
        if self.is_answered(question):
            answer = self.take_answer()
        elif hook is None:
            if self.door.is_open():
                return "ERR Client sent AUTH, but no password is set"
            return "WRONGPASS nobody here knows users: no plugin authenticates"
        else:
            try:
                name = user.decode()
            except UnicodeDecodeError:
                return "WRONGPASS invalid username-password pair"
            self.username = name
            answer = hook(self.seen_peer(), self.identity_of(name), name, password, True)
            if isinstance(answer, Pending):
                self.suspend(argv, answer, question)
                return ""
        if isinstance(answer, Refuse):
            self.username = None
            self.is_known = False
            text = 'refused user="%s" listener=%s peer=%s reason="%s" plugin=%s'
            values = (user.decode("utf-8", "replace")[:100], self.door.name, self.describe())
            log.warning(text, *values, answer.reason, answer.plugin or NOBODY)
            return "WRONGPASS invalid username-password pair or user is disabled."
        if isinstance(answer, RegisterModifiers) and answer.username is not None:
            self.username = answer.username
        self.let_in()
        return "+" if self.is_known else ""  # who is banned was told so

    def seen_peer(self) -> Peer:
        host, port = split_peer(self.describe())
        transport: Literal["tls", "tcp"] = "tls" if self.door.is_tls else "tcp"
        return Peer(host, port, self.door.name, transport, self.identity, self.network)

    def identity_of(self, user: str | None) -> SubscriberId:
        """Who a client is to plugins: no MQTT client has this id."""
        return SubscriberId("resp:" + (user or ""), self.door.mountpoint)

    def suspend(self, argv: list[bytes], pending: Pending, question: object) -> None:
        """A verdict on something is still to come; the command is done anew with it."""
        self.asked = argv
        self.pending = pending
        self.question = question
        pending.then = self.on_answer

    def on_answer(self, answer: Answer) -> None:
        self.pending = None
        self.answer = answer
        self.has_answer = True
        self.wake()

    def is_answered(self, question: object) -> bool:
        """Whether the verdict that came is one on this; any other is of no use any more."""
        if self.has_answer and self.question != question:
            self.take_answer()
        return self.has_answer

    def take_answer(self) -> Answer:
        """The verdict, which counts once; also that of a command which ended without a use for it."""
        answer = self.answer
        self.answer = None
        self.question = None
        self.has_answer = False
        return answer

    # Rights

    def may_add(self, argv: list[bytes], queue: bytes) -> bool:
        """Whether it may add to a queue; if not, it was told so, or the verdict is still to come."""
        question = (ADD, queue)
        if self.is_answered(question):
            answer = self.take_answer()
        else:
            hook = self.door.hooks.auth_on_publish
            assert hook is not None
            message = Message(topic_of(queue), argv[2], 1, False, ADD)
            answer = hook(self.username, self.identity_of(self.username), message)
            if isinstance(answer, Pending):
                self.suspend(argv, answer, question)
                return False
        return self.is_granted(answer, ADD, queue)

    def may_get(self, argv: list[bytes]) -> bool:
        """Whether it may take from the queues of a GETJOB."""
        for at, word in enumerate(argv):
            if word.upper() == b"FROM":
                return self.may_take(argv, argv[at + 1 :])
        return True  # the command is wrong, and will be refused for that

    def may_touch(self, argv: list[bytes], action: str = TAKE) -> bool:
        """Whether it may take from the queues of the jobs that a command names, or look into them."""
        queues: list[bytes] = []
        for job_id in argv[1:]:
            job = self.machine.find(job_id)
            if job is not None:
                name = job.queue.name[len(self.door.prefix) :]
                if name not in queues:
                    queues.append(name)
        return not queues or self.may_take(argv, queues, action)

    def may_take(self, argv: list[bytes], queues: list[bytes], action: str = TAKE) -> bool:
        """Whether it may take from all of some queues, or look into them."""
        wanted = [Subscription(topic_of(each), 1, action) for each in queues]
        return self.decide(argv, wanted, b" ".join(queues[:5]))

    def decide(self, argv: list[bytes], wanted: list[Subscription], queues: bytes) -> bool:
        question = tuple(wanted)
        if self.is_answered(question):
            answer = self.take_answer()
        else:
            hook = self.door.hooks.auth_on_subscribe
            if hook is None:
                return True
            answer = hook(self.username, self.identity_of(self.username), wanted)
            if isinstance(answer, Pending):
                self.suspend(argv, answer, question)
                return False
        if isinstance(answer, list):
            for had, now in zip(wanted, answer, strict=True):
                if now.qos == REFUSED_QOS or now.topic_filter != had.topic_filter:
                    answer = Refuse("not allowed")
                    break
        return self.is_granted(answer, wanted[0].action, queues)

    def may_take_all(self) -> bool:
        """Whether it may take from every queue: no queue is known of a job that is not here. A late verdict is no."""
        hook = self.door.hooks.auth_on_subscribe
        if hook is None:
            return True
        wanted = [Subscription("$jobs/#", 1, TAKE)]
        answer = hook(self.username, self.identity_of(self.username), wanted)
        if isinstance(answer, Pending):
            answer.cancel()
            return False
        if isinstance(answer, list):
            return bool(answer[0].qos != REFUSED_QOS and answer[0].topic_filter == "$jobs/#")
        return not isinstance(answer, Refuse)

    def may_inspect(self, argv: list[bytes]) -> bool:
        """Whether it may look at the queues of everybody."""
        if self.door.hooks.auth_on_subscribe is None:
            return True
        wanted = [Subscription("$jobs/#", 1, INSPECT)]
        return self.decide(argv, wanted, b"*")

    def is_granted(self, answer: Answer, right: str, queue: bytes) -> bool:
        if not isinstance(answer, Refuse):
            return True
        shown = queue.decode("utf-8", "replace")[:200]
        text = 'refused right=%s user="%s" queue="%s" plugin=%s reason="%s"'
        who = (self.username or "", shown, answer.plugin or NOBODY)
        log.info(text, right, *who, answer.reason)
        self.reply(error("NOPERM this user has no right to " + right + " here"))
        return False


def unsettled(machine: JobMachine, is_async: bool, now: float) -> list[Job]:
    """What was just added and is not on its hosts; where nobody waits for that, it is queued all the same."""
    jobs = machine.waited_for()
    if not is_async:
        return jobs
    for each in jobs:
        if each.state != WAITING:
            continue
        if not each.key or not machine.sharing.asks_for(each.key):
            machine.settle(each, now)
        else:
            machine.keep(each)
            # Its client counts on it, whoever else waits for it and gives up.
            each.is_vouched = True
    return []


def patience(options: AddOptions, now: float) -> float:
    """Until when a client waits for a job to be on its hosts."""
    return now + (options.timeout / 1000 if options.timeout else PATIENCE)


def topic_of(queue: bytes) -> str:
    """A queue as plugins see it."""
    return JOBS + encode_level(queue.decode("utf-8", "replace"))


def check_ids(argv: list[bytes]) -> None:
    """Refuses what is no job id.

    Raises:
        JobRefusedError: one is none.
    """
    for at in range(1, len(argv)):
        job_id = argv[at]
        if len(job_id) != 40 or job_id[:2] != b"D-":
            raise JobRefusedError("BADID Invalid Job ID format.")
