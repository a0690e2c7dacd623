"""Brokers in the test's process that are nodes of one cluster, with jobs and clients of each."""

from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
from redis.asyncio import Redis

from tests.support.present import present
from tests.support.until import until
from tests.vmq.clustering.nodes import address, config
from tests.vmq.jobs.serving import named, port_of
from vmq.broker import Broker
from vmq.config.jobs import JobOptions
from vmq.config.options import Config, ListenerOptions
from vmq.jobs.machine import JobMachine
from vmq.jobs.nodes import JobNodes
from vmq.jobs.queue import STATE_NAMES


def job_config(
    folder: Path,
    name: str,
    join: list[str],
    jobs: Mapping[str, JobOptions] | None = None,
    host: str = "",
) -> Config:
    found = config(folder, name, join)
    listeners = {
        "jobs": ListenerOptions(url="resp://127.0.0.1:0", admin=True),
        "tcp": ListenerOptions(url="tcp://127.0.0.1:0"),
    }
    cluster = msgspec.structs.replace(found.cluster, host=host)
    return msgspec.structs.replace(
        found, listeners=listeners, jobs=dict(jobs or {}), cluster=cluster
    )


class JobNode:
    def __init__(self, name: str, broker: Broker, redis: Any) -> None:
        self.name = name
        self.broker = broker
        self.redis = redis

    async def __call__(self, *words: Any) -> Any:
        return await self.redis.execute_command(*words)

    def again(self) -> Any:
        return Redis(port=port_of(self.broker))

    @property
    def nodes(self) -> JobNodes:
        service = present(self.broker.jobs.service)
        return present(service.nodes)

    @property
    def machine(self) -> JobMachine:
        return self.nodes.commit.machine

    def state(self, job_id: bytes) -> str:
        """What a job is here; "" if it is not here."""
        job = self.machine.jobs.get(job_id)
        return "" if job is None else STATE_NAMES[job.state]

    async def show(self, job_id: bytes) -> dict[bytes, Any]:
        return named(await self("SHOW", job_id))

    async def get(self, queue: str) -> bytes:
        found = await self("GETJOB", "TIMEOUT", 20_000, "FROM", queue)
        assert found is not None, "no job came"
        job_id: bytes = found[0][1]
        return job_id


async def meet(*nodes: JobNode) -> None:
    """Waits until the jobs of all these know each other."""
    others = len(nodes) - 1
    await until(lambda: all(len(each.nodes.replicas.peers.up) == others for each in nodes))


@asynccontextmanager
async def node_of(config_of: Config) -> AsyncIterator[JobNode]:
    async with Broker(config_of) as broker:
        client = Redis(port=port_of(broker), socket_timeout=60, single_connection_client=True)
        try:
            yield JobNode(config_of.cluster.node_name, broker, await client.initialize())
        finally:
            await client.aclose()


@asynccontextmanager
async def job_nodes(
    folder: Path,
    names: str = "abc",
    jobs: Mapping[str, JobOptions] | None = None,
    hosts: Mapping[str, str] | None = None,
) -> AsyncIterator[list[JobNode]]:
    async with AsyncExitStack() as stack:
        found: list[JobNode] = []
        for name in names:
            join = [address(found[0].broker)] if found else []
            each = job_config(folder, name, join, jobs, (hosts or {}).get(name, ""))
            found.append(await stack.enter_async_context(node_of(each)))
        await meet(*found)
        yield found
