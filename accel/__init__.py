"""accel: selective queries over Parquet files in object stores, in about the time the network needs."""
