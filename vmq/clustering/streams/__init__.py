"""Streams over several nodes: owners of partitions, routed appends, handover."""
