"""What is refused when mappings are read, and what one makes of a message."""

import json
import re
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from vmq.config.mappings import MappingOptions, mapping_problems
from vmq.jobs.mappings.mapping import LONGEST_JSON, Mapped, MappingError, MessageMapping, Seen


def options(source: str, *to: str, **others: Any) -> MappingOptions:
    return msgspec.convert({"from": source, "to": list(to), **others}, MappingOptions)


def problems(**mappings: MappingOptions) -> list[tuple[str, str]]:
    return list(mapping_problems(mappings))


def made(found: MappingOptions, topic: str, payload: bytes) -> list[Mapped]:
    return MessageMapping("m", found).map(Seen(topic, payload, 1, False, "c", 1_700_000_000.0))


@pytest.mark.parametrize(
    ("key", "flaw", "changes"),
    [
        ("from", "misplaced #", {"source": "a/#/b"}),
        ("from", "does not begin with \\$", {"source": "$SYS/#"}),
        ("from", "without options", {"source": "$jobs/q;retry=1"}),
        ("where", "column 13: it ends there", {"where": "json.value >"}),
        ("where", "column 6: there is no nope; known: topic", {"where": "1 == nope"}),
        ("where", "column 5: there is no function map; known: bytes", {"where": "[1].map(x, x)"}),
        ("where", "no function matches", {"where": "topic.matches('a+')"}),
        ("where", "more than 4096", {"where": "'" + 4096 * "a" + "' == topic"}),
        ("payload", "it is empty", {"payload": " "}),
        ("to", "wildcard", {"to": ["a/+"]}),
        ("to", "accepted: a topic", {"to": ["$SYS/x"]}),
        ("to", "accepted: a topic", {"to": ["$replay/earliest/x"]}),
        ("to", "accepted: \\$jobs/QUEUE", {"to": ["$jobs/q/ack"]}),
        ("to", "accepted: \\$jobs/QUEUE", {"to": ["$jobs/$delayed"]}),
        ("to", "there is no site", {"to": ["a/${site}"]}),
        ("to", "without }", {"to": ["a/${level(1)"]}),
        ("to", "stands here for nothing", {"to": ["$delayed/2030-01-31T06:00:00+01:00/x"]}),
    ],
)
def test_what_is_wrong_is_told_with_key_and_column(
    key: str, flaw: str, changes: dict[str, Any]
) -> None:
    wanted = {"source": "sensors/+/temp", "to": ["x"], **changes}
    found = options(wanted.pop("source"), *wanted.pop("to"), **wanted)
    ((where, what),) = problems(m=found)
    assert where == f"m.{key}"
    assert re.search(flaw, what), what


def test_circles_are_refused() -> None:
    assert "m.to" in dict(problems(m=options("sensors/#", "sensors/hot")))
    assert "m.to" in dict(problems(m=options("a/+", "${level(1)}/x")))
    assert "m.to" in dict(problems(m=options("$jobs/q@g", "$jobs/q;retry=1")))
    round_about = {"m": options("a", "$jobs/b"), "n": options("$jobs/b", "$delayed/1h/a")}
    assert dict(problems(**round_about)).keys() == {"m.to", "n.to"}
    straight = {
        "m": options("a/+", "b/${level(2)}", "$jobs/a"),
        "n": options("b/#", "$jobs/b"),
        "o": options("$jobs/orders@audit", "$jobs/done", "seen"),
    }
    assert not problems(**straight)
    assert "o.to" in dict(problems(**straight, p=options("seen", "$jobs/${level(1)}")))


def test_a_message_is_wanted_and_becomes_something_else() -> None:
    found = options(
        "sensors/+/temp",
        "$jobs/alerts",
        "alerts/${level(2)}",
        where="json.value > 30.0 && level(2) != 'test'",
        payload="{'site': level(2), 'value': json.value}",
    )
    assert not problems(m=found)
    outs = made(found, "sensors/zagreb/temp", b'{"value": 31.5}')
    assert [each.target for each in outs] == ["$jobs/alerts", "alerts/zagreb"]
    assert {each.body for each in outs} == {b'{"site":"zagreb","value":31.5}'}
    assert made(found, "sensors/zagreb/temp", b'{"value": 31}')
    assert made(found, "sensors/zagreb/temp", b'{"value": 30}') == []
    assert made(found, "sensors/test/temp", b'{"value": 99}') == []
    for wrong in (b"", b"{", b"[]", b'{"value": "x"}', b"[" * 50_000, b"1" * LONGEST_JSON + b"1"):
        with pytest.raises(MappingError):
            made(found, "sensors/zagreb/temp", wrong)


def test_what_expressions_see() -> None:
    text = "topic + string(qos) + (retain ? 'r' : 'n') + client_id + levels[1] + level(9) + string(time)"
    ((_, body),) = made(options("a/b", "x", payload=text), "a/b", b"")
    assert body == b"a/b1ncb2023-11-14T22:13:20+00:00"
    assert made(options("a/b", "x", payload="payload"), "a/b", b"\xff")[0].body == b"\xff"
    with pytest.raises(MappingError, match="neither true nor false"):
        made(options("a/b", "x", where="topic"), "a/b", b"")


@settings(max_examples=50)
@given(st.text(max_size=20))
def test_an_expansion_is_one_level(text: str) -> None:
    """Nobody writes a topic of several levels, or one that begins with $, by what he publishes."""
    found = options("a", "alerts/${json}", "$jobs/${json}")
    try:
        outs = made(found, "a", json.dumps(text).encode())
    except MappingError:
        assert not text or text[0] == "$" or set(text) & set("/+#\0") or max(text) >= "\ud800"
        return
    assert outs[0].target == "alerts/" + text
    assert outs[1].target.count("/") == 1
    assert ";" not in outs[1].target


JSON = st.dictionaries(
    st.sampled_from(["v", "site", "x"]),
    st.none() | st.booleans() | st.integers(-3, 3) | st.sampled_from([1.5, "a", "a/b", {"v": 1}]),
)


@settings(max_examples=60)
@given(
    st.sampled_from(["json.v > 1", "json.v.v == 1", "json.v == json.x", "json.site == 'json.v'"]),
    st.sampled_from([None, "json.v", "{'v': json.v, 'of': level(1)}"]),
    st.sampled_from(["b/${json.site}", "$jobs/${string(json.v)}"]),
    st.lists(JSON.map(lambda each: json.dumps(each).encode()) | st.just(b"no"), max_size=4),
)
def test_members_alone_make_of_messages_what_the_whole_makes(
    where: str, payload: str | None, to: str, bodies: list[bytes]
) -> None:
    """One mapping sees several messages: what one had is not there for the next."""
    quick, whole = (
        MessageMapping("m", options("a/#", to, where=where, payload=payload)) for _ in range(2)
    )
    assert quick._quick is not None
    whole._quick = None

    def outcome(mapping: MessageMapping, body: bytes) -> list[Mapped] | str:
        try:
            return mapping.map(Seen("a/b", body, 1, False, "c", 0.0))
        except MappingError as error:
            return str(error)

    for body in bodies:
        assert outcome(quick, body) == outcome(whole, body)
