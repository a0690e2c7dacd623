"""A plugin's own files (rules, passwords), read again when they change."""

import asyncio
import hashlib
import os
import time
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Annotated, Final, Generic, TypeVar

from msgspec import Meta, Struct

from vmq_hooks.broker import Broker, Checking, Mistake

Content = TypeVar("Content")

#: Larger files are refused: a mistyped path is more likely than so many rules.
MAX_FILE_BYTES: Final = 64 << 20

#: A changed file is taken up when it has been the same for this long.
SETTLE_SECONDS: Final = 0.2

#: A file changed this short ago may change again without a new time stamp, so it is read again.
_TIMESTAMP_TRUST_NS: Final = 2_000_000_000

#: How a complaint ends.
_IN_FORCE: Final = "what was read before stays in force"


class FileError(ValueError):
    """A file that cannot be used; the text names file, line and what is accepted.

    `in_text` is the same without the file.
    """

    def __init__(self, path: Path, line: int, problem: str) -> None:
        whole = path.absolute()
        super().__init__(f"{whole}, line {line}: {problem}" if line else f"{whole}: {problem}")
        self.in_text = f"line {line}: {problem}" if line else problem


def file_option(what: str) -> Meta:
    """The limits of an option that names a file, and what is said about it: `what` it is."""
    return Meta(
        pattern=r"^[^\x00]+\Z",
        description=f"{what}; relative to the folder of this file.",
        extra={"accepts": "a path"},
    )


class FileOptions(Struct, frozen=True, forbid_unknown_fields=True):
    """The options of a plugin that reads a file of its own. Its `Config` inherits them and says what `file` is."""

    file: Annotated[str, file_option("The file")]
    reload_interval: Annotated[
        float,
        Meta(ge=0, le=86400, description="Seconds between looks at the file; 0 = on SIGHUP only."),
    ] = 10.0

    def in_place(self) -> tuple[str, str] | None:
        """What stands in the configuration instead of a file: the name of the option, and the text; None: the file."""
        return None


class WatchedFile(Generic[Content]):
    """A file and what was read from it last.

    A change is noticed whether the file is written in place or replaced by another one of its name. A
    file that cannot be read, or not be parsed, changes nothing: `content` stays what it was.

    Args:
        path: the file.
        parse: makes the content out of the bytes; raises FileError. Called outside the event loop.
    """

    def __init__(self, path: Path, parse: Callable[[bytes], Content]) -> None:
        self.path = path
        self._parse = parse
        self._content: Content | None = None
        self._seen: tuple[int, ...] | None = None
        self._digest = b""
        self._complaint = ""
        self._looking = asyncio.Lock()
        #: The content stands in the configuration, and there is no file.
        self._is_in_place = False

    @classmethod
    def follow(
        cls,
        broker: Broker,
        options: FileOptions,
        parse: Callable[[bytes, Path], Content],
        on_change: Callable[[], Awaitable[object]],
    ) -> "WatchedFile[Content]":
        """The file of a plugin's options: loaded, and looked at as they say and at each reload until the plugin stops.

        What stands in the configuration instead changes with it alone: a changed section reloads the plugin.

        Raises:
            FileError: it cannot be read or parsed.
        """
        given = options.in_place()
        if given is not None:
            fixed = cls(Path(given[0]), lambda data: parse(data, Path(given[0])))
            fixed._is_in_place = True
            fixed._take(given[1].encode())
            return fixed
        path = broker.config_dir / options.file
        file = cls(path, lambda data: parse(data, path))
        file.load()
        broker.on_reload(lambda: file.look(broker, on_change))
        if options.reload_interval:
            broker.spawn(
                file.watch(broker, options.reload_interval, on_change), f"file {options.file}"
            )
        return file

    @staticmethod
    def mistakes(
        broker: Checking, options: FileOptions, parse: Callable[[bytes, Path], Content]
    ) -> Iterator[Mistake]:
        """What is wrong with the file of a plugin's options, for `Plugin.check`."""
        given = options.in_place()
        path = broker.config_dir / options.file if given is None else Path(given[0])
        file = WatchedFile(path, lambda data: parse(data, path))
        try:
            if given is None:
                file.load()
            else:
                file._take(given[1].encode())
        except FileError as error:
            yield Mistake("file", str(error)) if given is None else Mistake(given[0], error.in_text)

    @property
    def content(self) -> Content:
        """What the last good reading gave. `load` comes first."""
        assert self._content is not None, f"{self.path} is not loaded"
        return self._content

    def load(self) -> bool:
        """Read the file if it may have changed; True says that there is new content.

        Raises:
            FileError: it cannot be read or parsed.
        """
        data = self._read()
        return data is not None and self._take(data)

    def _read(self) -> bytes | None:
        """The file's bytes; None if it is certainly the same as before."""
        try:
            with self.path.open("rb") as file:
                status = os.fstat(file.fileno())
                seen = (status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns)
                if seen == self._seen:
                    return None
                data = file.read(MAX_FILE_BYTES + 1)
        except OSError as error:
            raise FileError(self.path, 0, error.strerror or str(error)) from None
        if len(data) > MAX_FILE_BYTES:
            raise FileError(self.path, 0, f"larger than {MAX_FILE_BYTES} bytes")
        is_old = time.time_ns() - status.st_mtime_ns > _TIMESTAMP_TRUST_NS
        self._seen = seen if is_old else None
        return data

    def _take(self, data: bytes) -> bool:
        """Parses what was read, if it is new."""
        digest = hashlib.blake2b(data).digest()
        if digest == self._digest:
            return False
        try:
            self._content = self._parse(data)
        except Exception:
            self._seen = None
            raise
        self._digest = digest
        return True

    async def watch(
        self, broker: Broker, seconds: float, on_change: Callable[[], Awaitable[object]]
    ) -> None:
        """Look at the file every so many seconds, for ever; for `broker.spawn`.

        `on_change` is called when new content is in force. A file that is refused is logged once.
        """
        while True:
            await asyncio.sleep(seconds)
            await self.look(broker, on_change)

    async def look(self, broker: Broker, on_change: Callable[[], Awaitable[object]]) -> None:
        """One look at the file, as `watch` takes it."""
        if self._is_in_place:
            return
        async with self._looking:
            await self._look(broker, on_change)

    async def _look(self, broker: Broker, on_change: Callable[[], Awaitable[object]]) -> None:
        try:
            data = await broker.run_in_thread(self._read)
            if data is None or hashlib.blake2b(data).digest() == self._digest:
                self._complain(broker, "")
                return
            data = await self._wait_written(broker, data)
            is_new = await broker.run_in_thread(self._take, data)
        except FileError as error:
            if self._complain(broker, str(error)):
                broker.log.error("%s; %s", error, _IN_FORCE)
            return
        except Exception as error:
            # A defect of the plugin's `parse`: the file is followed all the same.
            problem = f"{self.path}: {type(error).__name__}: {error}"
            if self._complain(broker, problem):
                broker.log.error("%s; %s", problem, _IN_FORCE, exc_info=error)
            return
        self._complain(broker, "")
        if is_new:
            broker.log.info("%s: new content is in force", self.path)
            try:
                await on_change()
            except Exception as error:
                broker.log.error("%s: after a change", self.path, exc_info=error)

    def _complain(self, broker: Broker, problem: str) -> bool:
        """Tells what the file is refused for, "" if it is not; returns whether it was not at the last look."""
        before, self._complaint = self._complaint, problem
        broker.set_problem(self.path.name, problem)
        return problem != before

    async def _wait_written(self, broker: Broker, data: bytes) -> bytes:
        """What the file holds when nobody writes any more: an editor may just have emptied it."""
        while True:
            await asyncio.sleep(SETTLE_SECONDS)
            again = await broker.run_in_thread(self._read)
            if again is None or again == data:
                return data
            data = again
