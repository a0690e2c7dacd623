"""The load generator: measures a broker, and checks that it delivers everything once and in order.

Both ends of every flow live in one process and one thread, so each message is timed by one clock. Messages are encoded
beforehand, in blocks; what comes back is compared with those blocks, run by run. No loop handles a single message
unless something is wrong with it.
"""
