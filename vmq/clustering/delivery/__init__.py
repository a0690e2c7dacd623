"""Batches of messages to other nodes: outboxes, the inbox, and what was dropped."""
