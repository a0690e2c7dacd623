"""Changes of a configuration are taken over as a whole or not at all, whatever brings them."""

import msgspec
import pytest

from vmq.config.configured import Configured
from vmq.config.options import Config, ConfigError, ListenerOptions, QueueOptions
from vmq.config.overrides import LiveConfig
from vmq.config.reload import ReloadError

LIMIT = "queue.max_online_messages"


class Follower(Configured):
    """Notes what it is told, and may fail at it."""

    def __init__(self, config: Config | None = None) -> None:
        super().__init__(config or Config())
        self.told: list[tuple[list[str], int]] = []
        self.heard: list[list[str]] = []
        self.on_change = self.heard.append
        self.error: Exception | None = None

    def _follow(self, live: LiveConfig, changed: list[str]) -> None:
        if self.error is not None:
            raise self.error
        self.told.append((changed, live.config.queue.max_online_messages))


def with_limit(limit: int) -> Config:
    return msgspec.structs.replace(Config(), queue=QueueOptions(max_online_messages=limit))


def test_what_changed_is_followed_and_told() -> None:
    follower = Follower()
    assert follower.reload(with_limit(7)) == [LIMIT]
    assert follower.set_option(LIMIT, "8") == [LIMIT]
    assert follower.config.queue.max_online_messages == 8
    assert follower.reset_option(LIMIT) == [LIMIT]
    assert follower.config == with_limit(7)
    assert follower.told == [([LIMIT], 7), ([LIMIT], 8), ([LIMIT], 7)]
    assert follower.heard == [[LIMIT]] * 3


def test_what_stays_as_it_was_is_followed_and_not_told() -> None:
    follower = Follower()
    assert follower.reload(Config()) == []
    assert [changed for changed, _ in follower.told] == [[]]
    assert follower.heard == []


def test_what_is_refused_changes_nothing() -> None:
    follower = Follower()
    open_to_all = {"open": ListenerOptions(url="tcp://0.0.0.0:0")}
    with pytest.raises(ConfigError):
        follower.reload(msgspec.structs.replace(Config(), listeners=open_to_all))
    with pytest.raises(ReloadError):
        follower.set_option("queue.queue_type", "lifo")
    with pytest.raises(ConfigError):
        follower.set_option("queue.nonsense", "1")
    with pytest.raises(KeyError):
        follower.reset_option(LIMIT)
    assert (follower.config, follower.told, follower.heard) == (Config(), [], [])


def test_who_cannot_follow_stays_with_what_it_had() -> None:
    follower = Follower()
    follower.error = OSError("no")
    with pytest.raises(OSError, match="no"):
        follower.reload(with_limit(7))
    assert (follower.config, follower.heard) == (Config(), [])


def test_one_that_is_impossible_is_refused_at_once() -> None:
    with pytest.raises(ConfigError):
        Follower(Config(listeners={"open": ListenerOptions(url="tcp://0.0.0.0:0")}))
