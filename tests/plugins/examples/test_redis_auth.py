"""The example against a real Redis."""

from pathlib import Path

import pytest
from redis import Redis
from redis.exceptions import ConnectionError as RedisConnectionError
from redis_auth import RedisAuth, RedisConfig
from vmq_hooks import Refuse
from vmq_hooks.testing import FakeBroker
from vmq_passwd.hashes import make_hash

from tests.support.servers import redis


async def test_verdicts(tmp_path: Path) -> None:
    with redis(tmp_path) as (_, port):
        url = f"redis://127.0.0.1:{port}"
        with Redis.from_url(url) as client:
            client.hset("mqtt:user:bob", "password", make_hash(b"1"))
        plugin = RedisAuth()
        async with FakeBroker(tmp_path) as broker:
            await plugin.start(broker, RedisConfig(url))
            assert await plugin.auth_on_register("bob", b"1") is True
            assert await plugin.auth_on_register(None, None) is None
            for name, password in (("bob", b"2"), ("bob", None), ("eve", b"")):
                verdict = await plugin.auth_on_register(name, password)
                assert isinstance(verdict, Refuse)
                assert verdict.bad_credentials
            await plugin.stop()


async def test_without_redis_it_does_not_start(tmp_path: Path) -> None:
    async with FakeBroker(tmp_path) as broker:
        plugin = RedisAuth()
        with pytest.raises(RedisConnectionError):
            await plugin.start(broker, RedisConfig(f"unix://{tmp_path}/none"))
        await plugin.stop()
