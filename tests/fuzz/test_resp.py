"""The listener of jobs under attack: an error or the end of that connection, memory bounded, all others served."""

import os
import signal

import pytest

from tests.conftest import BrokerFactory
from tests.fuzz.resp import ENV, LISTEN, Campaign, attack
from tests.fuzz.sockets import Failed

ATTACKS = 1000


@pytest.mark.timeout(300)
def test_attacks_on_jobs_harm_nobody_but_the_attacker(fresh_broker: BrokerFactory) -> None:
    broker = fresh_broker(listen=LISTEN, env=ENV)
    campaign = Campaign(broker, 1)
    for _ in range(ATTACKS):
        campaign.run()
    campaign.works()
    campaign.check_memory()
    campaign.close()
    assert broker.terminate() == 0
    assert "Traceback" not in broker.stderr_text()


def test_an_attack_on_jobs_is_its_number() -> None:
    assert attack(7) == attack(7)
    assert len({b"".join(attack(number)) for number in range(100)}) == 100


def test_a_broker_that_dies_under_attack_is_reported(fresh_broker: BrokerFactory) -> None:
    broker = fresh_broker(listen=LISTEN, env=ENV)
    campaign = Campaign(broker, 5)
    os.kill(broker.pid, signal.SIGKILL)
    broker.wait()
    with pytest.raises(Failed, match=r"--first 5 --count 0"):
        campaign.works()
    campaign.close()
