"""Users from Redis: a hash `mqtt:user:NAME` with a field `password`, argon2 as `vmq passwd` writes.

HSET mqtt:user:lamp-17 password '$argon2id$v=19$...'
"""

from typing import Any

import argon2
import msgspec
from redis.asyncio import Redis
from vmq_hooks import Broker, Plugin, Refuse, hook

#: As `vmq passwd` has it.
HASHER = argon2.PasswordHasher(time_cost=2, memory_cost=19 * 1024, parallelism=1)
#: Unknown users are checked against this, or the time to the answer would tell who exists.
NOBODY = HASHER.hash("")


class RedisConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    #: redis://HOST:PORT/DATABASE, rediss:// with TLS, unix:///PATH
    url: str = "redis://localhost:6379/0"
    #: Seconds for an answer of Redis; later ones refuse the client.
    timeout: float = 2.0
    prefix: str = "mqtt:user:"


class RedisAuth(Plugin):
    Config = RedisConfig

    async def start(self, broker: Broker, config: RedisConfig) -> None:
        self.broker, self.config = broker, config
        self.redis = Redis.from_url(
            config.url, socket_timeout=config.timeout, socket_connect_timeout=config.timeout
        )
        await self.redis.ping()

    async def stop(self) -> None:
        await self.redis.aclose()

    @hook
    async def auth_on_register(self, username: str | None, password: bytes | None) -> Any:
        if username is None:
            return None
        stored = await self.redis.hget(self.config.prefix + username, "password")
        is_right = await self.broker.run_in_thread(verify, stored or NOBODY, password or b"")
        if stored and is_right:
            return True
        return Refuse("wrong user name or password", bad_credentials=True)


def verify(stored: str | bytes, password: bytes) -> bool:
    try:
        return HASHER.verify(stored, password)
    except argon2.exceptions.VerificationError:
        return False
