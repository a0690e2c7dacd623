"""Modules that are imported in a thread."""

import asyncio
import threading
from unittest.mock import patch

import pytest

from vmq.startup.late_imports import import_late, imported


async def test_who_stops_waits_for_what_is_imported_though_nobody_needs_it_any_more() -> None:
    begun, may_end = threading.Event(), threading.Event()

    def blocked(_module: str) -> None:
        begun.set()
        may_end.wait()

    with patch("vmq.startup.late_imports.import_module", blocked):
        importing = asyncio.create_task(import_late("m"))
        await asyncio.to_thread(begun.wait)
        importing.cancel()
        with pytest.raises(asyncio.CancelledError):
            await importing
        stopping = asyncio.create_task(imported())
        await asyncio.to_thread(lambda: None)
        is_over = stopping.done()
        may_end.set()
        await stopping
    assert not is_over
