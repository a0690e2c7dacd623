"""Asks which rows an expression of a client is true for: of a process of its own, which is killed if it takes too long."""

import os
import select
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from typing import Final

import msgspec
import pyarrow as pa

from vmq.streams.log.errors import StreamError
from vmq.streams.log.cursor import as_stream
from vmq.streams.replay.evaluator import LENGTH, Question, Verdict

#: Seconds that the process has to start, and that rows may take: a page of them, which takes a tenth of it at most.
PATIENCE: Final = 10.0
COMMAND: Final = (sys.executable, "-P", "-m", "vmq.streams.replay.evaluator")


class ExpressionError(StreamError):
    """An expression cannot be evaluated; the text says why."""


class Expressions:
    """The process, started when it is first needed, and anew when it has died. Asked in any thread; calls block.

    Args:
        command: what is run.
        patience: seconds for an answer.
    """

    def __init__(self, command: Sequence[str] = COMMAND, patience: float = PATIENCE) -> None:
        self._command = command
        self._patience = patience
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._decoder = msgspec.msgpack.Decoder(Verdict)
        #: Rows for which an expression was neither true nor false.
        self.failed = 0

    def check(self, expression: str) -> None:
        """Looks whether it is one.

        Raises:
            ExpressionError: it is not.
        """
        self._ask(Question(expression))

    def mask(self, expression: str, partition: int, rows: pa.RecordBatch) -> pa.BooleanArray:
        """For which rows it is true; it is not where a field is missing or of another type.

        Raises:
            ExpressionError: that took too long, or too much memory.
        """
        stream = as_stream(rows)
        found = self._ask(Question(expression, partition, stream.to_pybytes()))
        if len(found.mask) != rows.num_rows:
            raise ExpressionError("where=: the process that evaluates it is confused")
        self.failed += found.failed
        bits = pa.Array.from_buffers(
            pa.uint8(), rows.num_rows, [None, pa.py_buffer(found.mask)]
        )
        return bits.cast(pa.bool_())

    def close(self) -> None:
        """Ends the process."""
        with self._lock:
            self._end()

    def _ask(self, question: Question) -> Verdict:
        asked = msgspec.msgpack.encode(question)
        with self._lock:
            until = time.monotonic() + self._patience
            try:
                answer = self._exchange(LENGTH.pack(len(asked)) + asked, until)
            except (OSError, EOFError) as error:
                self._end()
                raise ExpressionError(f"where= cannot be evaluated: {error}") from None
        found = self._decoder.decode(answer)
        if found.error:
            raise ExpressionError(f"where= is no expression: {found.error}")
        return found

    def _exchange(self, question: bytes, until: float) -> bytes:
        process = self._process
        if process is None:
            self._process = process = subprocess.Popen(  # noqa: S603  # this very program
                self._command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                env={**os.environ, "PYTHONPATH": os.pathsep.join(each for each in sys.path if each)},
                bufsize=0,
            )
        assert process.stdin is not None
        assert process.stdout is not None
        os.set_blocking(process.stdin.fileno(), False)
        left = memoryview(question)
        while left:
            self._wait([], [process.stdin.fileno()], until)
            left = left[os.write(process.stdin.fileno(), left) :]
        source = process.stdout.fileno()
        length = LENGTH.unpack(self._read(source, LENGTH.size, until))[0]
        return self._read(source, length, until)

    def _read(self, source: int, count: int, until: float) -> bytes:
        found = bytearray()
        while len(found) < count:
            self._wait([source], [], until)
            piece = os.read(source, count - len(found))
            if not piece:
                raise EOFError("it needs too much memory, or its process was ended")
            found += piece
        return bytes(found)

    def _wait(self, readable: list[int], writable: list[int], until: float) -> None:
        left = until - time.monotonic()
        if left <= 0 or not any(select.select(readable, writable, [], left)):
            raise TimeoutError(f"it took more than {self._patience:g} s")

    def _end(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            process.wait()
            for pipe in (process.stdin, process.stdout):
                if pipe is not None:
                    pipe.close()
