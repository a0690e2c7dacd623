"""A partition of which several nodes have a copy: its segments are the log of a Raft group (`vmq_cluster.raft`)."""
