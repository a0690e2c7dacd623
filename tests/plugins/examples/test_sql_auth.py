"""The example against real databases: SQLite and PostgreSQL."""

import sqlite3
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import asyncpg
import pytest
from sql_auth import SqlAuth, SqlConfig, covers
from vmq_hooks import Accept, Message, Refuse, Subscription, matches
from vmq_hooks.testing import FakeBroker
from vmq_passwd.hashes import make_hash

from tests.support.servers import postgresql

SCHEMA = """
CREATE TABLE mqtt_users (username TEXT PRIMARY KEY, password TEXT NOT NULL);
CREATE TABLE mqtt_rights (username TEXT NOT NULL, access TEXT NOT NULL, topic_filter TEXT NOT NULL);
"""
USERS = [("bob", make_hash(b"1"))]
RIGHTS = [("bob", "read", "a/+"), ("bob", "write", "w/#"), ("bo'b", "write", "#")]


@asynccontextmanager
async def started(folder: Path, database: str) -> AsyncIterator[SqlAuth]:
    plugin = SqlAuth()
    async with FakeBroker(folder) as broker:
        await plugin.start(broker, SqlConfig(database))
        try:
            yield plugin
        finally:
            await plugin.stop()


async def check_verdicts(plugin: SqlAuth) -> None:
    assert await plugin.auth_on_register("bob", b"1") is True
    assert await plugin.auth_on_register(None, None) is None
    for name, password in (("bob", b"2"), ("bob", None), ("eve", b""), ("' OR 1=1 --", b"1")):
        verdict = await plugin.auth_on_register(name, password)
        assert isinstance(verdict, Refuse)
        assert verdict.bad_credentials
    granted = await plugin.auth_on_publish("bob", Message("w/1", b""))
    assert isinstance(granted, Accept)
    assert granted.cache is not None
    assert isinstance(await plugin.auth_on_publish("bob", Message("a/1", b"")), Refuse)
    assert isinstance(await plugin.auth_on_publish(None, Message("w/1", b"")), Refuse)
    asked = [Subscription("a/b", 1), Subscription("a/#", 1), Subscription("w/1", 2)]
    assert await plugin.auth_on_subscribe("bob", asked) == [
        Subscription("a/b", 1),
        Subscription("a/#", 128),
        Subscription("w/1", 128),
    ]


async def test_sqlite(tmp_path: Path) -> None:
    path = tmp_path / "users.db"
    connection = sqlite3.connect(path)
    connection.executescript(SCHEMA)
    connection.executemany("INSERT INTO mqtt_users VALUES (?, ?)", USERS)
    connection.executemany("INSERT INTO mqtt_rights VALUES (?, ?, ?)", RIGHTS)
    connection.commit()
    connection.close()
    async with started(tmp_path, f"sqlite:{path}") as plugin:
        await check_verdicts(plugin)


async def test_postgresql(tmp_path: Path) -> None:
    with postgresql() as url:
        connection: Any = await asyncpg.connect(url)
        await connection.execute(SCHEMA)
        await connection.executemany("INSERT INTO mqtt_users VALUES ($1, $2)", USERS)
        await connection.executemany("INSERT INTO mqtt_rights VALUES ($1, $2, $3)", RIGHTS)
        await connection.close()
        async with started(tmp_path, url) as plugin:
            await check_verdicts(plugin)


async def test_without_its_tables_a_hook_fails_which_refuses(tmp_path: Path) -> None:
    async with started(tmp_path, f"sqlite:{tmp_path / 'empty.db'}") as plugin:
        with pytest.raises(sqlite3.OperationalError, match="no such table"):
            await plugin.auth_on_register("bob", b"1")


@pytest.mark.parametrize(
    ("granted", "wanted", "expected"),
    [
        ("a/+", "a/b", True),
        ("a/+", "a/+", True),
        ("a/+", "a/#", False),
        ("a/+", "a", False),
        ("a/+", "a/b/c", False),
        ("a/#", "a", True),
        ("a/#", "a/+/#", True),
        ("#", "$SYS/#", False),
        ("#", "$share/g/a", True),
        ("a", "$share/g/b", False),
        ("a/b", "a/+", False),
    ],
)
def test_covers(granted: str, wanted: str, expected: bool) -> None:
    assert covers(granted, wanted) is expected
    if expected and "+" not in wanted and "#" not in wanted and wanted[0] != "$":
        assert matches(granted, wanted)
