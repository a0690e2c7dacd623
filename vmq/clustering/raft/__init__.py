"""Raft groups in a broker: what drives `vmq_cluster.raft`, and the partitions of streams whose logs they keep.

All groups of a node run in one thread (`groups`), with their files: the event loop waits for no disk, and a disk that
hangs takes the leadership from its node alone. What is little and routine the loop does itself. It has the links, the
metadata and the producers (`service`).

| file | what it has |
| --- | --- |
| `produce` | how rows of several producers become one batch |
| `groups` | the thread: the host of the groups, their partitions, the clock; and the loop's own passes |
| `decisions` | what the leader of the meta group has decided, and proposes next |
| `system` | the log of a group of no stream on this node |
| `meta`, `cursors` | the meta group; the log of consumer groups |
| `records` | what the metadata say of it: hints, and copies of what was decided |
| `producer`, `appender` | the messages of this node on their way to the leaders |
| `converting` | streams of one copy that get more |
| `requests` | what an operator asks |
| `service` | the loop's side |
"""
