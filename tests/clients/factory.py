"""Connects clients of any kind to a broker, and parts them again."""

from collections.abc import Callable
from itertools import count

from tests.clients.client import BY_NAME, Client, Kind, Will
from tests.clients.mosquitto import MosquittoClient
from tests.clients.program import Program, ProgramClient
from vmq.testing.process import BrokerProcess

_numbers = count(1)


def unique() -> int:
    """A number that no other test uses."""
    return next(_numbers)


class ClientFactory:
    """Connects clients to one broker; `clients("paho", ("a/#", 1))` is connected and subscribed."""

    def __init__(self, broker: BrokerProcess, programs: Callable[[str], Program]) -> None:
        self.broker = broker
        self._programs = programs
        self._clients: list[Client] = []
        self._own_programs: list[Program] = []

    def __call__(
        self,
        kind: Kind | str,
        *filters: tuple[str, int],
        client_id: str | None = None,
        clean: bool = True,
        keepalive: int = 60,
        will: Will | None = None,
        own_program: bool = False,
    ) -> Client:
        """Open a client. `own_program` gives it a process of its own, so that it can be killed."""
        kind = BY_NAME[kind] if isinstance(kind, str) else kind
        client_id = client_id or new_client_id(kind)
        if kind.program == "mosquitto":
            mosquitto = MosquittoClient(kind, client_id, self.broker.tcp)
            self._clients.append(mosquitto)
            granted = mosquitto.open(filters, clean=clean, keepalive=keepalive, will=will)
            assert granted == [qos for _, qos in filters]
            return mosquitto
        program = self._programs(kind.program)
        if own_program:
            program = Program(kind.program)
            self._own_programs.append(program)
        client = ProgramClient(kind, client_id, program, f"client-{unique()}")
        self._clients.append(client)
        client.open(kind.url(self.broker), clean=clean, keepalive=keepalive, will=will)
        if filters:
            assert client.subscribe(*filters) == [qos for _, qos in filters]
        return client

    def close(self) -> None:
        """Disconnect what is still connected, in a way that keeps one failure from another."""
        errors: list[Exception] = []
        for client in self._clients:
            try:
                client.close()
            except (AssertionError, OSError) as error:
                errors.append(error)
        for program in self._own_programs:
            program.close()
        if errors:
            raise ExceptionGroup("clients did not disconnect", errors)


def new_client_id(kind: Kind) -> str:
    """An id that no other test uses; MQTT 3.1 allows 23 characters."""
    return f"{kind}-{unique()}"
