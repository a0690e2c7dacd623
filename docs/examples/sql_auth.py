"""Users and rights from an SQL database: SQLite or PostgreSQL.

    CREATE TABLE mqtt_users (username TEXT PRIMARY KEY, password TEXT NOT NULL);
    CREATE TABLE mqtt_rights (username TEXT NOT NULL, access TEXT NOT NULL, topic_filter TEXT NOT NULL);

`password` is an argon2 hash, as `vmq passwd` writes; `access` is 'read' or 'write'.
"""

from collections.abc import Sequence
from typing import Any, Protocol

import aiosqlite
import argon2
import asyncpg
import msgspec
from vmq_hooks import (
    REFUSED_QOS,
    Accept,
    Broker,
    Cache,
    Message,
    Plugin,
    Refuse,
    Subscription,
    hook,
)

#: As `vmq passwd` has it.
HASHER = argon2.PasswordHasher(time_cost=2, memory_cost=19 * 1024, parallelism=1)
#: Unknown users are checked against this, or the time to the answer would tell who exists.
NOBODY = HASHER.hash("")


class SqlConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    #: sqlite:PATH or postgresql://USER:PASSWORD@HOST/DATABASE
    database: str
    #: Seconds for which the broker may answer from memory.
    cache_seconds: float = 60.0
    users_query: str = "SELECT password FROM mqtt_users WHERE username = ?"
    rights_query: str = "SELECT access, topic_filter FROM mqtt_rights WHERE username = ?"


class Database(Protocol):
    async def fetch(self, query: str, username: str) -> Sequence[Any]: ...
    async def close(self) -> None: ...


class SQLite:
    def __init__(self, connection: aiosqlite.Connection) -> None:
        self._connection = connection

    async def fetch(self, query: str, username: str) -> Sequence[Any]:
        return list(await self._connection.execute_fetchall(query, (username,)))

    async def close(self) -> None:
        await self._connection.close()


class PostgreSQL:
    def __init__(self, pool: "asyncpg.Pool[Any]") -> None:
        self._pool = pool

    async def fetch(self, query: str, username: str) -> Sequence[Any]:
        return list(await self._pool.fetch(query.replace("?", "$1"), username))

    async def close(self) -> None:
        await self._pool.close()


async def connect(url: str) -> Database:
    if url.startswith("sqlite:"):
        return SQLite(await aiosqlite.connect(url.removeprefix("sqlite:")))
    return PostgreSQL(await asyncpg.create_pool(url, min_size=1, max_size=4, command_timeout=5))


class SqlAuth(Plugin):
    Config = SqlConfig

    async def start(self, broker: Broker, config: SqlConfig) -> None:
        self.broker, self.config = broker, config
        self.database = await connect(config.database)

    async def stop(self) -> None:
        await self.database.close()

    @hook
    async def auth_on_register(self, username: str | None, password: bytes | None) -> Any:
        if username is None:
            return None
        rows = await self.database.fetch(self.config.users_query, username)
        stored = rows[0][0] if rows else NOBODY
        is_right = await self.broker.run_in_thread(verify, stored, password or b"")
        if rows and is_right:
            return True
        return Refuse("wrong user name or password", bad_credentials=True)

    @hook
    async def auth_on_publish(self, username: str | None, message: Message) -> Any:
        cache = Cache(self.config.cache_seconds, frozenset({"username", "topic"}))
        if await self.may(username, "write", message.topic):
            return Accept(cache=cache)
        return Refuse("no right to write this", cache=cache)

    @hook
    async def auth_on_subscribe(
        self, username: str | None, subscriptions: Sequence[Subscription]
    ) -> Any:
        return [
            each
            if await self.may(username, "read", each.topic_filter)
            else Subscription(each.topic_filter, REFUSED_QOS)
            for each in subscriptions
        ]

    async def may(self, username: str | None, access: str, topic_filter: str) -> bool:
        rows = await self.database.fetch(self.config.rights_query, username or "")
        return any(row[0] == access and covers(row[1], topic_filter) for row in rows)


def verify(stored: str, password: bytes) -> bool:
    try:
        return HASHER.verify(stored, password)
    except argon2.exceptions.VerificationError:
        return False


def covers(granted: str, wanted: str) -> bool:
    """Whether all that the wanted filter matches is granted: `a/+` grants neither `a/#` nor `#`."""
    if wanted.startswith("$share/"):
        wanted = wanted.split("/", 2)[-1]
    if wanted[:1] == "$" and granted[:1] in {"+", "#"}:
        return False
    theirs = wanted.split("/")
    for index, word in enumerate(granted.split("/")):
        if word == "#":
            return True
        if index >= len(theirs) or theirs[index] == "#" or word not in {"+", theirs[index]}:
            return False
    return len(theirs) == len(granted.split("/"))
