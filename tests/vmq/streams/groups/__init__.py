"""Tests of consumer groups."""
