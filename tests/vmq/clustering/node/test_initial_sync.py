"""What a node hears from others before it lets anybody in."""

from pathlib import Path

import pytest
from msgspec.structs import replace

from tests.support.until import PATIENCE
from tests.support.wire import subscribe_packet
from tests.vmq.clustering.nodes import address, config, together
from tests.vmq.sockets import session_of
from vmq.broker import Broker


async def test_a_node_that_was_away_knows_what_it_missed_before_it_has_clients(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with Broker(config(tmp_path, "a")) as a:
        async with Broker(config(tmp_path, "b", [address(a)])) as b:
            await together(a, b)
            there = address(b)
        caplog.clear()  # it may have had to go on trying itself
        async with session_of(a, "c") as peer:
            await peer.ask(subscribe_packet(1, ("t", 1)), b"\x90\x03\x00\x01\x01")
            for again in (
                config(tmp_path, "b", listen=there),
                config(tmp_path, "new", [address(a)]),
            ):
                patient = replace(again.cluster, sync_timeout=PATIENCE)
                async with Broker(replace(again, cluster=patient)) as b:
                    assert [each.node for each in b.registry().route(b"t").nodes] == ["a"]
                    assert "not in touch with others" not in caplog.text
    # Who misses all others does not wait for ever.
    async with Broker(config(tmp_path, "b", listen=there)):
        assert "not in touch with others" in caplog.text
