"""A will is asked about when it is due. (Against plugins' files: tests/attacks/test_wills_and_retained.py.)"""

import logging
from collections.abc import Callable
from typing import Any

import pytest
from vmq_hooks import PublishModifiers, Refuse

from tests.support.wire import Will
from tests.vmq.support import House, watcher
from vmq.core.hook_sites import Pending
from vmq.protocol.will_publish import DEADLINE


def judge(house: House, hook: Callable[..., Any]) -> None:
    house.core.hooks.auth_on_publish = hook
    house.core.hooks.resolve()


class Later:
    """Gives its verdict when the test says so; `due` is what waits for a time."""

    def __init__(self, house: House) -> None:
        self.pending: list[Pending] = []
        self.cancelled = 0
        self.due: list[tuple[float, Callable[[], None]]] = []
        house.core.call_later = lambda seconds, call: self.due.append((seconds, call))
        judge(house, self.ask)

    def ask(self, *_arguments: Any) -> Pending:
        self.pending.append(Pending(self.cancel))
        return self.pending[-1]

    def cancel(self) -> None:
        self.cancelled += 1


def test_it_is_published_as_a_plugin_changes_it_now(house: House) -> None:
    watching = watcher(house)
    calls: list[str] = []

    def prefix(_user: Any, _who: Any, message: Any) -> Any:
        calls.append(message.topic)
        return PublishModifiers(topic=f"{len(calls)}/{message.topic}")

    judge(house, prefix)
    house.client("c", will=Will("will", b"x")).lose()
    assert calls == ["will", "will"], "as the client wants it, not as it was changed before"
    assert watching.take_published() == [("2/will", b"x")]


def test_what_is_refused_is_told_and_counted(
    house: House, caplog: pytest.LogCaptureFixture
) -> None:
    watching = watcher(house)
    client = house.client("c", will=Will("will", b"x"), username="alice")
    refusal = Refuse("no")
    refusal.plugin = "strict"
    judge(house, lambda *_: refusal)
    with caplog.at_level(logging.INFO, "vmq.session"):
        client.lose()
    assert watching.take_published() == []
    assert house.core.counters.mqtt_publish_auth_error == 1
    text = 'will refused client=c user="alice" topic="will" plugin=strict reason="no"'
    assert text in caplog.messages


def test_a_verdict_that_comes_in_time_counts(house: House) -> None:
    watching = watcher(house)
    client = house.client("c", will=Will("will", b"x"))
    later = Later(house)
    client.lose()
    assert (watching.take_published(), house.core.awaited_wills) == ([], 1)
    [(seconds, give_up)] = later.due
    assert seconds == DEADLINE
    later.pending[0].finish(None)
    house.settle()
    assert (watching.take_published(), house.core.awaited_wills) == ([("will", b"x")], 0)
    give_up()
    house.settle()
    assert (watching.take_published(), house.core.awaited_wills, later.cancelled) == ([], 0, 0)


def test_without_a_verdict_in_time_it_is_not_published(
    house: House, caplog: pytest.LogCaptureFixture
) -> None:
    watching = watcher(house)
    client = house.client("c", will=Will("will", b"x"))
    later = Later(house)
    client.lose()
    with caplog.at_level(logging.INFO, "vmq.session"):
        later.due[0][1]()
    later.pending[0].finish(None)
    house.settle()
    assert (watching.take_published(), house.core.awaited_wills, later.cancelled) == ([], 0, 1)
    assert 'reason="no verdict within 1 s"' in caplog.text


def test_what_fails_with_a_late_verdict_ends_there(
    house: House, caplog: pytest.LogCaptureFixture
) -> None:
    client = house.client("c", will=Will("will", b"x"))
    later = Later(house)
    client.lose()
    later.pending[0].finish(PublishModifiers(topic="no/+/topic"))
    assert "internal error at the will of client=c" in caplog.text
    assert house.core.awaited_wills == 0
