"""What reading vmq's streams costs in Spark, beside Spark's own sources in the same session."""
