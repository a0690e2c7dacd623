"""A headless Chromium that a test drives over the DevTools protocol."""

import base64
import contextlib
import hashlib
import json
import os
import re
import signal
import subprocess
import threading
from collections.abc import Iterator
from functools import partial
from http.client import HTTPConnection
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from websockets.sync.client import connect
from websockets.sync.connection import Connection

from tests.support.tools import require_tool
from tests.support.until import reach
from vmq.testing.authority import IssuedCertificate

TIMEOUT = 30.0

#: A host that is this one, by the word of nobody here.
ELSEWHERE = "evil.example"


@contextlib.contextmanager
def served(folder: Path) -> Iterator[str]:
    """A folder's files on a web server; gives its address."""
    handler = partial(SimpleHTTPRequestHandler, directory=str(folder))
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        thread.join(TIMEOUT)
        server.server_close()


def key_hash(issued: IssuedCertificate) -> str:
    """The name by which Chromium can be told to trust a certificate: that of its public key."""
    key = issued.certificate.public_key()
    der = key.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
    return base64.b64encode(hashlib.sha256(der).digest()).decode()


class Page:
    def __init__(self, socket: Connection) -> None:
        self._socket = socket
        self._calls = 0
        #: Where the page of the test is.
        self.address = ""

    def call(self, method: str, **parameters: object) -> Any:
        """A call of the DevTools protocol, and its result. Raises `CallError`."""
        self._calls += 1
        order = {"id": self._calls, "method": method, "params": parameters}
        self._socket.send(json.dumps(order))
        while True:
            answer = json.loads(self._socket.recv(timeout=TIMEOUT))
            if answer.get("id") == self._calls:
                if "error" in answer:
                    raise CallError(str(answer["error"]))
                return answer["result"]

    def awaited(self, expression: str) -> Any:
        """What an expression comes to, once its promise is kept.

        A page that gives way to another, as one that is loaded anew does, takes its promises along: then the new one
        is asked.
        """

        def ask() -> Any:
            try:
                return self.call(
                    "Runtime.evaluate", expression=expression, awaitPromise=True, returnByValue=True
                )
            except CallError:
                return None

        return reach(ask, f"no page stayed for {expression}", TIMEOUT)

    def run(self, function: str, *arguments: object) -> Any:
        """Calls a function of the page; returns what it gives, once its promise is kept."""
        words = ", ".join(map(json.dumps, arguments))
        done = self.call(
            "Runtime.evaluate",
            expression=f"{function}({words})",
            awaitPromise=True,
            returnByValue=True,
        )
        if "exceptionDetails" in done:
            raise PageError(str(done["result"].get("value", done["exceptionDetails"])))
        return done["result"].get("value")

    def open(self, url: str) -> None:
        """Goes there and waits until the page is loaded, its scripts included."""
        self.call("Page.navigate", url=url)
        loaded = (
            "new Promise(done => document.readyState === 'complete' ? done() :"
            " addEventListener('load', done))"
        )
        self.awaited(loaded)


class CallError(Exception):
    """The browser refused a call, or the page that was to answer it gave way to another."""


class PageError(Exception):
    """A function of the page threw, or broke its promise."""


@contextlib.contextmanager
def chromium(folder: Path, trusted: IssuedCertificate | None = None) -> Iterator[Page]:
    """A browser that trusts this certificate, if one is given, and, of those that nobody vouches for, no other."""
    program = require_tool("chromium-headless-shell", "chromium", "google-chrome")
    command = [
        *(program, "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"),
        *("--no-first-run", "--disable-background-networking", "--disable-extensions"),
        *("--remote-debugging-port=0", f"--user-data-dir={folder}", "--no-proxy-server"),
        *([f"--ignore-certificate-errors-spki-list={key_hash(trusted)}"] if trusted else []),
        # A name that whoever owns it made to point at this machine.
        f"--host-resolver-rules=MAP {ELSEWHERE} 127.0.0.1",
        "about:blank",
    ]
    process = subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        # A home of its own: what it remembers goes with the test.
        env={**os.environ, "HOME": str(folder)},
    )
    assert process.stderr is not None
    reader: threading.Thread | None = None
    try:
        for line in process.stderr:
            if (found := re.search(r"DevTools listening on ws://([^/]+)/", line)) is not None:
                break
        else:
            raise AssertionError(f"{program} ended with exit code {process.wait()}")
        # It goes on to complain about what a machine without a desktop lacks.
        reader = threading.Thread(target=process.stderr.read, daemon=True)
        reader.start()
        with connect(_page_url(found[1]), proxy=None, max_size=None) as socket:
            yield Page(socket)
    finally:
        # The whole group: Debian's command is a script that stays above the browser.
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        if reader is not None:
            reader.join(TIMEOUT)
        process.stderr.close()


def _page_url(address: str) -> str:
    with contextlib.closing(HTTPConnection(address, timeout=TIMEOUT)) as connection:
        connection.request("GET", "/json/list")
        targets = json.loads(connection.getresponse().read())
    (page,) = (each for each in targets if each["type"] == "page")
    return str(page["webSocketDebuggerUrl"])
