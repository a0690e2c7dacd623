"""Options that change while the broker runs."""

import re

import pytest

from tests.support.peer import Peer
from vmq.admin.errors import AdminError, NotFoundError, RefusedError
from vmq.admin.options import list_options, reset_option, set_option
from vmq.broker import Broker
from vmq.config.text import toml_value


async def test_a_limit_changes_at_once(node: Broker) -> None:
    me = Peer(node.registry(), "me", ("t", 1))
    changed = set_option(node, "queue.max_inflight_messages", "2")
    assert (changed.before, changed.value) == (20, 2)
    assert node.config.queue.max_inflight_messages == 2
    for _ in range(3):
        me.publish("t", qos=1)
    queue = node.registry().subscribers["me"].queue
    assert (len(queue.inflight), queue.waiting()) == (2, 1)


async def test_text_needs_no_quotes(node: Broker) -> None:
    assert set_option(node, "queue.drop", "oldest").value == "oldest"
    assert set_option(node, "queue.drop", '"newest"').value == "newest"
    assert set_option(node, "session.suppress_lwt_on_session_takeover", "true").value is True


async def test_the_log_changes_where_somebody_looks_after_it(node: Broker) -> None:
    with pytest.raises(RefusedError, match="the program that embeds"):
        set_option(node, "log.level", "error")
    told: list[list[str]] = []
    node.on_change = told.append
    set_option(node, "log.level", "error")
    assert told == [["log.level"]]


async def test_what_was_set_is_listed_with_its_time_until_it_is_reset(node: Broker) -> None:
    def row() -> tuple[object, object, bool]:
        (found,) = [each for each in list_options(node) if each.option == "queue.drop"]
        return found.value, found.configured, found.set_at is not None

    assert row() == ("newest", "newest", False)
    set_option(node, "queue.drop", "oldest")
    assert row() == ("oldest", "newest", True)
    done = reset_option(node, "queue.drop")
    assert (done.before, done.value) == ("oldest", "newest")
    assert row() == ("newest", "newest", False)
    with pytest.raises(NotFoundError, match="is as configured; set live: none"):
        reset_option(node, "queue.drop")
    with pytest.raises(NotFoundError, match="there is no option"):
        reset_option(node, "queue.dorp")


async def test_the_options_of_listeners_are_there_too(node: Broker) -> None:
    assert set_option(node, "listeners.tcp.max_connections", "7").value == 7
    rows = {row.option: row for row in list_options(node)}
    assert rows["listeners.tcp.max_connections"].live
    assert not rows["listeners.tcp.url"].live
    assert rows["listeners.tcp.allowed_protocol_versions"].value == "[3, 4]"
    assert rows["listeners.tcp.keypasswd"].value is None


@pytest.mark.parametrize(
    ("option", "value", "kind", "said"),
    [
        ("queue.max_online_messages", "-2", AdminError, "accepted: a whole number, at least -1"),
        ("queue.drop", "all", AdminError, 'accepted: "newest", "oldest"'),
        ("queue.dorp", "oldest", AdminError, "unknown option"),
        ("cue.drop", "oldest", AdminError, "there is no section 'cue'"),
        ("queue", "1", AdminError, "a table of options"),
        ("", "1", AdminError, "there is no section ''"),
        ("queue.drop.x", "1", AdminError, "accepted"),
        ("store.durability", "os", RefusedError, "change the configuration and restart it"),
        ("queue.queue_type", "lifo", RefusedError, "cannot change while"),
        ("listeners.tcp.url", "tcp://127.0.0.1:0", RefusedError, "cannot change"),
        ("listeners.new.url", "tcp://127.0.0.1:0", RefusedError, "cannot change"),
    ],
)
async def test_refusals_say_what_is_accepted(
    node: Broker, option: str, value: str, kind: type[AdminError], said: str
) -> None:
    before = node.config
    with pytest.raises(kind, match=re.escape(said)):
        set_option(node, option, value)
    assert node.config is before


async def test_every_live_option_can_be_set_to_what_it_is(node: Broker) -> None:
    node.on_change = lambda _: None
    for row in list_options(node):
        if row.live:
            isolated = isinstance(row.value, str) and row.value.startswith(("[", "{"))
            text = str(row.value) if isolated else toml_value(row.value)
            assert set_option(node, row.option, text).value == row.value
    assert not node.live.overrides
