"""What handles ask of the broker: clients by name, as far as the other files do not show it."""

from pathlib import Path

from vmq_hooks import Plugin, SubscriberId

from tests.support.present import present
from tests.support.until import until
from tests.support.wire import PINGREQ_BYTES, PINGRESP_BYTES, Will
from tests.vmq.plugins.support import peer_of, serving


async def test_the_connections_of_users_end_and_their_sessions_stay(tmp_path: Path) -> None:
    async with serving(tmp_path, {"any": Plugin()}) as broker:
        handle = present(broker.plugins.loaded["any"].handle)
        async with peer_of(broker) as gone, peer_of(broker) as also, peer_of(broker) as stays:
            await gone.connect("gone", clean=False, username="eve")
            await also.connect("also", username="mallory")
            await stays.connect("stays", username="bob")
            await handle.publish("a", b"")  # a client of the broker's own, without a name
            assert await handle.disconnect_users(["eve", "mallory", "nobody"]) == 2
            assert (await gone.rest(), await also.rest()) == (b"", b"")
            await stays.ask(PINGREQ_BYTES, PINGRESP_BYTES)
            assert set(broker.registry().subscribers) >= {"gone", "stays"}
            assert "also" not in broker.registry().subscribers
            assert await handle.disconnect_users(["eve"]) == 0


async def test_who_is_ended_so_or_has_lost_it_leaves_no_will(tmp_path: Path) -> None:
    async with serving(tmp_path, {"any": Plugin()}) as broker, broker.subscribe("wills/+") as wills:
        handle = present(broker.plugins.loaded["any"].handle)
        async with peer_of(broker) as eve, peer_of(broker) as bob, peer_of(broker) as ann:
            for peer, name in ((eve, "eve"), (bob, "bob"), (ann, "ann")):
                await peer.connect(name, username=name, will=Will(f"wills/{name}", b"x"))
            assert await handle.disconnect_users(["eve"]) == 1
            assert await handle.drop_wills(["bob", "nobody"]) == 1
            assert await handle.drop_wills(["bob"]) == 0
            await bob.ask(PINGREQ_BYTES, PINGRESP_BYTES)
            bob.writer.close()
            await until(lambda: "bob" not in broker.registry().subscribers)
            ann.writer.close()
            assert (await anext(wills)).topic == "wills/ann"


async def test_nobody_is_asked_about_a_client_that_there_is_not(tmp_path: Path) -> None:
    async with serving(tmp_path, {"any": Plugin()}) as broker:
        handle = present(broker.plugins.loaded["any"].handle)
        assert await handle.reauthorize(SubscriberId("nobody")) == 0
        assert await handle.reauthorize(SubscriberId("nobody", "elsewhere")) == 0
        assert list(broker.registries) == [""]
