"""`/status.json`: the broker at a glance."""

from typing import TYPE_CHECKING, Any

from aiohttp import web

from vmq.http.keys import BROKER
from vmq.version import __version__, is_compiled

if TYPE_CHECKING:
    from vmq.ports import BrokerView


def status_of(broker: "BrokerView") -> dict[str, Any]:
    """Version, uptime, what is open and kept now, and the rates of the last ten seconds."""
    gauges = broker.metrics.gauges()
    counters = broker.metrics.counters()
    rates = broker.monitor.rates.per_second()
    sessions, offline = gauges["queue_processes"], gauges["queue_offline"]
    return {
        "version": __version__,
        "compiled": is_compiled(),
        "uptime_seconds": round(gauges["uptime_seconds"], 3),
        "health": broker.health(),
        "listeners": {name: each.url for name, each in broker.listeners.items()},
        "connections": {
            "mqtt": gauges["active_mqtt_connections"],
            "mqttws": gauges["active_mqttws_connections"],
            "total": gauges["total_active_connections"],
        },
        "sessions": {"total": sessions, "connected": sessions - offline, "offline": offline},
        "subscriptions": gauges["router_subscriptions"],
        "queues": {
            "count": sessions,
            "messages_in": counters["queue_message_in"],
            "messages_out": counters["mqtt_publish_sent"],
            "messages_dropped": counters["queue_message_drop"],
        },
        "retained": {"messages": gauges["retain_messages"], "bytes": gauges["retain_memory"]},
        "store": {"bytes": gauges["store_bytes"], "failing": bool(gauges["store_failing"])},
        "event_loop": {
            "lag_recent_seconds": gauges["event_loop_lag_recent_seconds"],
            "lag_p99_seconds": finite(broker.monitor.lags.quantile(0.99)),
        },
        "process": {
            "cpu_seconds": gauges["process_cpu_seconds"],
            "resident_bytes": gauges["process_resident_memory_bytes"],
            "open_files": gauges["process_open_fds"],
        },
        "rates_per_second": {name: round(rate, 3) for name, rate in rates.items()},
    }


def finite(seconds: float) -> float | None:
    """JSON has no infinity: what lies above the last bucket is unknown."""
    return None if seconds == float("inf") else seconds


async def show_status(request: web.Request) -> web.Response:
    """The status as JSON."""
    return web.json_response(status_of(request.app[BROKER]))


def routes() -> list[web.AbstractRouteDef]:
    """What this module answers."""
    return [web.get("/status.json", show_status)]
