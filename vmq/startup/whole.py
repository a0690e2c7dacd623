"""What this room knows of the broker, beyond what the rooms below it know."""

from typing import TYPE_CHECKING, Protocol

from vmq.ports import BrokerView

if TYPE_CHECKING:
    from vmq.startup.parts import Parts


class WholeBroker(BrokerView, Protocol):
    """A broker with its parts, as `vmq.broker.Broker` has them."""

    @property
    def is_started(self) -> bool: ...
    @property
    def parts(self) -> "Parts": ...
