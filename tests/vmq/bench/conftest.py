"""Runs of the load generator that do not linger."""

import pytest


@pytest.fixture(autouse=True)
def _in_haste(monkeypatch: pytest.MonkeyPatch) -> None:
    """What comes late and unasked is waited for after each run; here a broker errs in the middle of one."""
    for module in ("flow", "retained"):
        monkeypatch.setattr(f"vmq.bench.{module}._LINGER", 0.01)
