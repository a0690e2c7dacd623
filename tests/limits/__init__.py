"""Limits and overload, each at its edge, against a real broker."""
