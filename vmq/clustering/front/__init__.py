"""Where clients are connected: attachments to the owners of their sessions. See `vmq.clustering.slots`."""
