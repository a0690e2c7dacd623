"""What waits for nodes that are down: hints, their holders, and new owners."""
