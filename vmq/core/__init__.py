"""What the compiled broker holds: queues, topic tree, retained messages, the registry of sessions, output."""
