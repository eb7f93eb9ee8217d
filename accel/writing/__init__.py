"""Write Parquet files for selective reading, and put indexes into existing files."""

from accel.writing.embedding import embed, embed_async
from accel.writing.report import EmbeddedIndex, EmbedProgress, EmbedReport
from accel.writing.table_writer import write_table

__all__ = ["EmbedProgress", "EmbedReport", "EmbeddedIndex", "embed", "embed_async", "write_table"]
