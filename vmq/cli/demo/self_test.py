"""`vmq demo --self-test`: presses the buttons of the page, and looks at what it shows."""

import asyncio
import json
import re
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from functools import partial
from typing import Any, Final

import aiohttp

from vmq.cli.demo.server import HEADER

#: Seconds until what must come about has come: a driver of Spark's takes its time to start.
PATIENCE: Final = 120.0
SPARK_PATIENCE: Final = 240.0


class Viewer:
    """Looks at the page of a demo as a browser does."""

    def __init__(self, client: aiohttp.ClientSession, url: str) -> None:
        self._client = client
        self._url = url
        self._word = ""

    async def open(self) -> None:
        """Loads the page, which has the word that its buttons need."""
        async with self._client.get(self._url) as answer:
            found = re.search(r'name="word" content="([^"]+)"', await answer.text())
            assert found is not None, "the page has no word"
            self._word = found[1]

    async def press(self, what: str) -> str:
        """Presses a button; returns what it says."""
        headers = {HEADER: self._word}
        async with self._client.post(f"{self._url}do/{what}", headers=headers) as answer:
            answer.raise_for_status()
            return str((await answer.json())["said"])

    async def _states(self) -> AsyncIterator[dict[str, Any]]:
        async with self._client.get(self._url + "feed") as answer:
            async for line in answer.content:
                if line.startswith(b"data: "):
                    yield json.loads(line[6:])

    async def until(
        self, what: str, holds: Callable[[dict[str, Any]], bool], seconds: float = PATIENCE
    ) -> dict[str, Any]:
        """Waits until the page shows something, and returns all that it shows.

        Raises:
            TimeoutError: it does not come.
        """
        last: dict[str, Any] = {}
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                async for last in self._states():
                    if holds(last):
                        print(f"self-test: {what}", flush=True)
                        return last
        last.pop("heard", None)
        raise TimeoutError(f"{what}: it did not come about; the page shows {last}")


async def self_tested(url: str, no_spark: str) -> int:
    """Presses every button; returns the exit code."""
    timeout = aiohttp.ClientTimeout(total=None)
    async with aiohttp.ClientSession(timeout=timeout) as client:
        viewer = Viewer(client, url)
        await viewer.open()
        try:
            await _brokers(viewer)
            if not no_spark:
                await _spark(viewer)
        except TimeoutError as problem:
            print(f"self-test: {problem}", flush=True)
            return 1
    return 0


async def _brokers(viewer: Viewer) -> None:
    await viewer.until(
        "readings arrive from all devices",
        lambda state: state["up"] == state["devices"] and state["received"] > 2 * state["devices"],
    )
    state = await viewer.until("brokers are there", lambda state: bool(state["nodes"]))
    for name in [each["name"] for each in state["nodes"]]:
        await viewer.press(f"kill-{name}")
        await viewer.until(f"{name} is killed", partial(_has_node, name, False))
        await viewer.until(f"{name} is back", partial(_has_node, name, True))
        sent = 0

        def has_caught_up(state: dict[str, Any]) -> bool:
            nonlocal sent
            sent = sent or state["sent"]
            return bool(state["up"] == state["devices"] and state["received"] >= sent)

        await viewer.until("what waited has arrived", has_caught_up)
    if len(state["nodes"]) > 1:
        await viewer.until("nothing is lost", lambda state: not state["lost"])
    else:
        await viewer.until(
            "nothing is lost or repeated", lambda state: not state["lost"] and not state["repeated"]
        )


async def _spark(viewer: Viewer) -> None:
    await viewer.until("alerts come back", lambda state: state["alert_count"] > 0, SPARK_PATIENCE)
    await viewer.press("kill-spark")
    await viewer.until(
        "Spark starts again", lambda state: state["spark"]["restarts"] > 0, SPARK_PATIENCE
    )
    await viewer.until(
        "Spark runs again", lambda state: state["spark"]["state"] == "running", SPARK_PATIENCE
    )


def _has_node(name: str, is_up: bool, state: dict[str, Any]) -> bool:
    return any(each["name"] == name and each["up"] == is_up for each in state["nodes"])
