"""Mappings: messages and jobs that go elsewhere, too, by the operator's expressions."""
