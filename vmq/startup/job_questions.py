"""Answers other nodes that ask for operations on jobs: each is done for what this node has."""

from collections.abc import Awaitable, Mapping
from functools import cache, partial
from typing import TYPE_CHECKING

import msgspec

from vmq.admin.errors import AdminError

if TYPE_CHECKING:
    from vmq.clustering.node.job_questions import JobsAnswer
    from vmq.http.operation import Operation
    from vmq.ports import BrokerView


def answer_others(broker: "BrokerView") -> None:
    """Has a broker answer the other nodes, if it is one."""
    if broker.clustering is not None:
        broker.clustering.job_links.questions.answerer = partial(_answer, broker)


@cache
def _operations() -> "Mapping[str, Operation]":
    """Those that may be asked for: what each node does for itself alone, if it is told so."""
    from vmq.http.operations.jobs import JOB_OPERATIONS  # late: not every node is ever asked

    return {
        each.name: each for each in JOB_OPERATIONS if "local" in each.parameters.__struct_fields__
    }


async def _answer(broker: "BrokerView", name: str, parameters: bytes) -> "JobsAnswer":
    from vmq.admin.listing import Listing
    from vmq.clustering.node.job_questions import JobsAnswer
    from vmq.http.operation import Context

    operation = _operations().get(name)
    if operation is None:
        return JobsAnswer(400, f"there is no operation {name}".encode())
    try:
        told = msgspec.json.decode(parameters, type=dict[str, object])
        wanted = msgspec.convert(told | {"local": True}, operation.parameters)
        result = operation.run(Context(broker), wanted)
        if isinstance(result, Awaitable):
            result = await result
        if isinstance(result, Listing):
            return JobsAnswer(200, msgspec.json.encode({"rows": await result.rows()}))
        return JobsAnswer(200, msgspec.json.encode(result))
    except (msgspec.MsgspecError, RecursionError) as error:
        return JobsAnswer(400, str(error).encode())
    except AdminError as error:
        return JobsAnswer(error.status, str(error).encode())
