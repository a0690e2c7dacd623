"""Asks which rows an expression of a client is true for: of a process, which is killed if it takes too long."""

import sys
import threading
import time
from collections.abc import Sequence
from typing import Final

import msgspec
import pyarrow as pa

from vmq.streams.helper import HelperProcess
from vmq.streams.log.columns import as_stream
from vmq.streams.log.errors import StreamError
from vmq.streams.replay.evaluator import LENGTH, Question, Verdict

#: Seconds that a page of rows may take, which takes a tenth of it at most; and that the process has to start.
PATIENCE: Final = 10.0
STARTING: Final = 50.0
COMMAND: Final = (sys.executable, "-P", "-m", "vmq.streams.replay.evaluator")


class ExpressionError(StreamError):
    """An expression cannot be evaluated; the text says why."""


class Expressions:
    """The process, started when it is first needed, and anew when it has died. Asked in any thread; calls block.

    Args:
        command: what is run.
        patience: seconds for an answer.
        starting: more of them for the first one of a process.
    """

    def __init__(
        self,
        command: Sequence[str] = COMMAND,
        patience: float = PATIENCE,
        starting: float = STARTING,
    ) -> None:
        self.command = command
        self.patience = patience
        self.starting = starting
        self.process: HelperProcess | None = None
        #: Rows for which an expression was neither true nor false.
        self.failed = 0
        self._lock = threading.Lock()
        self._decoder = msgspec.msgpack.Decoder(Verdict)

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
            raise ExpressionError("where= cannot be evaluated: the answer is of other rows")
        self.failed += found.failed
        bits = [None, pa.py_buffer(found.mask)]
        return pa.Array.from_buffers(pa.uint8(), rows.num_rows, bits).cast(pa.bool_())

    def close(self) -> None:
        """Ends the process."""
        with self._lock:
            self._end()

    def _ask(self, question: Question) -> Verdict:
        asked = msgspec.msgpack.encode(question)
        with self._lock:
            until = time.monotonic() + self.patience
            try:
                if self.process is None:
                    self.process = HelperProcess(self.command)
                    until += self.starting
                self.process.write(LENGTH.pack(len(asked)) + asked, until)
                length = LENGTH.unpack(self.process.read(LENGTH.size, until))[0]
                answer = self.process.read(length, until)
            except TimeoutError:
                self._end()
                why = f"it took more than {self.patience:g} s"
                raise ExpressionError(f"where= cannot be evaluated: {why}") from None
            except (OSError, EOFError) as error:
                self._end()
                raise ExpressionError(f"where= cannot be evaluated: {error}") from None
        found = self._decoder.decode(answer)
        if found.error:
            raise ExpressionError(f"where= is no expression: {found.error}")
        return found

    def _end(self) -> None:
        process, self.process = self.process, None
        if process is not None:
            process.end()
