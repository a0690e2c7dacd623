"""Batches that programs lay down in parts, to be published in one step: on disk until they are."""
