"""`python -m tests.cluster_processes.chaos --minutes 10 --seed 1`: campaigns by hand, seed after seed."""

import argparse
import traceback
from collections import Counter
from pathlib import Path
from time import monotonic

from tests.cluster_processes.chaos.campaign import KINDS, Campaign, WorkersCampaign
from tests.cluster_processes.cluster import say


def main() -> int:
    """Runs campaigns until time is up; 1 if something was wrong, with the seeds that show it."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.cluster_processes.chaos", description=__doc__
    )
    parser.add_argument("--seed", type=int, default=1, help="of the first cluster")
    parser.add_argument("--minutes", type=float, default=5.0, help="no episode begins later")
    parser.add_argument("--episodes", type=int, default=6, help="with one cluster")
    parser.add_argument("--kinds", default=",".join(KINDS), help="of episodes")
    parser.add_argument("--nodes", type=int, default=0, help="instead of as many as are drawn")
    parser.add_argument("--workers", action="store_true", help="workers instead of nodes")
    parser.add_argument("--output", type=Path, default=Path("build/chaos"))
    options = parser.parse_args()
    until = monotonic() + options.minutes * 60
    episodes: Counter[str] = Counter()
    faults: Counter[str] = Counter()
    failures: list[str] = []
    seed = options.seed
    while monotonic() < until:
        campaign: Campaign | WorkersCampaign
        if options.workers:
            campaign = WorkersCampaign(seed, options.output, say)
        else:
            kinds = options.kinds.split(",")
            campaign = Campaign(seed, kinds, options.nodes, options.output, say)
        try:
            wrong = campaign.run(until, options.episodes)
        except Exception:  # noqa: BLE001 - a cluster that does not even start is a finding, too
            wrong = [traceback.format_exc()]
        for each in wrong:
            say(f"   WRONG {each}")
        failures += [f"seed {seed}: {each}" for each in wrong]
        episodes += campaign.episodes
        faults += campaign.faults
        seed += 1
    say(f"seeds {options.seed} to {seed - 1}; episodes {dict(episodes)}; faults {dict(faults)}")
    for each in failures:
        say(f"FAILED {each}")
    return 1 if failures else 0


if __name__ == "__main__":
    raise SystemExit(main())
