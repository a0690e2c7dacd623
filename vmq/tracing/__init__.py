"""Watching one client: its MQTT frames and the calls of hooks that are about it."""
