"""The commands that are not on the path of every job: looking, moving, pausing, and what Redis clients say first."""

import re
from collections.abc import Callable
from fnmatch import translate
from functools import partial
from typing import Final

from vmq.jobs.options import AddOptions, check_queue, whole
from vmq.jobs.queue import ACKED, Job
from vmq.jobs.queues import JobRefusedError
from vmq.jobs.resp.adding import read_options
from vmq.jobs.resp.cluster import cluster, mending, nodes
from vmq.jobs.resp.connection import RespConnection
from vmq.jobs.resp.flushing import JobFlush
from vmq.jobs.resp.replies import (
    NO_ARRAY,
    NO_BULK,
    OK,
    array,
    bulk,
    error,
    number,
    pairs,
    strings,
)
from vmq.jobs.resp.scanning import jscan, qscan
from vmq.jobs.resp.shown import shown, stat
from vmq.jobs.resp.user import INSPECT, NOAUTH, TAKE, check_ids, patience, unsettled
from vmq.jobs.stock import NO_HOSTS
from vmq.version import __version__

Command = Callable[[RespConnection, list[bytes]], bytes]

#: Jobs that QPEEK shows at most.
_MOST_PEEKED: Final = 1000
#: Bytes of a pattern. Longer ones take long to compile; and `fnmatch` would remember thousands of them.
_LONGEST_PATTERN: Final = 64
_PROTOCOLS: Final = (b"2", b"3")
_NO_ADMIN: Final = "NOPERM this listener has no admin = true"


def run(connection: RespConnection, argv: list[bytes]) -> bytes:
    """Does a command; the reply, or nothing if the command waits."""
    name = argv[0].upper()
    found = COMMANDS.get(name)
    if found is None:
        shown_name = argv[0][:64].decode("utf-8", "replace")
        return error(f"ERR unknown command '{shown_name}'")
    command, least, most = found
    if not least <= len(argv) - 1 <= most:
        return error(f"ERR wrong number of arguments for '{name.decode().lower()}' command")
    return command(connection, argv)


# Jobs


def addjobs(connection: RespConnection, argv: list[bytes]) -> bytes:
    """ADDJOBS queue ms-timeout [option ...] JOBS body ...: an id or an error for each job."""
    options = AddOptions(argv[1])
    check_queue(argv[1])
    options.timeout = whole(argv[2], "ERR timeout is not an integer or out of range", 0)
    at = read_options(options, argv, 3)
    if at + 1 >= len(argv):
        raise JobRefusedError("ERR syntax error: ADDJOBS ends with JOBS body ...")
    if options.key:
        raise JobRefusedError("ERR ADDJOBS takes no KEY: it is one job's")
    door = connection.door
    if door.hooks.auth_on_publish is not None and not connection.may_add(argv, argv[1]):
        return b""
    now = connection.commit.clock()
    items: list[bytes] = []
    waiting: list[tuple[int, list[Job]]] = []
    for body in argv[at + 1 :]:
        try:
            items.append(connection.added(options, body, door.prefix + argv[1], now))
        except JobRefusedError as refusal:
            items.append(error(str(refusal)))
            continue
        jobs = unsettled(connection.machine, options.is_async, now)
        if jobs:
            waiting.append((len(items) - 1, jobs))
    if not waiting:
        return array(items)
    promise = connection.promise()
    left = {place for place, _ in waiting}

    def told(place: int, is_there: bool) -> None:
        left.discard(place)
        if not is_there:
            items[place] = error(NO_HOSTS)
        if not left:
            connection.keep(promise, array(items))

    for place, jobs in waiting:
        until = patience(options, now)
        connection.machine.sharing.wait(jobs, until, partial(told, place))
    return b""


def _known(connection: RespConnection, argv: list[bytes], action: str = TAKE) -> list[Job] | None:
    """The jobs of a command that are known here; None: it may not touch them, or not yet."""
    check_ids(argv)
    if not connection.may_touch(argv, action):
        return None
    prefix = connection.door.prefix
    connection.work += len(argv)  # an id is as much work as a command
    found = [connection.machine.find(each) for each in argv[1:]]
    return [each for each in found if each is not None and each.queue.name.startswith(prefix)]


def nack(connection: RespConnection, argv: list[bytes]) -> bytes:
    """NACK id ...: how many go back to their queue."""
    found = _known(connection, argv)
    now = connection.commit.clock()
    machine = connection.machine
    return b"" if found is None else number(sum(machine.nack(job, now) for job in found))


def working(connection: RespConnection, argv: list[bytes]) -> bytes:
    """WORKING id: the seconds until it is given again."""
    found = _known(connection, argv)
    if found is None:
        return b""
    if not found:
        raise JobRefusedError("NOJOB Job not known in the context of this node.")
    return number(connection.machine.working(found[0], connection.commit.clock()))


def enqueue(connection: RespConnection, argv: list[bytes]) -> bytes:
    """ENQUEUE id ...: how many were queued."""
    found = _known(connection, argv)
    now = connection.commit.clock()
    machine = connection.machine
    return b"" if found is None else number(sum(machine.enqueue(job, now) for job in found))


def dequeue(connection: RespConnection, argv: list[bytes]) -> bytes:
    """DEQUEUE id ...: how many were queued, and are no more."""
    found = _known(connection, argv)
    now = connection.commit.clock()
    machine = connection.machine
    return b"" if found is None else number(sum(machine.dequeue(job, now) for job in found))


def deljob(connection: RespConnection, argv: list[bytes]) -> bytes:
    """DELJOB id ...: how many are gone."""
    found = _known(connection, argv)
    if found is None:
        return b""
    gone = 0
    for job in found:
        if not job.is_gone and job.state != ACKED:  # nor named twice
            connection.machine.delete(job)
            gone += 1
    return number(gone)


def show(connection: RespConnection, argv: list[bytes]) -> bytes:
    """SHOW id: all that is known of it."""
    found = _known(connection, argv, INSPECT)
    if found is None:
        return b""
    if not found:
        return NO_ARRAY if connection.protocol == 2 else connection.nothing()
    return shown(connection, found[0])


# Queues


def qlen(connection: RespConnection, argv: list[bytes]) -> bytes:
    """QLEN queue: jobs that are queued."""
    if not connection.may_take(argv, argv[1:], INSPECT):
        return b""
    queue = connection.machine.queues.get(connection.door.prefix + argv[1])
    return number(0 if queue is None else queue.depth)


def qpeek(connection: RespConnection, argv: list[bytes]) -> bytes:
    """QPEEK queue count: the jobs that go next; below zero: the newest first."""
    count = whole(argv[2], "ERR value is not an integer or out of range", -(1 << 62), 1 << 62)
    if not connection.may_take(argv, argv[1:2], INSPECT):
        return b""
    queue = connection.machine.queues.get(connection.door.prefix + argv[1])
    if queue is None:
        return array([])
    most = min(abs(count), _MOST_PEEKED)
    jobs = queue.oldest(most) if count >= 0 else queue.newest(most)
    items: list[bytes] = []
    left = 16 * connection.door.max_job_size
    for job in jobs:
        body = (connection.read(job) if job.body is None else job.body) or b""
        left -= len(body)
        if left < 0 and items:
            break
        items.append(strings([argv[1], job.id, body]))
    return array(items)


def qstat(connection: RespConnection, argv: list[bytes]) -> bytes:
    """QSTAT queue: its figures."""
    if not connection.may_take(argv, argv[1:], INSPECT):
        return b""
    queue = connection.machine.queues.get(connection.door.prefix + argv[1])
    return connection.nothing() if queue is None else stat(connection, queue, argv[1])


def pause(connection: RespConnection, argv: list[bytes]) -> bytes:
    """PAUSE queue [in] [out] [all] [none] [state] [bcast]: what is paused."""
    check_queue(argv[1])
    if not connection.may_take(argv, argv[1:2]):
        return b""
    machine = connection.machine
    now, user = connection.commit.clock(), connection.username or ""
    queue = machine.queue(connection.door.prefix + argv[1], now, user)
    is_in, is_out = queue.paused_in, queue.paused_out
    is_everywhere = False
    for word in argv[2:]:
        option = word.lower()
        if option == b"none":
            is_in = is_out = False
        elif option in {b"in", b"out", b"all"}:
            is_in = is_in or option != b"out"
            is_out = is_out or option != b"in"
        elif option == b"bcast":
            is_everywhere = True
        elif option != b"state":
            return error("ERR PAUSE option must be in, out, all, none, state or bcast")
    if is_everywhere or (is_in, is_out) != (queue.paused_in, queue.paused_out):
        machine.pause(queue, is_in, is_out, now, is_everywhere)
    if is_everywhere:
        machine.sharing.paused(queue)
    names = {(True, True): b"all", (True, False): b"in", (False, True): b"out"}
    return bulk(names.get((is_in, is_out), b"none"))


# The connection


def ping(_connection: RespConnection, argv: list[bytes]) -> bytes:
    """PING [text]."""
    return b"+PONG\r\n" if len(argv) == 1 else bulk(argv[1])


def echo(_connection: RespConnection, argv: list[bytes]) -> bytes:
    """ECHO text."""
    return bulk(argv[1])


def select(_connection: RespConnection, argv: list[bytes]) -> bytes:
    """SELECT 0: there is one database."""
    return OK if argv[1] == b"0" else error("ERR DB index is out of range")


def hello(connection: RespConnection, argv: list[bytes]) -> bytes:
    """HELLO: the nodes, as Disque tells them. HELLO 2|3 [AUTH user password] [SETNAME name]: as Redis does."""
    if len(argv) == 1:
        return nodes(connection) if connection.is_known else NOAUTH
    if argv[1] not in _PROTOCOLS:
        return error("NOPROTO unsupported protocol version")
    at = 2
    label = connection.label
    login: list[bytes] = []
    while at < len(argv):
        option = argv[at].upper()
        if option == b"AUTH" and at + 2 < len(argv):
            login = argv[at + 1 : at + 3]
            at += 3
        elif option == b"SETNAME" and at + 1 < len(argv):
            label = argv[at + 1]
            at += 2
        else:
            return error("ERR syntax error in HELLO")
    if login:  # the last one counts, as with Redis
        verdict = connection.authenticate(argv, login[0], login[1])
        if verdict != "+":
            return error(verdict) if verdict else b""
    if not connection.is_known:
        return NOAUTH
    connection.label = label[:64]
    connection.protocol = int(argv[1])
    items = [
        ("server", bulk(b"vmq")),
        ("version", bulk(__version__.encode())),
        ("proto", number(connection.protocol)),
        ("id", number(connection.number)),
        ("mode", bulk(b"standalone")),
        ("role", bulk(b"master")),
        ("modules", array([])),
    ]
    return pairs(items, connection.protocol == 3)


def client(connection: RespConnection, argv: list[bytes]) -> bytes:
    """CLIENT ID | GETNAME | SETNAME name | SETINFO name value | LIST | INFO | KILL."""
    what = argv[1].upper()
    if what == b"ID":
        return number(connection.number)
    if what == b"GETNAME":
        return bulk(connection.label) if connection.label else NO_BULK
    if what == b"SETNAME" and len(argv) == 3:
        connection.label = argv[2][:64]
        return OK
    if what == b"SETINFO" and len(argv) == 4:
        return OK
    if what == b"INFO":
        return bulk(_described(connection).encode())
    if what == b"LIST":
        known = list(connection.door.clients) if connection.door.admin else [connection]
        return bulk("".join(_described(each) for each in known).encode())
    if what == b"KILL":
        return _kill(connection, argv[2:])
    return error("ERR unknown subcommand or wrong number of arguments for 'client'")


def _described(client_of: RespConnection) -> str:
    """A client in the words of Redis."""
    age = int(client_of.commit.clock() - client_of.since)
    name = client_of.label.decode("utf-8", "replace").replace("\n", " ")
    user = (client_of.username or "").replace("\n", " ")
    return (
        f"id={client_of.number} addr={client_of.describe()} name={name} age={age} user={user} "
        f"resp={client_of.protocol} blocked={1 if client_of.waits() else 0}\n"
    )


def _kill(connection: RespConnection, words: list[bytes]) -> bytes:
    """CLIENT KILL addr | ID number | ADDR addr: how many were ended."""
    if not connection.door.admin:
        return error(_NO_ADMIN)
    if len(words) == 1:
        words = [b"ADDR", words[0]]
    if len(words) != 2 or words[0].upper() not in {b"ID", b"ADDR"}:
        return error("ERR syntax error")
    ended = 0
    for each in list(connection.door.clients):
        shown = b"%d" % each.number if words[0].upper() == b"ID" else each.describe().encode()
        if shown == words[1] and each is not connection:
            each.end("CLIENT KILL")
            ended += 1
    return number(ended)


def command(_connection: RespConnection, argv: list[bytes]) -> bytes:
    """COMMAND [COUNT]: redis-cli asks for help texts, of which there are none."""
    if len(argv) > 1 and argv[1].upper() == b"COUNT":
        return number(len(COMMANDS) + 6)
    return array([])


def info(connection: RespConnection, _argv: list[bytes]) -> bytes:
    """INFO: a few figures; `/metrics` has all."""
    machine = connection.machine
    counts = machine.counts
    lines = [
        "# Server",
        f"vmq_version:{__version__}",
        "disque_version:1.0",
        "redis_mode:standalone",
        f"tcp_port:{connection.door.port.decode()}",
        "",
        "# Memory",
        f"used_memory:{machine.memory}",
        f"maxmemory:{connection.door.control.memory()}",
        "",
        "# Jobs",
        f"registered_jobs:{machine.count()}",
        f"paged_jobs:{machine.pager.count}",
        "",
        "# Queues",
        f"registered_queues:{len(machine.queues)}",
        "",
        "# Stats",
        f"jobs_added:{counts.added}",
        f"jobs_acknowledged:{counts.acknowledged}",
        f"jobs_retried:{counts.retried}",
        f"jobs_dead:{counts.dead}",
        f"jobs_mending:{mending(connection)}",
        "",
    ]
    return bulk("\r\n".join(lines).encode())


# The node


def config(connection: RespConnection, argv: list[bytes]) -> bytes:
    """CONFIG GET pattern | SET name value | REWRITE: what has a counterpart."""
    what = argv[1].upper()
    door = connection.door
    control = door.control
    if what == b"GET" and len(argv) == 3:
        values: dict[bytes, bytes] = control.options(door.port, door.host)
        if len(argv[2]) > _LONGEST_PATTERN:
            return error("ERR the pattern is too long")
        pattern = re.compile(translate(argv[2].lower().decode("latin-1")))
        found = [each for each in values.items() if pattern.match(each[0].decode())]
        items = [(key.decode(), bulk(value)) for key, value in found]
        return pairs(items, connection.protocol == 3)
    if not door.admin:
        return error(_NO_ADMIN)
    if what == b"SET" and len(argv) == 4:
        control.set(argv[2], argv[3])
    elif what == b"REWRITE" and len(argv) == 2:
        control.rewrite()
    else:
        return error("ERR CONFIG knows GET, SET and REWRITE")
    return OK


def shutdown(connection: RespConnection, _argv: list[bytes]) -> bytes:
    """SHUTDOWN [SAVE|NOSAVE|REWRITE-AOF]: the broker stops; what there is to write is written anyway."""
    if not connection.door.admin:
        return error(_NO_ADMIN)
    connection.door.control.shutdown()
    return OK


def debug(connection: RespConnection, argv: list[bytes]) -> bytes:
    """DEBUG FLUSHALL: all jobs are gone."""
    if not connection.door.admin:
        return error(_NO_ADMIN)
    if argv[1].upper() != b"FLUSHALL":
        return error("ERR DEBUG knows FLUSHALL")
    commit = connection.commit
    flush = JobFlush(connection.machine, connection.door.prefix, commit.clock())
    promise = connection.promise()
    assert commit.call_soon is not None
    call_soon = commit.call_soon

    def go_on() -> None:
        if commit.is_over:
            return
        if flush.turn():
            call_soon(go_on)
        else:
            connection.keep(promise, OK)
        commit.end_soon()

    call_soon(go_on)
    return b""


_MANY: Final = 1024

#: Each with the fewest and the most arguments that it takes.
COMMANDS: Final[dict[bytes, tuple[Command, int, int]]] = {
    b"ADDJOBS": (addjobs, 3, _MANY),
    b"NACK": (nack, 1, _MANY),
    b"WORKING": (working, 1, 1),
    b"ENQUEUE": (enqueue, 1, _MANY),
    b"DEQUEUE": (dequeue, 1, _MANY),
    b"DELJOB": (deljob, 1, _MANY),
    b"SHOW": (show, 1, 1),
    b"QLEN": (qlen, 1, 1),
    b"QPEEK": (qpeek, 2, 2),
    b"QSTAT": (qstat, 1, 1),
    b"QSCAN": (qscan, 0, 12),
    b"JSCAN": (jscan, 0, 24),
    b"PAUSE": (pause, 2, 8),
    b"PING": (ping, 0, 1),
    b"ECHO": (echo, 1, 1),
    b"SELECT": (select, 1, 1),
    b"HELLO": (hello, 0, 12),
    b"CLIENT": (client, 1, 4),
    b"COMMAND": (command, 0, _MANY),
    b"INFO": (info, 0, 8),
    b"CLUSTER": (cluster, 1, 8),
    b"CONFIG": (config, 1, 8),
    b"DEBUG": (debug, 1, 1),
    b"SHUTDOWN": (shutdown, 0, 1),
}
