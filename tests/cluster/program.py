"""A node as a process: commands come by lines of its input, events go by lines of its output, both JSON.

python -m tests.cluster.program NAME LISTEN FOLDER [KEY]
"""

import asyncio
import json
import sys
from pathlib import Path
from typing import Any

import uvloop

from vmq_cluster.effects import Acknowledged, Arrived, Changed, Delivered
from vmq_cluster.leveldb import LevelStorage
from vmq_cluster.node import ClusterNode
from vmq_cluster.options import Options

#: Quick enough for tests.
OPTIONS = Options(
    heartbeat_interval=0.1,
    heartbeat_timeout=2.0,
    lazy_interval=0.05,
    graft_timeout=0.2,
    sync_interval=0.5,
    sync_timeout=1.0,
    resend_timeout=0.3,
)


def tell(**event: Any) -> None:
    print(json.dumps(event), flush=True)


def listen_to(node: ClusterNode) -> None:
    """Tells what happens."""
    node.on_peer_up(lambda peer: tell(event="up", peer=peer))
    node.on_peer_down(lambda peer: tell(event="down", peer=peer))
    node.watch("p", lambda each: tell(event="changed", key=each.key.decode(), value=text(each)))
    node.on(Delivered, lambda each: tell(event="broadcast", payload=each.payload.decode()))
    node.on(Acknowledged, lambda each: tell(event="acknowledged", tickets=each.tickets))
    node.on(
        Arrived,
        lambda each: tell(
            event="arrived", peer=each.peer, payloads=[part.decode() for part in each.payloads]
        ),
    )


def text(change: Changed) -> str | None:
    return None if change.value is None else change.value.decode()


async def command(node: ClusterNode, words: list[str]) -> bool:
    """Does one command; returns whether another may come."""
    match words:
        case ["join", address]:
            node.join(address)
        case ["put", key, value]:
            node.put("p", key.encode(), value.encode())
        case ["fill", count]:
            for number in range(int(count)):
                node.put("fill", b"%d" % number, b"v" * 50)
        case ["delete", key]:
            node.delete("p", key.encode())
        case ["items", prefix]:
            tell(event="items", count=len(list(node.items(prefix))))
        case ["send", peer, payload]:
            node.send(peer, payload.encode(), ticket=payload)
        case ["broadcast", payload]:
            node.broadcast(payload.encode())
        case ["members"]:
            tell(event="members", members=sorted(node.members), up=node.up)
        case ["remove", name]:
            node.remove(name)
        case ["leave"]:
            tell(event="left", complete=await node.leave())
            return False
        case _:
            return False
    return True


async def run(name: str, listen: str, folder: str, key: str | None = None) -> None:
    storage = LevelStorage(Path(folder))
    node = ClusterNode(name, listen, storage, key, options=OPTIONS)
    await node.start()
    listen_to(node)
    tell(event="ready", address=node.address)
    reader = asyncio.StreamReader()
    loop = asyncio.get_running_loop()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    while line := await reader.readline():
        if not await command(node, json.loads(line)):
            break
    await node.stop()
    storage.close()


if __name__ == "__main__":
    uvloop.run(run(*sys.argv[1:]))
