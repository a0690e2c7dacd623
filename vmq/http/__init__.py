"""The HTTP listener: metrics, health and status."""
