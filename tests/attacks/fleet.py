"""Some devices of a fleet: python -m tests.attacks.fleet HOST PORT FIRST COUNT SOURCE PASSWORD

They are d FIRST, d FIRST+1 and so on, and connect from the address SOURCE. A line on standard input has all of them
come at once. Whoever is told to come again (CONNACK 3) or loses the connection does so, as devices do; who is in stays.
When all have an answer that is final, a line of JSON tells what they got; they go when the input ends.
"""

import asyncio
import json
import sys
from collections import Counter
from random import Random
from time import monotonic
from typing import Any

from tests.support.wire import connect_packet

UNAVAILABLE = 3
#: Devices of a process that connect at a time: each says CONNECT at once, as one does that has a processor of its own.
AT_A_TIME = 20
#: Seconds before a device comes again: at least, and as many more at most.
PAUSE = 5.0


class Login(asyncio.Protocol):
    """One connection, up to the CONNACK."""

    def __init__(self, connect: bytes) -> None:
        self.connect = connect
        self.got = bytearray()
        self.code: asyncio.Future[int | None] = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: Any) -> None:
        transport.write(self.connect)

    def data_received(self, data: bytes) -> None:
        self.got += data
        if len(self.got) >= 4 and not self.code.done():
            assert self.got[:2] == b"\x20\x02"
            self.code.set_result(self.got[3])

    def connection_lost(self, _error: Exception | None) -> None:
        if not self.code.done():
            self.code.set_result(None)


class Fleet:
    def __init__(self, address: tuple[str, int], source: str, password: str) -> None:
        self.address = address
        self.source = source
        self.password = password
        self.random = Random(source)
        self.gate = asyncio.Semaphore(AT_A_TIME)
        self.told: Counter[str] = Counter()
        self.transports: list[asyncio.BaseTransport] = []

    async def bring(self, name: str) -> None:
        """Has a device log in until its answer is final."""
        connect = connect_packet(name, keep_alive=0, username=name, password=self.password)
        while True:
            told = await self.log_in(connect)
            self.told[told] += 1
            if told.isdigit():
                return
            await asyncio.sleep(PAUSE * (1 + self.random.random()))

    async def log_in(self, connect: bytes) -> str:
        """The code of the CONNACK if that is final, else what there is instead of it."""
        loop = asyncio.get_running_loop()
        try:
            async with self.gate:
                transport, login = await loop.create_connection(
                    lambda: Login(connect), *self.address, local_addr=(self.source, 0)
                )
        except OSError as error:
            return f"no connection: {error.strerror}"
        code = await login.code
        if code == 0:
            self.transports.append(transport)
        else:
            transport.close()
        return "lost" if code is None else "again" if code == UNAVAILABLE else str(code)

    async def come(self, first: int, count: int) -> dict[str, float]:
        """All at once; what they got, and how many seconds it was until the last was in."""
        began = monotonic()
        await asyncio.gather(*(self.bring(f"d{first + number}") for number in range(count)))
        return {**self.told, "seconds": monotonic() - began}


async def main(host: str, port: str, first: str, count: str, source: str, password: str) -> None:
    fleet = Fleet((host, int(port)), source, password)
    print("ready", flush=True)
    sys.stdin.readline()
    print(json.dumps(await fleet.come(int(first), int(count))), flush=True)
    await asyncio.to_thread(sys.stdin.read)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
