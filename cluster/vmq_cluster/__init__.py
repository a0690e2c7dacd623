"""A cluster without a master: membership, broadcast, replicated metadata, channels between nodes.

It knows nothing of MQTT: it replicates keys and carries bytes. Everything above the link is a state machine without
input and output: messages and the time go in, effects come out.
"""
