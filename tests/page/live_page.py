"""The live page, as a test looks at it and uses it."""

import base64
import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from tests.listeners.browser import Page
from tests.vmq.cli.program import on
from vmq.testing.process import BrokerProcess

#: Where pictures of the page are left, for those who want to see it.
PICTURES: Final = Path(os.environ.get("VMQ_PICTURES", "build/page"))
#: What a stranger may call a client, a topic or a user.
MARKUP: Final = "<img src=x onerror=\"document.title='owned'\">"


def link_of(broker: BrokerProcess, *options: str) -> str:
    """What `vmq open` prints."""
    return on(broker, "open", "--print", *options).out.decode().split()[0]


class LivePage:
    def __init__(self, page: Page) -> None:
        self.page = page
        page.call("Page.enable")
        page.call("Runtime.enable")
        page.call("Page.setBypassCSP", enabled=False)

    def enter(self, link: str, view: str = "") -> None:
        """Opens a link, waits until the page shows what the broker says, and goes to a view if one is named."""
        self.page.open("about:blank")
        self.page.open(link)
        self.until("document.querySelector('.pulse.is-live') && document.querySelector('main h1')")
        if view:
            self.go(view)

    def go(self, view: str) -> None:
        """Goes to a view, as somebody who follows its link does."""
        self.run("(view) => { location.hash = '#/' + view; }", view)
        name = view.split("?", maxsplit=1)[0]
        shown = "document.querySelector('nav a[aria-current]')?.getAttribute('href')"
        self.until(f"{shown} === '#/{name}'")

    def until(self, condition: str) -> Any:
        """Waits until an expression of the page is true, and gives its value."""
        done = self.page.awaited(f"({self._inlined(condition)})")
        assert "exceptionDetails" not in done, done
        return done["result"].get("value")

    @staticmethod
    def _inlined(condition: str) -> str:
        return (
            "new Promise(done => { const look = () => { let found; try { found = "
            f"({condition}); }} catch {{ found = null; }} "
            "found ? done(found instanceof Node ? true : found) : setTimeout(look, 30); }; look(); })"
        )

    def says(self, text: str) -> None:
        """Waits until the page shows a text."""
        self.until(f"document.body.innerText.includes({json.dumps(text)})")

    def ticks(self, count: int) -> None:
        """Waits until the page was told the figures of so many seconds more."""
        self.run(
            "(count) => import('/page/live.js').then(live => new Promise(done => { let seen = 0;"
            " const stop = live.follow(kind => { if (kind === 'tick' && ++seen === count) { stop(); done(); } }); }))",
            count,
        )

    def run(self, function: str, *arguments: object) -> Any:
        """Calls a function of the page; returns what it gives."""
        return self.page.run(f"({function})", *arguments)

    def value(self, expression: str) -> Any:
        """The value of an expression of the page."""
        return self.run(f"() => ({expression})")

    def click(self, text: str, among: str = "button, a, summary") -> None:
        there = (
            f"[...document.querySelectorAll({json.dumps(among)})].find("
            f"each => each.innerText.trim() === {json.dumps(text)} && each.offsetParent)"
        )
        self.until(there)
        self.run(f"() => {{ {there}.click(); }}")

    def type(self, selector: str, text: str) -> None:
        """Enters a text where a selector leads, as a keyboard does."""
        self.until(f"document.querySelector({json.dumps(selector)})")
        self.run(
            f"() => {{ const input = document.querySelector({json.dumps(selector)}); input.focus(); input.select(); }}"
        )
        self.page.call("Input.insertText", text=text)

    def submit(self, selector: str, text: str) -> None:
        self.type(selector, text)
        self.press("Enter", text="\r")

    def press(self, key: str, code: str = "", text: str = "") -> None:
        """Presses a key of the keyboard."""
        common = {"key": key, "code": code or key, "windowsVirtualKeyCode": _CODES.get(key, 0)}
        self.page.call("Input.dispatchKeyEvent", type="keyDown", text=text, **common)
        self.page.call("Input.dispatchKeyEvent", type="keyUp", **common)

    def picture(self, name: str) -> None:
        """Leaves a picture of what is seen now."""
        PICTURES.mkdir(parents=True, exist_ok=True)
        shot = self.page.call("Page.captureScreenshot", format="png")
        (PICTURES / f"{name}.png").write_bytes(base64.b64decode(shot["data"]))

    def watch_long_tasks(self) -> None:
        """Has the browser note what holds the page up for more than 50 ms, from now on."""
        self.run(
            "() => { window.longTasks = []; new PerformanceObserver(found => found.getEntries().forEach("
            "each => window.longTasks.push(Math.round(each.duration)))).observe({type: 'longtask'}); }"
        )

    def long_tasks(self, name: str) -> None:
        """Leaves their milliseconds beside the pictures: a figure for people, which depends on the machine."""
        PICTURES.mkdir(parents=True, exist_ok=True)
        (PICTURES / f"{name}-long-tasks.json").write_text(
            json.dumps(self.value("window.longTasks"))
        )

    def resize(self, width: int, height: int, scale: float = 1) -> None:
        self.page.call(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=scale,
            mobile=width < 600,
        )

    def theme(self, name: str) -> None:
        """Has the system be dark or light."""
        self.run("() => { localStorage.removeItem('vmq.theme'); }")
        features = [{"name": "prefers-color-scheme", "value": name}]
        self.page.call("Emulation.setEmulatedMedia", features=features)
        self.run("(name) => { document.documentElement.dataset.theme = name; }", name)

    def nodes(self) -> int:
        return int(self.value("document.querySelectorAll('*').length"))

    def faults(self, axe: str, ignored: Sequence[str] = ()) -> list[str]:
        """What axe-core finds serious."""
        self.page.call("Runtime.evaluate", expression=axe)
        found = self.run(
            "() => axe.run(document, {resultTypes: ['violations']}).then(found => found.violations"
            ".filter(each => ['serious', 'critical'].includes(each.impact))"
            ".map(each => each.id + ': ' + each.nodes.slice(0, 3)"
            ".map(node => node.html + ' ' + node.failureSummary).join(' | ')))"
        )
        return [each for each in found if not each.startswith(tuple(ignored) or "\0")]


_CODES: Final = {
    "Enter": 13,
    "Tab": 9,
    "ArrowDown": 40,
    "ArrowUp": 38,
    "ArrowRight": 39,
    "Escape": 27,
}
