"""Messages of sessions whose clients are not known any more: a repair keeps them in a file, for people and programs.

The table that named a session may be gone while others have its messages. They belong to nobody then, and are not
thrown away: each is a line of JSON, from which it can be published again.
"""

import base64
import json
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Final

from vmq.store.store import Store, StoreError

FILE: Final = "messages-of-no-session.jsonl"


class Orphans:
    """The file in the folder of a database; made with the first message."""

    def __init__(self, folder: Path, db: Any) -> None:
        self.path = folder / FILE
        self.count = 0
        self._store = Store(db, "os", lambda: None)
        self._file: IO[str] | None = None

    def __enter__(self) -> "Orphans":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._file is not None:
            self._file.close()

    def save(self, key: bytes, entry: bytes) -> None:
        """Keeps the message of an entry, if it has one.

        Raises:
            OSError: the disk.
        """
        try:
            delivery = self._store.read_entry(entry)
        except StoreError:
            return
        if delivery is None or delivery.released:
            return
        if self._file is None:
            self._file = self.path.open("w", encoding="utf-8")
        message = delivery.message
        plain = {
            "session": int.from_bytes(key[1:9], "big"),
            "topic": message.topic.decode(),
            "qos": delivery.qos,
            "retain": delivery.retain,
            "payload_base64": base64.b64encode(message.payload).decode("ascii"),
        }
        self._file.write(json.dumps(plain, ensure_ascii=False) + "\n")
        self.count += 1
