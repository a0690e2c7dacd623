"""The broker is stopped at random moments of its work, and keeps all its promises."""

import asyncio
import signal
from pathlib import Path

import pytest

from tests.crash.campaign import Campaign, DrainCampaign, Plan
from tests.crash.referee import judge

# Enough for every run on a slow machine; a run takes a fraction of it.
LIMIT = 280.0
pytestmark = pytest.mark.timeout(LIMIT + 20)


def play(plan: Plan, data_dir: Path, course: type[Campaign] = Campaign) -> Campaign:
    """Run the plan and let the referee judge it."""
    campaign = course(plan, data_dir)
    history = asyncio.run(asyncio.wait_for(campaign.run(), LIMIT))
    verdicts = judge(history)
    assert not verdicts, f"{len(verdicts)} objections:\n" + "\n".join(verdicts[:40])
    return campaign


def test_killed_again_and_again(tmp_path: Path) -> None:
    """SIGKILL loses nothing acknowledged, repeats nothing at QoS 2 and keeps the order."""
    campaign = play(Plan(seed=1, strikes=10), tmp_path)
    history = campaign.history
    assert len(history.acknowledged) > 250
    assert all(history.got.values())
    assert campaign.keeper.checks > 2
    # The kills met work under way: without them nothing would have been sent twice.
    assert max(history.transmissions.values()) > 1


def test_killed_while_backlogs_drain(tmp_path: Path) -> None:
    """Long queues of clients that were away survive kills in the middle of their delivery."""
    campaign = play(Plan(seed=5, strikes=8), tmp_path, DrainCampaign)
    assert len(campaign.history.acknowledged) > 1500


def test_killed_with_fsync(tmp_path: Path) -> None:
    """The same with every commit forced to disk."""
    play(Plan(seed=3, strikes=5, env={"VMQ_STORE__DURABILITY": "fsync"}), tmp_path)


def test_stopped_cleanly(tmp_path: Path) -> None:
    """SIGTERM in full traffic: the broker ends with exit code 0 and nothing is lost.

    That holds even where the store is written behind (`memory`).
    """
    env = {"VMQ_STORE__DURABILITY": "memory"}
    play(Plan(seed=4, strikes=4, stop=signal.SIGTERM, env=env), tmp_path)
