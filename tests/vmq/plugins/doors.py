"""A plugin that says what a test wants, at once or later."""

import asyncio
from typing import Any

from vmq_hooks import Plugin, hook


class Doors(Plugin):
    """Says what its answers say, at once or later."""

    def __init__(self, **answers: Any) -> None:
        self.answers = answers
        self.calls: list[tuple[Any, ...]] = []

    def answer(self, name: str, *arguments: Any) -> Any:
        self.calls.append((name, *arguments))
        found = self.answers.get(name, True)
        if isinstance(found, BaseException):
            raise found
        return found(*arguments) if callable(found) else found

    @hook
    def auth_on_register(
        self, peer: Any, subscriber_id: Any, username: Any, password: Any, clean_session: Any
    ) -> Any:
        return self.answer(
            "auth_on_register", peer, subscriber_id, username, password, clean_session
        )

    @hook
    def auth_on_publish(self, username: Any, subscriber_id: Any, message: Any) -> Any:
        return self.answer("auth_on_publish", username, subscriber_id, message)

    @hook
    def auth_on_subscribe(self, username: Any, subscriber_id: Any, subscriptions: Any) -> Any:
        return self.answer("auth_on_subscribe", username, subscriber_id, subscriptions)


class Later(Doors):
    """The same, but the verdict comes when the test says so."""

    def __init__(self, **answers: Any) -> None:
        super().__init__(**answers)
        self.gate = asyncio.Event()

    @hook
    async def auth_on_register(
        self, peer: Any, subscriber_id: Any, username: Any, password: Any, clean_session: Any
    ) -> Any:
        await self.gate.wait()
        return super().auth_on_register(peer, subscriber_id, username, password, clean_session)

    @hook
    async def auth_on_publish(self, username: Any, subscriber_id: Any, message: Any) -> Any:
        await self.gate.wait()
        return super().auth_on_publish(username, subscriber_id, message)

    @hook
    async def auth_on_subscribe(self, username: Any, subscriber_id: Any, subscriptions: Any) -> Any:
        await self.gate.wait()
        return super().auth_on_subscribe(username, subscriber_id, subscriptions)
