"""Which changes of the configuration a running broker takes over."""

from pathlib import Path
from typing import Any

import msgspec
import pytest

from vmq import Broker
from vmq.config.core import options_of
from vmq.config.load import load
from vmq.config.options import Config, ConfigError, ListenerOptions
from vmq.config.reference import reference
from vmq.config.reload import Change, ReloadError, changes, check_live, live_keys
from vmq.core.context import CoreOptions


def changed(base: Config | None = None, **sections: dict[str, Any]) -> Config:
    config = base or Config()
    return msgspec.structs.replace(
        config,
        **{
            name: msgspec.structs.replace(getattr(config, name), **options)
            for name, options in sections.items()
        },
    )


def test_each_change_is_named_with_whether_it_is_live() -> None:
    new = changed(queue={"max_online_messages": 1, "queue_type": "lifo"}, log={"level": "error"})
    assert changes(Config(), new) == [
        Change("log.level", live=True),
        Change("queue.max_online_messages", live=True),
        Change("queue.queue_type", live=False),
    ]


def test_listeners_come_go_and_change_with_a_restart() -> None:
    listeners = {
        "tcp": ListenerOptions(url="tcp://127.0.0.1:1884"),
        "http": Config().listeners["http"],
        "more": ListenerOptions(url="tcp://127.0.0.1:1885"),
    }
    found = changes(Config(), Config(listeners=listeners))
    seen = [change.key for change in found]
    assert seen == ["listeners.tcp.url", "listeners.ws", "listeners.more"]
    with pytest.raises(ReloadError, match=r"listeners\.tcp\.url, listeners\.ws"):
        check_live(found)


def test_the_reference_marks_what_is_live() -> None:
    section = ""
    marked: dict[str, bool] = {}
    live = False
    for line in reference().split("# [plugins.NAME]")[0].splitlines():
        if line.startswith("["):
            section = line.strip("[]")
        elif line.startswith("# ") and not line.endswith(" ="):
            live = line.endswith("(live)")
        elif "=" in line and section not in {"listeners.ws", "listeners.http"}:
            marked[f"{section}.{line.lstrip('# ').split(' =')[0]}"] = live
    also = ("listeners.ws.", "listeners.http.")
    wanted = live_keys(Config())
    assert marked == {key: live for key, live in wanted.items() if not key.startswith(also)}


def options(broker: Broker) -> CoreOptions:
    return broker.parts.core.options


async def test_every_live_option_reaches_the_core(embedded: Broker) -> None:
    """Whatever is marked live and known to the core is what a new broker would have."""
    new = changed(
        embedded.config,
        queue={
            "max_inflight_messages": 3,
            "max_online_messages": 4,
            "max_offline_messages": 5,
            "max_msgs_per_drain_step": 6,
        },
        session={
            "max_client_id_size": 50,
            "shared_subscription_policy": "random",
            "suppress_lwt_on_session_takeover": True,
            "disconnect_on_unauthorized_publish_v3": True,
        },
        store={"max_uncommitted_writes": 7},
        cluster={
            f"allow_{each}_during_netsplit": False
            for each in ("register", "publish", "subscribe", "unsubscribe")
        },
    )
    embedded.reload(new)
    held, fresh = options(embedded), options_of(new)
    assert held.max_uncommitted_writes == 7
    names = [name for name in dir(fresh) if not name.startswith("_")]
    assert {name: getattr(held, name) for name in names} == {
        name: getattr(fresh, name) for name in names
    }


async def test_one_fixed_option_keeps_all_others_from_changing(embedded: Broker) -> None:
    before = embedded.config
    new = changed(
        before,
        queue={"max_inflight_messages": 3, "queue_type": "lifo"},
        store={"cache_size": 70000},
    )
    with pytest.raises(ReloadError) as caught:
        embedded.reload(new)
    assert caught.value.keys == ("queue.queue_type", "store.cache_size")
    assert embedded.config is before
    assert options(embedded).max_inflight_messages == 20


async def test_an_impossible_configuration_changes_nothing(embedded: Broker) -> None:
    new = changed(embedded.config, queue={"max_inflight_messages": -5})
    with pytest.raises(ConfigError, match=r"queue\.max_inflight_messages"):
        embedded.reload(new)
    assert options(embedded).max_inflight_messages == 20


async def test_what_was_sent_before_retries_were_on_is_not_due_at_once(embedded: Broker) -> None:
    async with embedded.subscribe("a", qos=1) as messages:
        (subscriber,) = embedded.registry().subscribers.values()
        await embedded.publish("a", b"1", qos=1)
        # Unread by its client, so that it stays unacknowledged for the moment.
        from vmq.mqtt.message import Delivery, Message

        delivery = Delivery(Message(b"a", b"2", 1, False), 1, False, "")
        delivery.packet_id = 7
        subscriber.queue.inflight.put(delivery)
        embedded.reload(changed(embedded.config, session={"retry_interval": 5.0}))
        assert delivery.sent_at > 0
        subscriber.queue.inflight.remove(delivery)
        assert (await anext(messages)).payload == b"1"


def test_the_reference_can_be_loaded_and_is_no_change(tmp_path: Path) -> None:
    file = tmp_path / "vmq.toml"
    file.write_text(reference())
    assert changes(Config(), load(file).config) == []
