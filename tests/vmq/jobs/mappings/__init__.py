"""Mappings: what becomes of messages and jobs."""
