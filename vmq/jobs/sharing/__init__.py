"""Jobs over the nodes of a cluster: copies, who serves a job, what is done, and workers on other nodes.

Pure: `receive(sender, message, now)` and `tick(now)`; what is to be sent goes to the function that was given. Messages
may be lost, may come late, and come in order between two nodes. Nodes are numbers (`vmq.jobs.sharing.peers`).

A job is on several hosts before whoever adds it is answered. One node *serves* it: it has it queued, or its worker has
it. For the others it is *away*; when its retry is over they ask for it, and who hears of nobody that has it serves it
from then on. Of two that serve it, the one that sent it back to its queue more often goes on, else the higher number.
A job that is done leaves a tombstone on each node that may have it, until all of them have theirs.
"""
