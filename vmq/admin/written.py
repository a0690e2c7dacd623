"""What an operation has changed is on disk before anybody hears that it is done: a kill then takes nothing back."""

from typing import TYPE_CHECKING

from vmq.admin.errors import UnavailableError
from vmq.admin.trees import registry_of
from vmq.streams.serving.batch_commit import SinkStep

if TYPE_CHECKING:
    from vmq.ports import BrokerView


async def until_written(broker: "BrokerView") -> None:
    """Returns once all that this process has changed in its store so far is safe.

    Raises:
        UnavailableError: the store cannot write.
    """
    core = registry_of(broker, "").core
    if core.store is None:
        core.outbox.flush()
        return
    step = SinkStep(core.outbox)
    step.answer_after(core.outbox.stored, core.store.last_barrier())
    await step.settle()
    if step.failure is not None:
        raise UnavailableError(f"{step.failure}: it is done, and not on disk yet")
