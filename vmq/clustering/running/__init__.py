"""The machines of slots in a broker. See `vmq.clustering.slots` for what they do.

    links     lives of links: what comes is in order and whole, or the life ends    disk     commits
    routes    filter -> slots in the metadata, and who knows of them               clients  the ports of the core
    service   carries events in and effects out                                    status   what is shown of it
    told      what plugins are told                        turn      when it is carried out
    members   share groups of clients

A client with a durable session is a clean one to its node's registry (`vmq.protocol.front_queue`): that has its
subscriptions while it is connected, for QoS 0, and its takeover goes through the directory as that of clean sessions
does. What is of QoS 1 and 2 is offered to slots, which the routes of a topic name beside nodes.

Of a share group the node that publishes chooses: a slot with members, whose owner chooses one of them
(`vmq.clustering.slots.sharing`), or a clean member (`vmq.clustering.routing.shared_dispatch`).

The owner of a client tells its front which QoS 2 packet ids it has not released (`Attached`): what comes again under
one of them goes to slots, which know its dots, and to nobody else, unless the front to which it came first is gone.

What is to follow: states on disk alone until their clients come.
"""
