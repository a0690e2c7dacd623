"""Bounds in bytes: memory, disk, the age of messages, and what is told of drops."""
