"""Raft for the logs of partitions. STREAMS DO NOT RUN ON IT YET."""
