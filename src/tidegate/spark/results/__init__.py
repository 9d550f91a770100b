"""Results as CSV, Parquet and Arrow."""
