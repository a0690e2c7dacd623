"""Streams in a running broker: sinks of topics, and the listener of Flight."""
