"""What several attacks share."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conftest import BrokerFactory
from tests.support.guarded import Guarded


@pytest.fixture
def guarded(fresh_broker: BrokerFactory, tmp_path: Path) -> Iterator[Guarded]:
    with Guarded(fresh_broker, tmp_path / "s") as guarded:
        yield guarded
