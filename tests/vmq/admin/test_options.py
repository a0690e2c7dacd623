"""Options that change while the broker runs."""

import logging
import re
from collections.abc import Iterator

import pytest

from tests.support.peer import Peer
from vmq.admin.errors import AdminError, RefusedError
from vmq.admin.options import FIXED, TAKES_HOLD, list_options, set_option
from vmq.broker import Broker, options_of
from vmq.core import Options


@pytest.fixture
def log_level() -> Iterator[logging.Logger]:
    logger = logging.getLogger("vmq")
    before = logger.level
    yield logger
    logger.setLevel(before)


async def test_a_limit_changes_at_once(node: Broker) -> None:
    me = Peer(node.registry, "me")
    me.subscribe(("t", 1))
    changed = set_option(node, "queue.max_inflight_messages", "2")
    assert (changed.before, changed.value, changed.takes_hold) == (20, 2, "at once")
    assert node.config.queue.max_inflight_messages == 2
    for _ in range(3):
        me.publish("t", qos=1)
    queue = node.registry.subscribers["me"].queue
    assert (len(queue.inflight), queue.waiting()) == (2, 1)


async def test_text_needs_no_quotes(node: Broker) -> None:
    assert set_option(node, "queue.drop", "oldest").value == "oldest"
    assert set_option(node, "queue.drop", '"newest"').value == "newest"
    assert set_option(node, "session.upgrade_outgoing_qos", "true").value is True


async def test_an_upgrade_of_qos_closes_the_fast_path(node: Broker) -> None:
    me = Peer(node.registry, "me")
    me.subscribe(("t", 1))
    set_option(node, "session.upgrade_outgoing_qos", "true")
    me.publish("t", qos=0)
    assert len(node.registry.subscribers["me"].queue.inflight) == 1


async def test_the_log_level_changes(node: Broker, log_level: logging.Logger) -> None:
    set_option(node, "log.level", "error")
    assert log_level.level == logging.ERROR


async def test_flapping_is_watched_by_the_new_limit(node: Broker) -> None:
    set_option(node, "limits.flapping_limit", "3")
    assert node.registry.flapping.limit == 3


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
        ("store.durability", "os", RefusedError, "read at the start only"),
        ("queue.queue_type", "lifo", RefusedError, "laid out in this order"),
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
    assert set(FIXED) | set(TAKES_HOLD) <= set(rows)
    assert rows["queue.drop"].live
    assert rows["queue.drop"].value == "newest"
    assert not rows["store.durability"].live
    assert rows["queue.queue_type"].note == FIXED["queue.queue_type"]
    assert not [name for name in rows if name.startswith("listeners")]


async def test_every_live_option_reaches_the_core(node: Broker) -> None:
    # A running core takes the same path as a new one; what is set live is what a restart would set.
    running = node.registry.core.options
    assert options_of(node.config, running) is running
    fresh = options_of(node.config)
    names = [name for name in dir(Options()) if not name.startswith("_")]
    assert [getattr(running, name) for name in names] == [getattr(fresh, name) for name in names]
