"""Lines of standard input in an event loop."""

from pathlib import Path

import pytest

from vmq.cli.mqtt.stdin import lines


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (b"", []),
        (b"\n", [b""]),
        (b"one", [b"one"]),
        (b"one\ntwo\n", [b"one", b"two"]),
        (b"one\n\nlast", [b"one", b"", b"last"]),
        (b"\xff\r\n", [b"\xff\r"]),
        (b"x" * 200_000 + b"\ny", [b"x" * 200_000, b"y"]),
        (b"\n" * 100_000, [b""] * 100_000),
    ],
    ids=lambda value: repr(value)[:20],
)
async def test_a_file_is_read_line_by_line(
    tmp_path: Path, text: bytes, expected: list[bytes]
) -> None:
    path = tmp_path / "lines"
    path.write_bytes(text)
    with path.open("rb") as file:
        assert [line async for line in lines(file.fileno())] == expected
