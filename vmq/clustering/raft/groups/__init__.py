"""All groups of a node, whose logs and ballots one thread has: passes over what comes, by that thread or by the loop.

| file | what it has |
| --- | --- |
| `ballots` | votes and terms of all groups of the node, in one file |
| `opened`, `upkeep` | a group, and what its leader sees to now and then |
| `taking` | rows of producers into the logs |
| `turns` | the thread as such, and who makes the next pass |
| `thread` | a pass: the host of the groups, their partitions, the clock |
| `passes` | passes of the event loop's own, for what is routine |
"""
