"""Ends the broker in the middle of its work, again and again, and damages its files: what became of it.

The devices are those of `tests.cluster_processes`, which none of us wrote. How each packet looks after a restart, DUP,
packet ids and order, is in `tests/vmq/test_flows.py`, where a machine kills the core.
"""
