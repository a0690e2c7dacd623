"""Retained messages on their way to a subscriber: what one new subscription brought."""

from vmq.message import Message


class Burst:
    """Retained messages for one new subscription, and how far they are sent."""

    def __init__(self, messages: list[Message], granted: int) -> None:
        self.messages = messages
        self.granted = granted
        self.position: int = 0
