"""Runs of the load generator that do not linger, and the loop that they run in."""

from collections.abc import Iterator

import pytest

from vmq.bench.load.loop import Loop


@pytest.fixture
def loop() -> Iterator[Loop]:
    loop = Loop()
    yield loop
    loop.close()


@pytest.fixture(autouse=True)
def _in_haste(monkeypatch: pytest.MonkeyPatch) -> None:
    """What comes late and unasked is waited for after each run; here a broker errs in the middle of one."""
    for module in ("flow", "retained"):
        monkeypatch.setattr(f"vmq.bench.{module}._LINGER", 0.01)
