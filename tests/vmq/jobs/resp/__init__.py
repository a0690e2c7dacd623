"""Mirrors vmq/jobs/resp."""
