"""What nodes tell each other about MQTT: the common form of their messages."""

from msgspec import Struct


class NodeMessage(Struct, array_like=True, frozen=True):
    """One message between nodes. Subclasses have a `tag`, a number, and stand in the list of `messages.codec`."""

    def check(self) -> None:
        """Refuses what no node sends and the types of the fields do not rule out.

        Raises:
            ValueError: the fault is remote.
        """
