"""Options that change while the broker runs."""

import logging
import re
from collections.abc import Iterator

import pytest

from tests.support.peer import Peer
from vmq.admin.errors import AdminError, RefusedError
from vmq.admin.options import list_options, set_option
from vmq.broker import Broker
from vmq.config_text import toml_value


@pytest.fixture
def log_level() -> Iterator[logging.Logger]:
    logger = logging.getLogger("vmq")
    before = logger.level
    yield logger
    logger.setLevel(before)


async def test_a_limit_changes_at_once(node: Broker) -> None:
    me = Peer(node.registry(), "me")
    me.subscribe(("t", 1))
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


async def test_the_log_level_changes(node: Broker, log_level: logging.Logger) -> None:
    set_option(node, "log.level", "error")
    assert log_level.level == logging.ERROR


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


async def test_the_list_names_every_option_and_its_fate(node: Broker) -> None:
    rows = {row.option: row for row in list_options(node)}
    assert (rows["queue.drop"].value, rows["queue.drop"].live) == ("newest", True)
    assert not rows["store.durability"].live
    assert not [name for name in rows if name.startswith("listeners")]
    set_option(node, "queue.drop", "oldest")
    assert {row.option: row.value for row in list_options(node)}["queue.drop"] == "oldest"


async def test_every_live_option_can_be_set_to_what_it_is(node: Broker) -> None:
    for row in list_options(node):
        if row.live:
            changed = set_option(node, row.option, toml_value(row.value))
            assert changed.value == row.value
