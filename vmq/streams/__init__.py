"""Streams: partitioned, append-only logs of messages, kept in Arrow IPC segments and read by Arrow Flight.

The broker calls `catalog` (which streams there are), `appender` (the hot path) and `commits` (when an
acknowledgement may leave). Nothing here knows sessions, queues or the registry. Needs vmq[streams].
"""
