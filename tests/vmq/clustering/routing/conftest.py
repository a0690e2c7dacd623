"""Three nodes."""

import pytest

from tests.vmq.clustering.routing.test_routing import Three


@pytest.fixture
def three() -> Three:
    return Three()
