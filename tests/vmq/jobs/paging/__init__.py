"""Mirrors vmq/jobs/paging."""
