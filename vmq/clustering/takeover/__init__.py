"""A session goes to the node that its client connects to."""
