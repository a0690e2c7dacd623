"""`vmq stream tail`: the messages of a stream, of a running broker or of a data folder, one a line."""

import base64
import http.client
import sys
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Annotated, Final
from urllib.parse import urlencode

import msgspec
import typer

from vmq.admin.payloads import show_payload
from vmq.cli.admin.asking import BytesOption
from vmq.cli.admin.client import AdminClient
from vmq.cli.data.stored_streams import stored_streams
from vmq.cli.terminal.console import CliError, UsageError, nobody_reads, painted, warning
from vmq.cli.terminal.rows import clean, json_text
from vmq.cli.terminal.settings import ConfigOption, DataDirOption
from vmq.streams.log.message import (
    MOST,
    START_FORMS,
    Ended,
    Notice,
    StreamMessage,
    TailQuery,
    start_of,
)

#: Seconds of silence after which the broker counts as gone; it gives a sign of life more often.
_SILENCE: Final = 30.0
#: Messages that are looked for when none are asked for.
_LAST: Final = 10
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_FAINT: Final = "2"
_TOPIC: Final = "36"


def tail(
    name: Annotated[str, typer.Argument(metavar="NAME", help="The stream.")],
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Go on with what comes, until Ctrl-C.")
    ] = False,
    count: Annotated[
        int | None,
        typer.Option(
            "-n",
            metavar="N",
            min=0,
            max=MOST,
            help="The last N messages; with --from, the first N from there on.",
            show_default=f"{_LAST}; with --from, all",
        ),
    ] = None,
    begin: Annotated[
        str | None,
        typer.Option("--from", metavar="WHERE", help=f"Begin there: {START_FORMS}."),
    ] = None,
    partition: Annotated[
        int | None, typer.Option("--partition", metavar="N", min=0, help="This partition only.")
    ] = None,
    topic: Annotated[
        str | None,
        typer.Option("--topic", "-t", metavar="FILTER", help="Only topics that match."),
    ] = None,
    payload_bytes: BytesOption = 256,
    as_json: Annotated[
        bool, typer.Option("--json", help="A JSON object a line, with all columns and bytes.")
    ] = False,
    config: ConfigOption = None,
    data_dir: DataDirOption = None,
) -> int:
    """Print the last messages of a stream, and with -f those that follow.

    Each line has time (UTC), partition/offset, topic and payload: as text, or
    in hexadecimal behind 0x. Partitions are put together by time. Works on a
    running broker, and on the data folder of one that is stopped. Of a cluster,
    or of several workers, it shows all partitions, wherever they are; where
    none runs, those of the folder.

    \b
    Examples:
      vmq stream tail sensors -f
      vmq stream tail sensors -n 100 -t 'sensors/+/temp'
      vmq stream tail sensors --from 2026-03-01T12:00 -n 5
      vmq stream tail sensors --from 1500 --partition 2 --json
    """
    query = _query(
        stream=name,
        follow=follow,
        partition=partition,
        filter=topic,
        # One more than are shown tells that there are more.
        payload_bytes=payload_bytes + 1 if payload_bytes and not as_json else 0,
        **_extent(begin, count),
    )
    broker = AdminClient(config, data_dir)
    if broker.finds_broker():
        messages = _of_broker(broker, query)
    elif follow:
        raise CliError("--follow: no broker runs there, so nothing follows (see --data-dir)")
    else:
        messages = _of_folder(query, config, data_dir)
    lines = map(as_object, messages) if as_json else (as_line(m, payload_bytes) for m in messages)
    try:
        _print(lines, at_once=follow)
    except BrokenPipeError:
        return nobody_reads()
    return 0


def _extent(begin: str | None, count: int | None) -> dict[str, object]:
    """Where a query begins and after how many messages it ends, as fields of it."""
    if begin is None:
        return {"last": _LAST if count is None else count}
    try:
        return {**start_of(begin), "limit": count}
    except ValueError as problem:
        raise UsageError(f"--from: {problem}") from None


def _query(**fields: object) -> TailQuery:
    try:
        return msgspec.convert(fields, TailQuery)
    except msgspec.ValidationError as problem:
        raise UsageError(str(problem)) from None


def _print(lines: Iterable[str], *, at_once: bool) -> None:
    """Print lines; each at once where somebody waits for it.

    Raises:
        BrokenPipeError: nobody reads.
        CliError: they cannot be written.
    """
    # What a client named in bytes that are no text must not end the command.
    encoding = sys.stdout.encoding or "utf-8"
    try:
        for line in lines:
            print(line.encode(encoding, "backslashreplace").decode(encoding), flush=at_once)
        sys.stdout.flush()
    except BrokenPipeError:
        raise
    except OSError as problem:
        raise CliError(f"cannot write: {problem.strerror}") from None


def _of_broker(broker: AdminClient, query: TailQuery) -> Iterator[StreamMessage]:
    """What a running broker tells."""
    decode = msgspec.json.Decoder(StreamMessage | Notice | Ended).decode
    fields = urlencode(msgspec.to_builtins(query), errors="surrogateescape")
    try:
        for line in broker.stream(f"/stream/tail?{fields}", _SILENCE):
            if not line:
                continue  # a sign of life
            told = decode(line)
            if isinstance(told, StreamMessage):
                yield told
            elif isinstance(told, Notice):
                warning(clean(told.text))
            elif told.error:
                raise CliError(clean(told.error))
            else:
                return
    except (OSError, http.client.HTTPException) as problem:
        text = getattr(problem, "strerror", None) or str(problem) or type(problem).__name__
        raise CliError(f"cannot read on from the broker: {text}") from None
    raise CliError("the broker went away")


def _of_folder(
    query: TailQuery, config: Path | None, data_dir: str | None
) -> Iterator[StreamMessage]:
    """What lies in the data folder of a broker that does not run."""
    with stored_streams(config, data_dir) as folder:
        from vmq.streams.log.errors import DamagedError, StreamError, UnknownStreamError
        from vmq.streams.logs import LogsHere
        from vmq.streams.resting import RestingLog
        from vmq.streams.stored import StoredStream
        from vmq.streams.tail import Tail

        try:
            stored = StoredStream(folder, query.stream)
            logs = LogsHere([RestingLog(each) for each in stored.partitions])
            found = Tail(logs, query, stored.options.filters)
        except (DamagedError, UnknownStreamError):
            raise
        except StreamError as problem:
            raise UsageError(str(problem)) from None
        yield from found.messages()


def as_line(message: StreamMessage, limit: int) -> str:
    """A message for people; at most `limit` bytes of its payload, 0 = all."""
    shown = show_payload(message.payload, limit)
    text = clean(shown.text) if shown.encoding == "text" else f"0x{shown.text}"
    if shown.truncated:
        text += painted(f"... ({message.size} bytes)", _FAINT)
    when = _time(message).isoformat(timespec="milliseconds").removesuffix("+00:00") + "Z"
    place = painted(f"{when} {message.partition}/{message.offset}", _FAINT)
    return f"{place} {painted(clean(message.topic), _TOPIC)} {text}"


def as_object(message: StreamMessage) -> str:
    """A message for programs."""
    key = None if message.key is None else _text_or_base64(message.key)[0]
    payload, encoding = _text_or_base64(message.payload)
    return json_text(
        {
            "timestamp": _time(message).isoformat(timespec="microseconds"),
            "partition": message.partition,
            "offset": message.offset,
            "topic": message.topic,
            "qos": message.qos,
            "retain": message.retain,
            "client_id": message.client_id,
            "key": key,
            "headers": message.headers,
            "payload": payload,
            "encoding": encoding,
        }
    )


def _text_or_base64(value: bytes) -> tuple[str, str]:
    """Bytes as JSON can hold them, and how: "text" or "base64"."""
    try:
        return value.decode(), "text"
    except UnicodeDecodeError:
        return base64.b64encode(value).decode(), "base64"


def _time(message: StreamMessage) -> datetime:
    return _EPOCH + timedelta(microseconds=message.timestamp)
