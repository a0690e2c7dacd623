"""Words that nobody gets to read in this chat: each becomes stars on its way to a client."""

import re
from typing import Any

import msgspec
from vmq_hooks import DeliverModifiers, Message, Plugin, hook, matches


class WordsConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    words: list[str] = msgspec.field(default_factory=list)
    filter: str = "chat/+/say"


class WordsPlugin(Plugin):
    Config = WordsConfig

    async def start(self, _broker: Any, config: WordsConfig) -> None:
        self.filter = config.filter
        words = "|".join(map(re.escape, config.words))
        self.pattern = re.compile(rf"\b(?:{words})\b", re.IGNORECASE) if words else None

    @hook
    def on_deliver(self, message: Message) -> DeliverModifiers | None:
        if self.pattern is None or not matches(self.filter, message.topic):
            return None
        text = message.payload.decode(errors="replace")
        cleaned = self.pattern.sub(lambda found: "*" * len(found[0]), text)
        return None if cleaned == text else DeliverModifiers(payload=cleaned.encode())
