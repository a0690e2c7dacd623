"""What an operator asks of partitions: whom they are led by, and what the answer says."""

import asyncio
from collections.abc import Mapping
from pathlib import Path
from unittest.mock import MagicMock, patch

import pytest

from tests.support.until import until
from tests.vmq.cli.program import here
from tests.vmq.clustering.raft.replicas import groups, leader, replicated
from vmq.admin.streams import list_streams
from vmq.broker import Broker
from vmq.clustering.raft.records import node_of

NAMES = ("a", "b", "c")


def behind(broker: Broker, number: int) -> Mapping[str, int | None]:
    """What others lack of a partition that a node leads."""
    standing = groups(broker).places.standing("s", number)
    return {} if standing is None else standing.behind


async def test_leaders_go_where_an_operator_wants_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The answer comes when they are there; a node that is down is not waited for, nor leads by surprise later."""
    async with replicated(tmp_path, *NAMES, partitions=3, admin=True) as brokers:
        a = brokers["a"]
        first = [groups(a).places.replicas("s", number)[0] for number in range(3)]

        async def ask(*arguments: str) -> tuple[int, str]:
            where = ("--data-dir", a.config.broker.data_dir)
            done = await asyncio.to_thread(here, "stream", *arguments, *where)
            return done.code, done.out.decode() + done.err

        told = "".join(f"{node} leads 1 of s: partition {first.index(node)}\n" for node in NAMES)
        assert await ask("rebalance", "s") == (0, told)
        nodes = [*brokers.values()]
        await until(lambda: all(groups(each).places.figures()["led"] == 1 for each in nodes))
        assert not [*groups(a).picture._records.all("wish")], "taken back by those who lead"
        assert [(await list_streams(each).rows())[0].owned for each in nodes] == [1, 1, 1]
        number = first.index("c")
        partition = ("s", "--partition", str(number))
        moved = await ask("move", *partition, "--to", "b", "--to", "c", "--to", "a")
        assert moved[1].startswith(f"partition {number} of s goes to b, c, a: ")
        await until(lambda: leader(a, number) == "b")
        assert await ask("transfer", *partition, "--to", "c") == (
            0,
            f"c leads 1 of s: partition {number}\n",
        )

        await brokers.pop("c").stop()
        await until(lambda: leader(a, number) in ("a", "b"))
        code, text = await ask("transfer", *partition, "--to", "c")
        assert code == 1
        assert "'c' cannot be reached" in text
        assert (await ask("rebalance", "s"))[0] == 0
        # That it is to lead was noted a moment before it went.
        requests, place = groups(a).requests, groups(a).places.places["s", number]
        [away] = [each for each in place.voters if node_of(each) == "c"]
        requests._records.put(away.encode(), "wish", place.group)
        with patch.object(requests, "wish", lambda *_: ""):
            assert "c: cannot be reached" in await requests.transfer("s", number, "c")
        await until(lambda: not [*groups(a).picture._records.all("wish")])
        # To a leader that has never heard of it a copy lacks nobody knows how much.
        other = "a" if leader(a, number) == "b" else "b"
        assert (await ask("transfer", *partition, "--to", other))[0] == 0
        await until(lambda: behind(brokers[other], number) == {"c": None})

        await brokers.pop(other).stop()
        [last] = brokers
        await until(lambda: not any(leader(brokers[last], each) for each in range(3)))
        requests = groups(brokers[last]).requests
        for each in ("_HANDING_OVER", "_LEADING"):
            monkeypatch.setattr(f"vmq.clustering.raft.requests.{each}", 0.0)
        assert "nobody leads it" in await requests.transfer("s", number, last)
        # It takes a moment to lead what it goes on with alone.
        monkeypatch.setattr(requests._places, "leaders", MagicMock(get=lambda *_: ""))
        assert "not done yet" in await requests.recover("s", None, (), force=True)


async def test_a_wish_outlives_what_nodes_believe_of_leaders_that_are_none(tmp_path: Path) -> None:
    async with replicated(tmp_path, *NAMES) as brokers:
        led = leader(brokers["a"])
        other, asked = (brokers[each] for each in NAMES if each != led)
        requests, places = groups(asked).requests, groups(asked).places
        name, group = groups(other).places.name, places.places["s", 0].group
        places.lead(group, name)  # as if it had led until a moment ago
        asking = asyncio.create_task(requests.transfer("s", 0, node_of(name)))
        await asyncio.sleep(0)
        requests.follow()
        assert requests._records.get("wish", group) == name.encode()
        # A leader that is none any more, and does not know it, takes the wish back all the same.
        requests._records.delete("wish", group)
        places.lead(group, "")
        assert await asking == ""
        assert leader(other) == node_of(name)
