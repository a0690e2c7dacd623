"""Under which key the application holds its broker, for the modules that answer requests."""

from typing import TYPE_CHECKING, Final

from aiohttp import web

if TYPE_CHECKING:
    from vmq.ports import BrokerView

BROKER: Final["web.AppKey[BrokerView]"] = web.AppKey("broker")

#: Seconds that the body of a request may take.
BODY_TIMEOUT = web.AppKey("body_timeout", float)
