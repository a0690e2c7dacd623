"""The process that evaluates expressions of clients: `python -m vmq.streams.replay.evaluator`.

It reads questions from its input and answers on its output, one at a time, and ends with its input. Whoever asks kills
it if it takes too long; it has little memory, and comes after everything else on the machine.
"""

import os
import resource
import struct
import sys
from collections.abc import Callable
from typing import Any, BinaryIO, Final

import msgspec
import pyarrow as pa
from pyarrow import ipc

from vmq.config.expressions import all_by_member, decoder_of
from vmq.streams.helper import until_nobody_asks

#: Bytes of address space: the libraries alone take the half of it.
_MEMORY: Final = 2 << 30
#: Programs that are kept.
_MOST: Final = 256
LENGTH: Final = struct.Struct(">I")


class Question(msgspec.Struct, array_like=True, frozen=True):
    """Which of some rows, an Arrow IPC stream, an expression is true for. Without rows: whether it is one at all."""

    expression: str
    partition: int = 0
    rows: bytes = b""


class Verdict(msgspec.Struct, array_like=True, frozen=True):
    """A byte a row, 1 where it is true; for how many it is none. `error`: it is no expression."""

    error: str = ""
    mask: bytes = b""
    failed: int = 0


class Prepared:
    """An expression as it is evaluated: by members of the payload, where it looks at no more.

    Raises:
        Exception: it is none.
    """

    def __init__(self, compile_text: Callable[[str], Any], text: str) -> None:
        #: What it looks at, as it was written.
        self.asked: list[str] = compile_text(text).variables()
        found = all_by_member([text], "payload")
        members = {} if found is None else found[0].members
        self.program = compile_text(text if found is None else found[0].text)
        self._names = [each for each in self.program.variables() if each not in members]
        self._decode = decoder_of(members) if members else None

    def values(self, rows: pa.Table, partition: int) -> list[dict[str, Any]]:
        """What it looks at, of each row."""
        values = values_of(self._names, rows, partition)
        if self._decode is not None:
            for each, payload in zip(values, rows.column("payload").to_pylist(), strict=True):
                each.update(self._decode(payload))
        return values


class Evaluator:
    """Evaluates.

    Args:
        compile_text: makes a program of an expression, with `execute` and `variables`.
    """

    def __init__(self, compile_text: Callable[[str], Any]) -> None:
        self._compile = compile_text
        self._programs: dict[str, Prepared] = {}

    def answer(self, question: Question) -> Verdict:
        """The answer to a question."""
        prepared = self._programs.get(question.expression)
        if prepared is None:
            try:
                prepared = Prepared(self._compile, question.expression)
            except Exception as error:  # noqa: BLE001 - whatever the library raises
                return Verdict(" ".join(str(error).split())[:300])
            if len(self._programs) >= _MOST:
                self._programs.clear()
            self._programs[question.expression] = prepared
        if not question.rows:
            return Verdict(unknown(prepared.asked))
        with ipc.open_stream(question.rows) as reader:
            rows = reader.read_all().combine_chunks()
        mask = bytearray(rows.num_rows)
        failed = 0
        execute = prepared.program.execute
        for number, values in enumerate(prepared.values(rows, question.partition)):
            try:
                mask[number] = execute(values) is True
            except Exception:  # noqa: BLE001 - a field is missing, or is of another type
                failed += 1
        return Verdict("", bytes(mask), failed)


def unknown(names: list[str]) -> str:
    """What an expression looks at that is not there; empty: nothing."""
    from vmq.streams.replay.expressions import VARIABLES

    for name in names:
        if name not in VARIABLES:
            return f"there is no {name[:80]}; accepted: {', '.join(VARIABLES)}"
    return ""


def values_of(names: list[str], rows: pa.Table, partition: int) -> list[dict[str, Any]]:
    """What an expression may look at, of each row."""
    columns: dict[str, list[Any]] = {}
    for name in names:
        if name == "payload":
            columns[name] = [payload_of(each) for each in rows.column("payload").to_pylist()]
        elif name == "levels":
            columns[name] = [each.split("/") for each in rows.column("topic").to_pylist()]
        elif name == "time":
            columns[name] = rows.column("timestamp").to_pylist()
        elif name == "partition":
            columns[name] = [partition] * rows.num_rows
        else:
            columns[name] = rows.column(name).to_pylist()
    if not columns:
        return [{} for _ in range(rows.num_rows)]
    keys = list(columns)
    return [dict(zip(keys, values, strict=True)) for values in zip(*columns.values(), strict=True)]


def payload_of(payload: bytes) -> Any:
    """What JSON says; else the text, or the bytes."""
    try:
        return msgspec.json.decode(payload)
    except (ValueError, RecursionError):
        pass
    try:
        return payload.decode()
    except UnicodeDecodeError:
        return payload


def serve(source: BinaryIO, sink: BinaryIO, evaluator: Evaluator) -> None:
    """Answers until the input ends."""
    decoder = msgspec.msgpack.Decoder(Question)
    while len(head := source.read(LENGTH.size)) == LENGTH.size:
        question = decoder.decode(source.read(LENGTH.unpack(head)[0]))
        answer = msgspec.msgpack.encode(evaluator.answer(question))
        sink.write(LENGTH.pack(len(answer)) + answer)
        sink.flush()


def main() -> None:
    """Serves the standard input."""
    os.nice(10)
    resource.setrlimit(resource.RLIMIT_AS, (_MEMORY, _MEMORY))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    from cel import compile as compile_text

    with until_nobody_asks():
        serve(sys.stdin.buffer, sys.stdout.buffer, Evaluator(compile_text))


if __name__ == "__main__":
    main()
