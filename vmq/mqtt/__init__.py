"""The MQTT protocol as bytes: packets, decoder, encoder, topic names and filters.

Nothing here knows of sockets, clocks or sessions; everything can be called from a plain test.
"""
