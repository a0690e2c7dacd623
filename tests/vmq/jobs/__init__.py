"""Mirrors vmq/jobs."""
