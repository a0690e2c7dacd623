"""Tests of vmq."""
