"""Sockets between nodes: ZeroMQ between machines, Unix sockets within one."""
