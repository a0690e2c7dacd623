"""The messages between nodes, and their codec."""
