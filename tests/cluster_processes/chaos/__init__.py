"""A randomized campaign against real clusters: `python -m tests.cluster_processes.chaos --minutes 10 --seed 1`."""
