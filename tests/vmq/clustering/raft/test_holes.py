"""What no copy of a partition has whole keeps it from getting copies, until an operator gives it up."""

import asyncio
from pathlib import Path
from random import randbytes

from tests.support.until import until
from tests.vmq.cli.program import here
from tests.vmq.clustering.nodes import clustering
from tests.vmq.clustering.raft.replicas import groups, is_led, leader, payloads, replicated
from tests.vmq.clustering.stream_nodes import read, stream, with_streams
from tests.vmq.sockets import peer_of
from tests.vmq.streamed import streams_of
from tests.vmq.streams.replay.test_port import payload_of, reading
from vmq.admin.streams import show_stream
from vmq.broker import Broker
from vmq.streams.log.errors import DamagedError

NAMES = ("a", "b", "c")


def damage(broker: Broker, *payloads: bytes) -> None:
    """Flips a bit of each of these messages in an old segment, and has it found."""
    partition = stream(broker, "s").partitions[0]
    path = partition.sealed[0].path
    raw = path.read_bytes()
    with path.open("r+b") as file:
        for payload in payloads:
            at = raw.index(payload)
            file.seek(at)
            file.write(bytes([raw[at] ^ 4]))
    partition.note(DamagedError(path, 0, partition.sealed[0].base, "a test"))


async def test_what_no_copy_has_is_given_up_and_new_copies_are_made(tmp_path: Path) -> None:
    async with replicated(tmp_path, *NAMES, segment_bytes=65_536, admin=True) as brokers:
        rows = [b"%03d" % number + randbytes(40).hex().encode() for number in range(400)]
        for row in rows:
            await brokers["a"].publish("s/t", row, qos=1)
        await until(lambda: all(len(payloads(each)) == 400 for each in brokers.values()))
        first = leader(brokers["a"])
        one, other = (each for each in NAMES if each != first)
        damage(brokers[one], rows[2], rows[4])
        damage(brokers[other], rows[2], rows[5])
        damage(brokers[first], rows[2], rows[3])
        at_leader = ("--data-dir", brokers[first].config.broker.data_dir)
        places = groups(brokers[first]).places
        group = places.places["s", 0].group
        health = brokers[first].health
        await until(lambda: any("are damaged here, where it is led" in each for each in health()))
        made = stream(brokers["a"], "s").options
        join = clustering(brokers["a"]).node.address
        brokers["d"] = d = Broker(with_streams(tmp_path, "d", join, flight=True, s=made))
        await d.start()
        await until(lambda: clustering(d).streams.replicas.groups is not None and is_led(d))
        # As soon as it knows of all three that they are on hosts of their own.
        await until(lambda: not groups(d).requests.move("s", 0, [first, one, "d"]))
        elsewhere = ("--data-dir", brokers[one].config.broker.data_dir)
        refused = await asyncio.to_thread(here, "stream", "accept-loss", "s", *elsewhere)
        assert "gives up what is damaged of what it leads" in refused.err
        assert not payloads(d), "it can be given to nobody"
        done = await asyncio.to_thread(here, "stream", "accept-loss", "s", *at_leader)
        assert done.code == 0, done.err
        left = [each for each in rows if each != rows[2]]
        await until(lambda: sorted(places.replicas("s", 0)) == sorted((first, one, "d")))
        copies = [brokers[name] for name in (first, one, "d")]
        await until(lambda: not any(stream(each, "s").partitions[0].flaws for each in copies))
        await until(lambda: all(payloads(each) == left for each in copies))
        await until(lambda: not any("damaged" in each for each in health()))
        await until(lambda: bool(groups(d).places.here.standings[group].given_up))
        [(begin, end)] = (await show_stream(d, "s")).partitions[0].given_up
        assert end - begin == 1
        tail = ("stream", "tail", "s", "-n", "1000", "--from", "earliest", "--json")
        shown = await asyncio.to_thread(here, *tail, *at_leader)
        assert len(shown.out.splitlines()) == len(left), shown.err
        await until(lambda: groups(d).places.is_here("s", 0))
        location = streams_of(d).listeners[0].url
        assert await asyncio.to_thread(read, location, "s") == left, "Arrow Flight"
        async with peer_of(d) as peer:
            await reading(peer, "$replay/earliest/s/#")
            assert [await payload_of(peer) for _ in left] == [each.decode() for each in left]
        await d.publish("s/t", b"more", qos=1)
        await until(lambda: payloads(d) == [*left, b"more"])
        again = await asyncio.to_thread(here, "stream", "accept-loss", "s", *at_leader)
        assert "nothing of stream 's' may be lost" in again.err
