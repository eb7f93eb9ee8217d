"""Tables of a Hive Metastore: which partitions there are, where they lie, and what their columns are."""
