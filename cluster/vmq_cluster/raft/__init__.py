"""Raft for the partitions of streams: `vmq.clustering.raft` runs it, over the segments of `vmq.streams.replica`.

It is a state machine without input and output, as all of `vmq_cluster` is: messages and the time go in, effects come
out. Nothing here knows a disk, a socket, a clock or a source of randomness. In ten minutes:

**Words.** A *group* is the replicas of one log, a *replica* one node's part of it. The *log* is batches by offset
(index = offset); where every replica that counts has one, it is *committed*. A *term* has one leader at most. *Safe*
is what a replica's disk has as durable as the group promises. A *ballot* is the term, the vote, and whether the
replica *abstains*.

**Files**, from below:

| file | what it has |
| --- | --- |
| `messages` | what replicas say to each other; batches; envelopes |
| `members` | voters and learners, majorities, the next single change |
| `state`, `forms` | what a log says beside its rows: terms, members, producers, uncertain ranges |
| `log` | the port that the segments of a partition meet |
| `replica` | ballot, log, commit index: what a replica has in any role |
| `election`, `following`, `leading` | the three roles |
| `recovery` | when an operator may have one replica go on alone |
| `group` | one group on one node: who plays which role, who hears what |
| `host` | all groups of a node: envelopes, ticks, quiet groups |
| `placement`, `meta` | where replicas go, and the meta group's decisions |

**The loop that drives it.** One `Host` a node; every call gives effects, to be carried out in their order:

1. `Save` first: the ballot is on disk, synced, before anything that follows it leaves. (One file a node, group
   commit.)
2. `Send` hands an envelope to the link; it may get lost, come twice or late. Every envelope has the sender's boot.
3. `Committed`: readers may see rows up to there. `Answered`: an append or a question is decided. `Led`: a hint of the
   leader.
4. Logs are written through the port during the call; when more of one is `safe`, its host is told (`Host.on_safe`).
5. `Host.tick` comes every 50 ms or so, `peer_up` and `peer_down` from the links' detector.
6. `Host.open` takes a life that is higher than before, and whether the log may have `forgot`ten: memory: any start
   without a clean mark; os: another boot of the machine without it; fsync: never; and whenever its tail was damaged.
   A node whose disk is lost comes back under a new name, as a learner: it must not vote twice in a term.

**Rules beside the paper's** (Ongaro, 2014), each of which the simulator shows to be needed by switching it off
(`tests/simulator/ablations.py`):

- *Appending once*: a producer is (store, boot), its numbers have no gaps. Known rows are acknowledged when they are
  committed, not when they are seen. The table is part of the log: the first batch of a segment has it whole.
- *Forgetting*: who may have forgotten neither votes nor counts until it has all that its leader had when it came
  back, and a round has shown that this leader led then. What an earlier life confirmed counts no more. Where those
  who remember are no majority, the group waits `unclean_wait`, or until all are there; then the longest log leads,
  and where rows may be missing stands in the log for ever. Whoever had committed something else behind that place
  gives way.
- *Damage is a range*: committed batches that cannot be read are fetched from whoever has them; the replica goes on
  voting, and lets others stand first. Damage in the last segments is cut off, which is forgetting.
- *No leases*: whether a leader still leads, a question (`Group.ask`) learns by a round.
- *Quiet groups* cost nothing: no heartbeats, no timers (`host`).

**Leaders push what is new, followers pull what is old** (`following` says why): appends come from the leader at once;
sealed files and damaged ranges are asked for, piece by piece, by the one whose disk has to take them.

**What is not here**: the driver that binds a group to a partition's segments and to the links; the options `acks` and
`replicas`; limits for what waits for a leader (all in `vmq.clustering.raft`).
"""
