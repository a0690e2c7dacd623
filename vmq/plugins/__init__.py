"""Plugins: loading them, calling their hooks, changing them while the broker runs."""
