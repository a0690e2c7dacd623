"""Hooks answered by a web server."""
