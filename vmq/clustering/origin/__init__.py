"""Where messages are published: routes to slots, outboxes, and what is safe. See `vmq.clustering.slots`."""
