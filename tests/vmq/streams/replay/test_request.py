"""What `$replay/FROM[;option=value].../FILTER` means, and what it is told that means nothing."""

from types import SimpleNamespace
from typing import Any
from urllib.parse import quote

import pytest

from tests.vmq.streams.support import options
from vmq.mqtt import special
from vmq.streams.replay.request import ReplayRequest

NOW = 1_700_000_000.0


def request(text: str) -> ReplayRequest:
    return ReplayRequest("$replay/" + text, NOW)


def streams(**filters: Any) -> Any:
    return {
        name: SimpleNamespace(name=name, fed=True, options=options(filters=each))
        for name, each in filters.items()
    }


@pytest.mark.parametrize(
    ("start", "found"),
    [
        ("earliest", "earliest"),
        ("latest", "latest"),
        ("-15m", int((NOW - 900) * 1_000_000)),
        ("-2d", int((NOW - 172_800) * 1_000_000)),
        ("0", 0),
        ("1699999999", 1_699_999_999_000_000),
        ("2023-11-14T22:00:00Z", 1_699_999_200_000_000),
        ("2023-11-14T22:00:00.5Z", 1_699_999_200_500_000),
        ("2023-11-14T22%3A00:00Z", 1_699_999_200_000_000),
    ],
)
def test_where_it_begins(start: str, found: object) -> None:
    assert request(start + "/a/#").start == found


def test_everything_that_may_be_asked_for() -> None:
    where = quote("payload.temp > 20.0 && topic.startsWith('a/')", safe="")
    found = request(
        f"@b%2Foard;from=earliest;stream=s;as=old%2F1;retain=published;where={where};prefetch=7/a/+/#"
    )
    assert found.name == "b/oard"
    assert (found.start, found.stream, found.prefix) == ("earliest", "s", b"old/1/")
    assert (found.as_published, found.prefetch, found.filter) == (True, 7, "a/+/#")
    assert found.where == "payload.temp > 20.0 && topic.startsWith('a/')"


def test_what_holds_unless_it_is_said() -> None:
    found = request("@n/a")
    seen = (found.start, found.prefix, found.as_published, found.prefetch)
    assert seen == ("latest", b"", False, 1000)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "accepted: $replay/FROM/FILTER"),
        ("earliest", "accepted: $replay/FROM/FILTER"),
        ("earliest/", "accepted: $replay/FROM/FILTER"),
        ("/a", "accepted: $replay/FROM/FILTER"),
        ("+/a", "a wildcard stands here for nothing"),
        ("yesterday/a", "FROM is earliest, latest"),
        ("15m/a", "a time to come"),
        ("2030-01-31T06:00:00Z/a", "a time to come"),
        ("99999999999/a", "a time to come"),
        ("2023-02-31T06:00:00Z/a", "no such time"),
        ("2023-01-31T06:00:00%2B01:00/a", "an offset is not accepted"),
        ("earliest/$share/g/a", "FILTER is an ordinary one"),
        ("earliest/$replay/earliest/a", "FILTER is an ordinary one"),
        ("earliest/$jobs/mail", "FILTER is an ordinary one"),
        ("earliest;colour=red/a", "not an option of $replay/: colour; accepted: stream, from"),
        ("earliest;stream/a", "an option is NAME=VALUE"),
        ("earliest;stream=a;stream=b/a", "each is given once"),
        ("earliest;from=latest/a", "from= is where a cursor begins"),
        ("@n;from=@m/a", "FROM is earliest, latest"),
        ("@" + "n" * 101 + "/a", "at most 100 characters"),
        ("earliest;retain=yes/a", "accepted: published"),
        ("earliest;prefetch=0/a", "prefetch is 1 to 1000"),
        ("earliest;prefetch=1001/a", "prefetch is 1 to 1000"),
        ("earliest;as=$x/a", "as= begins topics"),
        ("earliest;where=/a", "where= is empty"),
        ("earliest;where=" + "1" * 4097 + "/a", "more than 4096 bytes"),
        ("earliest;where=[1].map(x,x)/a", "may not call map"),
        ("earliest;where=topic.matches('a')/a", "may not call matches"),
        (
            "earliest;where='%25' == topic.exists(x,true)/a",
            "an option is NAME=VALUE|may not call exists",
        ),
    ],
)
def test_what_means_nothing(text: str, reason: str) -> None:
    with pytest.raises(special.SpecialTopicError) as caught:
        request(text)
    assert any(each in str(caught.value) for each in reason.split("|"))


@pytest.mark.parametrize(
    "call",
    [
        "map",
        "filter",
        "all",
        "exists",
        "exists_one",
        "existsOne",
        "matches",
        "transformList",
        "cel.bind",
        "sortBy",
    ],
)
def test_what_loops_is_not_let_in(call: str) -> None:
    with pytest.raises(special.SpecialTopicError, match="may not call"):
        request("earliest;where=" + quote(f"[1].{call} (x, x > 1)", safe="") + "/a")


def test_a_text_is_no_call() -> None:
    for text in (
        "'map(' == topic",
        '"a.exists(x)" == topic',
        r"'\'map(' == topic",
        "'''all(''' == topic",
    ):
        assert request("earliest;where=" + quote(text, safe="") + "/a").where == text


def test_the_first_stream_that_keeps_all_of_it() -> None:
    there = streams(b=["a/#"], a=["a/+"], c=["#"])
    assert request("earliest/a/+").stream_of(there).name == "a"
    assert request("earliest/a/#").stream_of(there).name == "b"
    assert request("earliest/x").stream_of(there).name == "c"
    assert request("earliest;stream=b/+/x/#").stream_of(there).name == "b"
    there["a"].fed = False
    assert request("earliest/a/+").stream_of(there).name == "b"


def test_no_stream_keeps_it() -> None:
    there = streams(a=["a/+"])
    with pytest.raises(special.SpecialTopicError, match=r"no stream keeps all topics of a/#"):
        request("earliest/a/#").stream_of(there)
    with pytest.raises(special.SpecialTopicError, match=r"there is no stream 'x'; there are: a"):
        request("earliest;stream=x/a/1").stream_of(there)
    with pytest.raises(
        special.SpecialTopicError, match=r"stream 'a' keeps no topic of b/#; it keeps: a/\+"
    ):
        request("earliest;stream=a/b/#").stream_of(there)
    assert request("earliest;stream=a/#").stream_of(there).name == "a"


def test_as_plugins_see_it() -> None:
    text = "$replay/-1h;as=x;where=true/a/#"
    assert special.is_served(text)
    assert special.is_read(text)
    assert special.canonical(text) == "a/#"
    assert special.history_of(text) == "-1h"
    assert special.with_filter(text, "b/+") == "$replay/-1h;as=x;where=true/b/+"
    assert special.is_served("$share/g/$replay/-1h/a")
    assert special.is_read("$share/g/$replay/-1h/a")
    assert special.canonical("$replay/-1h;x/a") == "$replay/-1h;x/a"
    assert not special.is_read("$jobs/a")
