"""What waits to be written: one `Output` a connection, one `Outbox` for all of them.

During a pass (one chunk of bytes handled, one timer run) pieces gather in the outputs that it
touches; at its end each touched output is written once. An output that carries acknowledgements of
durable work waits in the outbox until the store has committed that work, and other nodes have
what they must have (`Wait`); what waits there counts like what waits in the socket's own buffer.
"""

import logging
from collections import deque
from typing import Final

from vmq_hooks.types import Peer

from vmq.core.states import AWAITING_CONNECT, DISCONNECTED

log = logging.getLogger("vmq.output")

#: What each held pass costs besides its bytes: the objects that hold it.
HELD_OVERHEAD: Final = 128

#: Bits of `Output.blocked`: the transport's buffer is full; so much waits for a commit that the queue takes over.
SOCKET: Final = 1
COMMITS: Final = 2

#: Reasons not to read from a peer that it has once or not at all; for others `pause` counts.
REST: Final = 1
VERDICT: Final = 2
RATE: Final = 4
MEMORY: Final = 8
REPLIES: Final = 16


class Wait:
    """What the acknowledgements of one pass wait for besides commits: so many other nodes still."""

    def __init__(self, output: "Output") -> None:
        self.output = output
        self.open: int = 0
        #: The output is in no list of the outbox: this brings it back.
        self.parked = False

    def settle(self) -> None:
        """One node has it, or needs not be waited for any more; takes effect with the next flush of the outbox."""
        self.open -= 1
        if self.open == 0:
            outbox = self.output.outbox
            outbox.is_settled = True
            if self.parked:
                self.parked = False
                outbox.waiting.append(self.output)


class Output:
    """The outgoing side of one connection. Subclasses bring the transport.

    What may be done with it is told by `state` and by `blocked`; `touched` says no more than that it is in a list.
    """

    def __init__(self, outbox: "Outbox") -> None:
        self.outbox = outbox
        #: Of the connection: see `vmq.core.states`.
        self.state: int = AWAITING_CONNECT
        self.pieces: list[bytes] = []
        #: In the outbox's list of this pass.
        self.touched = False
        #: Whether, and where, enough waits: nothing but replies may be added.
        self.blocked: int = 0
        #: The commit that must be done before the pieces may leave (0: none).
        self.barrier: int = 0
        #: The same for the streams, whose commits are counted apart.
        self.stream_barrier: int = 0
        #: What else the pieces of this pass wait for.
        self.wait: Wait | None = None
        #: Bytes of earlier passes that wait for commits, each with the numbers, or for nodes, in order.
        self.held: deque[tuple[int, int, Wait | None, bytes]] | None = None
        self.held_bytes: int = 0

    @property
    def closing(self) -> bool:
        """Nothing more is read; the connection ends once the pieces are written."""
        return self.state >= DISCONNECTED

    def touch(self) -> None:
        """To be called by whoever adds pieces."""
        if not self.touched:
            self.touched = True
            self.outbox.touched.append(self)

    def add(self, piece: bytes) -> None:
        """Adds one piece and touches."""
        self.pieces.append(piece)
        if not self.touched:
            self.touched = True
            self.outbox.touched.append(self)

    def wait_for_nodes(self) -> Wait:
        """What the pieces of this pass wait for; whoever counts a node as `open` has to settle it."""
        wait = self.wait
        if wait is None:
            self.wait = wait = Wait(self)
        return wait

    def forget_waits(self) -> None:
        """The connection ends: answers that wait for other nodes are not given, nor what is behind them."""
        held = self.held
        if held is None:
            return
        safe = 0
        for _, _, wait, _ in held:
            if wait is not None and wait.open > 0:
                break
            safe += 1
        while len(held) > safe:
            _, _, wait, data = held.pop()
            self.held_bytes -= len(data) + HELD_OVERHEAD
            if wait is not None:
                wait.parked = False

    def write(self) -> None:
        """Hands the gathered pieces to the transport."""
        self.pieces.clear()

    def on_held(self) -> None:
        """More bytes wait for a commit; `held_bytes` is how many now."""

    def on_released(self) -> None:
        """Fewer bytes wait for a commit, or none."""

    def close(self, reason: str) -> None:
        """Ends the connection; what was added before is still written."""

    def finish(self, reason: str, state: int) -> None:
        """Ends the connection, as `close`, in another state than `CLOSING`."""
        self.close(reason)

    def pause(self) -> None:
        """Stops reading for one more reason; each pause needs its `resume`."""

    def resume(self) -> None:
        """One reason less not to read."""

    def pause_for(self, reason: int) -> None:
        """Stops reading for this reason, if it is not one already."""

    def resume_from(self, reason: int) -> None:
        """This is no reason any more not to read, if it was one."""

    def go_on(self) -> None:
        """What the session waited for is there: it handles its next packets in a pass of its own."""

    def limit(self, rate: int | None, lifetime: int | None) -> None:
        """Limits of this connection alone: messages a second, seconds; None changes nothing."""

    def judge_again(self, until: float) -> None:
        """Has the client's subscriptions authorised anew at a time by the core's clock; 0: there is none to be."""

    def seen_peer(self) -> Peer:
        """The peer, for plugins."""
        return Peer("", 0)

    def describe(self) -> str:
        """The peer, for logs and hooks."""
        return ""


class Outbox:
    """The outputs touched in the present pass, and those that wait for a commit."""

    def __init__(self) -> None:
        self.touched: list[Output] = []
        #: Outputs that wait for commits first; those that wait for other nodes first come back when these have it.
        self.waiting: list[Output] = []
        self.committed: int = 0
        self.streams_committed: int = 0
        #: Some in `waiting` may have nothing to wait for any more.
        self.is_settled = False

    def flush(self) -> None:
        """Ends a pass: writes every touched output whose durable work is committed."""
        if self.is_settled:
            self.release_held()
            return
        touched = self.touched
        if not touched:
            return
        self.touched = []
        committed = self.committed
        streams = self.streams_committed
        for output in touched:
            output.touched = False
            wait = output.wait
            if wait is not None and (wait.open == 0 or output.closing):
                if wait.open > 0:  # as in `forget_waits`: the connection ended in this very pass
                    output.pieces.clear()
                output.wait = wait = None
            if (
                wait is not None
                or output.held
                or output.barrier > committed
                or output.stream_barrier > streams
            ):
                self.hold(output)
            else:
                self.write(output)

    def write(self, output: Output) -> None:
        """Writes one output; what its transport raises is its own end, not that of the others."""
        try:
            output.write()
        except Exception:
            log.exception("cannot write to %s", output.describe())
            output.pieces.clear()
            output.close("internal error")

    def hold(self, output: Output) -> None:
        """Puts the pieces of a pass behind the commit and the nodes that they need.

        Each pass keeps its own number: a connection with durable work in every pass would else
        wait for a commit that is always the next.
        """
        held = output.held
        if not held:
            output.held = held = deque()
            self.waiting.append(output)
        data = b"".join(output.pieces)
        held.append((output.barrier, output.stream_barrier, output.wait, data))
        output.wait = None
        output.held_bytes += len(data) + HELD_OVERHEAD
        output.pieces.clear()
        output.on_held()

    def release(self, committed: int) -> None:
        """Commit number `committed` is done: writes what waited for it, and what now has room."""
        self.committed = committed
        self.release_held()

    def release_streams(self, committed: int) -> None:
        """The same, of the streams."""
        self.streams_committed = committed
        if self.waiting:
            self.release_held()

    def release_held(self) -> None:
        """Writes what no longer waits for anything."""
        self.is_settled = False
        committed = self.committed
        streams = self.streams_committed
        waiting = self.waiting
        self.waiting = []
        for output in waiting:
            held = output.held
            assert held is not None
            ready: list[bytes] = []
            while held and held[0][0] <= committed and held[0][1] <= streams:
                wait = held[0][2]
                if wait is not None and wait.open > 0:
                    wait.parked = True
                    break
                data = held.popleft()[3]
                output.held_bytes -= len(data) + HELD_OVERHEAD
                ready.append(data)
            else:
                if held:
                    self.waiting.append(output)
            later = output.pieces
            output.pieces = ready
            self.write(output)
            output.pieces = later
        for output in waiting:
            output.on_released()
        self.flush()

    def fail(self, reason: str) -> None:
        """The store's commit failed: whoever waits for it is cut off unanswered [MQTT-4.8.0-2].

        Who waits for the streams alone, or for another node first, goes on waiting: a commit that succeeds later has
        the work of this one, too.
        """
        committed = self.committed
        waiting = self.waiting
        self.waiting = []
        for output in waiting:
            held = output.held
            assert held is not None
            # The numbers of an output only grow: the last one tells.
            if not held or held[-1][0] <= committed:
                self.waiting.append(output)
                continue
            output.held = None
            output.held_bytes = 0
            output.pieces.clear()
            output.wait = None
            output.barrier = 0
            output.stream_barrier = 0
            output.close(reason)
