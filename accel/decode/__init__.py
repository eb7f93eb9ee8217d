"""From pages to Arrow arrays, by pyarrow."""
