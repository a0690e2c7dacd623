"""The listener of jobs under attack: an error or the end of that connection, memory bounded, all others served."""

import pytest

from tests.conftest import BrokerFactory
from tests.fuzz.resp import ENV, LISTEN, Campaign

ATTACKS = 200


@pytest.mark.timeout(300)
def test_attacks_on_jobs_harm_nobody_but_the_attacker(fresh_broker: BrokerFactory) -> None:
    campaign = Campaign(fresh_broker(listen=LISTEN, env=ENV), 1)
    for _ in range(ATTACKS):
        campaign.run()
    campaign.end()
