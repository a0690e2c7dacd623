"""Mirrors vmq/jobs/storage."""
