"""Functions that plugins bring to the expressions of mappings."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import msgspec
import pytest
from vmq_hooks import Plugin, hook
from vmq_hooks.answers import AnswerError
from vmq_hooks.testing import call

from tests.support.until import until
from tests.support.wire import publish_packet
from tests.vmq.jobs.mappings.test_mapping import options
from tests.vmq.jobs.mqtt.test_publishing import bodies, connected
from tests.vmq.jobs.serving import TCP, config_of
from tests.vmq.sockets import peer_of
from vmq.admin.jobs.mappings import list_mappings
from vmq.broker import Broker
from vmq.config.checks import check
from vmq.config.mappings import MappingOptions
from vmq.config.options import Config, ConfigError
from vmq.config.plugins import PluginOptions
from vmq.plugins.loading import LoadError
from vmq.plugins.starting import PluginError
from vmq.runtime.errors import StartError

HOT = options(
    "sensors/#", "$jobs/alerts", where="celsius(json) > 30.0", payload="string(celsius(json))"
)


class Units(Plugin):
    @hook
    def expression_functions(self) -> Mapping[str, Callable[..., Any]]:
        return {"celsius": self.celsius}

    def celsius(self, fahrenheit: Any) -> float:
        if fahrenheit == "exit":
            raise SystemExit(0)
        return float((fahrenheit - 32) / 1.8)


class Others(Plugin):
    @hook
    def expression_functions(self) -> Mapping[str, Callable[..., Any]]:
        return {"celsius": lambda _value: 0.0, "twice": lambda value: value * 2}


def config(folder: Path, mappings: dict[str, MappingOptions], **plugins: PluginOptions) -> Config:
    return msgspec.structs.replace(config_of(folder), mappings=mappings, plugins=plugins)


async def test_an_expression_calls_what_a_plugin_brings(tmp_path: Path) -> None:
    given = {"units": Units(), "others": Others()}
    async with (
        Broker(config(tmp_path, {"hot": HOT}), plugins=given) as broker,
        peer_of(broker, TCP) as device,
    ):
        await connected(device, "device")
        for number, payload in enumerate((b"50", b"212", b'"warm"', b'"exit"'), 1):
            device.send(publish_packet("sensors/a", payload, qos=1, packet_id=number))
            await device.expect(bytes([0x40, 2, 0, number]))
        assert bodies(broker, b"alerts") == [b"100"]
        (row,) = list_mappings(broker)
        assert (row.seen, row.sent, row.failed) == (4, 1, 2), "what it raises fails that message"
        guard = broker.plugins.guards["units"]
        assert guard.errors["expression_functions"] == 2
        assert guard.failures == 0, "no client opens a plugin's breaker by what it sends"
        await broker.plugins.disable("units")
        assert broker.plugins.functions().keys() == {"celsius", "twice"}, "the other's counts now"
        await broker.plugins.disable("others")
        assert any("there is no function celsius" in each for each in broker.health())
        device.send(publish_packet("sensors/a", b"212", qos=1, packet_id=5))
        await device.expect(bytes([0x40, 2, 0, 5]))
        await until(lambda: list_mappings(broker)[0].failed == 3)
        await broker.plugins.enable("units")
        device.send(publish_packet("sensors/a", b"212", qos=1, packet_id=6))
        await device.expect(bytes([0x40, 2, 0, 6]))
        assert bodies(broker, b"alerts") == [b"100", b"100"]


async def test_a_function_that_there_is_not_is_told_as_soon_as_that_is_known(
    tmp_path: Path,
) -> None:
    wrong = {"hot": options("a", "b", where="kelvin(json) > 3.0")}
    text = r"mappings\.hot\.where: .*column 1: there is no function kelvin; known: .*"
    with pytest.raises(ConfigError, match=text.replace(r": .*column", ".*column")):
        check(config(tmp_path, wrong))
    with_plugins = config(tmp_path, wrong, units=PluginOptions())
    check(with_plugins)  # which functions it brings is not known before it runs
    broker = Broker(config(tmp_path, wrong), plugins={"units": Units()})
    with pytest.raises((StartError, ConfigError), match=r"kelvin; known: .*celsius"):
        await broker.start()


@pytest.mark.parametrize("name", ["map", "filter", "all", "exists", "exists_one", "matches"])
def test_no_plugin_gives_back_what_loops(tmp_path: Path, name: str) -> None:
    wrong = {"hot": options("a", "b", where=f"json.{name}(x, true)")}
    with pytest.raises(ConfigError, match=f"there is no function {name}"):
        check(config(tmp_path, wrong, units=PluginOptions()))


@pytest.mark.parametrize(
    "answer", [["celsius"], {"a b": len}, {"celsius": 7}, {7: len}, dict.fromkeys("é", len)]
)
def test_what_is_no_function_is_refused(answer: Any) -> None:
    class Wrong(Plugin):
        @hook
        def expression_functions(self) -> Any:
            return answer

    with pytest.raises(AnswerError):
        call(Wrong(), "expression_functions")


async def test_nobody_waits_for_functions(tmp_path: Path) -> None:
    class Late(Plugin):
        @hook
        async def expression_functions(self) -> Any:
            return {}

    with pytest.raises((StartError, PluginError, LoadError), match="cannot be async def"):
        await Broker(config_of(tmp_path), plugins={"late": Late()}).start()
