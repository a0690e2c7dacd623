"""What `vmq sub` prints for a message."""

import json
from dataclasses import replace
from datetime import datetime, timedelta, timezone

import pytest

from vmq.cli.mqtt.format import FormatError, Received, compiled, payload_only, verbose

WHEN = datetime(2026, 3, 1, 14, 5, 6, 789012, timezone(timedelta(hours=1)))
MESSAGE = Received("a/b", b"h\xff{}", qos=1, retain=True, packet_id=7, when=WHEN)
TEXT = replace(MESSAGE, payload=b'say "hi"\n')


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", b""),
        ("plain é", "plain é".encode()),
        ("%t", b"a/b"),
        ("%p", b"h\xff{}"),
        ("%q %r %l %m", b"1 1 4 7"),
        ("%x %X", b"68ff7b7d 68FF7B7D"),
        ("%I", b"2026-03-01T14:05:06+0100"),
        ("%U", b"1772370306.789012000"),
        ("%%t", b"%t"),
        ("%t%t", b"a/ba/b"),
        ("[%6t]", b"[   a/b]"),
        ("[%-6t]", b"[a/b   ]"),
        ("[%06l]", b"[000004]"),
        ("[%-06l]", b"[4     ]"),
        ("[%06t]", b"[   a/b]"),
        ("[%.2t]", b"[a/]"),
        ("[%4.2t]", b"[  a/]"),
        ("@Y-@m-@d", b"2026-03-01"),
        ("@N", b"789012000"),
        ("@@", b"@"),
        (r"\t\n\\\0\e", b"\t\n\\\0\x1b"),
        ("\udcff", b"\xff"),
    ],
)
def test_sequences_stand_for_parts_of_the_message(text: str, expected: bytes) -> None:
    assert compiled(text)(MESSAGE) == expected


@pytest.mark.parametrize("text", ["%z", "%", "100%", "% t", "%5", "%10", "@", "\\q", "\\"])
def test_unknown_and_unfinished_sequences_are_refused(text: str) -> None:
    with pytest.raises(FormatError):
        compiled(text)


def test_json_holds_every_part() -> None:
    assert json.loads(compiled("%j")(TEXT)) == {
        "tst": "2026-03-01T14:05:06.789012+0100",
        "topic": "a/b",
        "qos": 1,
        "retain": 1,
        "payloadlen": 9,
        "mid": 7,
        "payload": 'say "hi"\n',
    }


def test_json_is_one_line_and_text_whatever_the_payload() -> None:
    line = compiled("%j")(replace(MESSAGE, payload=b"\xff\n"))
    assert b"\n" not in line
    assert json.loads(line)["payload"] == "\ufffd\n"


def test_json_at_qos_0_has_no_packet_id() -> None:
    assert "mid" not in json.loads(compiled("%j")(replace(MESSAGE, qos=0, packet_id=0)))


def test_a_json_payload_can_be_part_of_the_tree() -> None:
    line = compiled("%J")(replace(MESSAGE, payload=b'{"a": [1, null]}'))
    assert json.loads(line)["payload"] == {"a": [1, None]}


@pytest.mark.parametrize("payload", [b"", b"no", b"NaN", b"\xff"])
def test_a_payload_that_is_no_json_is_an_error_of_this_message(payload: bytes) -> None:
    with pytest.raises(ValueError, match=r".*"):
        compiled("%J")(replace(MESSAGE, payload=payload))


def test_without_a_format_the_payload_is_printed_as_it_came() -> None:
    assert payload_only(MESSAGE) == b"h\xff{}"


def test_verbose_prints_the_topic_before_it() -> None:
    assert verbose(MESSAGE) == b"a/b h\xff{}"
    assert verbose(replace(MESSAGE, payload=b"")) == b"a/b (null)"
