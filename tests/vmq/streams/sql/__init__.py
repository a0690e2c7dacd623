"""Tests of SQL on streams."""
