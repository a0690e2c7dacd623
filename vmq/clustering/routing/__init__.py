"""Which nodes want a message: remote subscriptions, shared groups, and propagation barriers."""
