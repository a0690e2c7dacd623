"""Durable sessions in slots: who has a client's session, and how it goes on when that node does not.

Read in this order:

    words        numbers that name nodes, slots, messages      placement    which hosts have which slots
    state        queues, context, registers of a slot          records      the same as keys and values on disk
    queued       messages in queues, and their records
    merge        two states that parted become one             copies       what a node has that does not own the slot
    reach        the failure detector                          followers    what an owner sends its followers
    owned        what is safe                                  subscribers  who in the slot gets a message
    sharing      which member of a share group does            attachments  the owner and its clients
    away         who has no connection: wills, expiry          limits       of queues, as a plugin decided
    owner        followers, forks, messages                    machine      all slots of one node: views, takeover
    turns        which of them a turn, or a heartbeat, looks at
    flow         what goes straight to its client, in runs    cold         what waits on the disk alone

A client's id hashes to a **slot**, which has an **owner** and **followers** on other hosts. A message is addressed to
slots and known by its **dot**: the incarnation where it was published, and its place there for that slot. The
**origin** (`vmq.clustering.origin`) offers what is not confirmed, oldest first, to whoever owns the slot; the owner
takes what its **context** lacks. PUBACK and PUBREC leave when all slots concerned have it **safe**: on the owner's
disk and on every follower's; PUBACK also when nobody lacks it any more (`owned`). The **front**
(`vmq.clustering.front`) is the node of the client's connection: it attaches that to the owner.

An owner's **lineage** ends with its broker's life, or when another node takes over in the next epoch. What it wrote
that the new owner does not have is a **fork**. An owner serves when every node in reach has handed in its forks or
denied having any; so who takes over is a matter of speed, never of safety.

All of it is pure: what happens goes in, effects come out (`effects`); clocks are the nodes' own; nothing is drawn at
random. A seeded world (tests/simulator/sessions) tries it against nodes that die, hang, lose disks or part of them,
against splits and links that fail one way, several at once, and shows of each rule what breaks without it.

The nodes of a cluster run it (`vmq.clustering.running`); a broker without a cluster has its durable sessions in its
store. The state of a slot is in its owner's memory as well as on its disk, but for messages that wait (`cold`). What an
origin, an owner and a front that are one node say to each other are calls. What these machines leave to it:
payloads stored once for many slots; a state's changes in one turn are one message to a follower, however many; contexts
keep a run of numbers for each life of each store; when a session was left is known to its owner alone, and counts anew
with each owner.
"""
