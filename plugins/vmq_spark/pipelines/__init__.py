"""The pipelines in the box: `vmq spark run NAME`."""
