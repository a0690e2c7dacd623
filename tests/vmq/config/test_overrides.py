"""What stays of options that were set live when the configuration is read again."""

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from vmq.config.options import Config, QueueOptions, value_of
from vmq.config.overrides import LiveConfig, replaced

ONLINE = "queue.max_online_messages"
OFFLINE = "queue.max_offline_messages"


def file(**queue: Any) -> Config:
    return Config(queue=QueueOptions(**queue))


def test_options_of_listeners_can_be_set_until_their_listener_goes() -> None:
    key = "listeners.ws.max_connections"
    live = LiveConfig.of(Config()).with_option(key, "5", 1.0)
    assert live.config.listeners["ws"].max_connections == 5
    listeners = {"tcp": Config().listeners["tcp"]}
    assert live.on(Config(listeners=listeners)).config == Config(listeners=listeners)


VALUES = st.integers(-1, 3)
STEPS = st.lists(
    st.tuples(st.sampled_from(["set", "reset", "file"]), st.sampled_from([ONLINE, OFFLINE]), VALUES)
)


@settings(max_examples=40)
@given(STEPS)
def test_any_history_ends_as_two_plain_tables_say(steps: list[tuple[str, str, int]]) -> None:
    """Against a model: what the file says, and what was set over it."""
    base = {key: int(str(value_of(Config(), key))) for key in (ONLINE, OFFLINE)}
    over: dict[str, int] = {}
    live = LiveConfig.of(Config())
    for what, key, value in steps:
        if what == "set":
            live = live.with_option(key, str(value), 1.0)
            over[key] = value
        elif what == "reset" and key in live.overrides:
            live = live.without(key)
            del over[key]
        elif what == "file":
            live = live.on(replaced(live.base, key, value))
            if base[key] != value:
                over.pop(key, None)
            base[key] = value
        over = {name: each for name, each in over.items() if each != base[name]}
        assert {name: each.value for name, each in live.overrides.items()} == over
        for name, stated in base.items():
            assert value_of(live.base, name) == stated
            assert value_of(live.config, name) == over.get(name, stated)
