"""A broker as a node: start, join, leave, key and metrics."""
