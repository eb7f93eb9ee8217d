import java.io.FileWriter;
import java.io.Writer;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collections;
import java.util.List;
import java.util.stream.Collectors;
import org.apache.hadoop.conf.Configuration;
import org.apache.iceberg.AppendFiles;
import org.apache.iceberg.DataFile;
import org.apache.iceberg.DeleteFile;
import org.apache.iceberg.FileFormat;
import org.apache.iceberg.PartitionKey;
import org.apache.iceberg.PartitionSpec;
import org.apache.iceberg.RowDelta;
import org.apache.iceberg.Schema;
import org.apache.iceberg.StructLike;
import org.apache.iceberg.Table;
import org.apache.iceberg.data.GenericFileWriterFactory;
import org.apache.iceberg.data.GenericRecord;
import org.apache.iceberg.data.IcebergGenerics;
import org.apache.iceberg.data.Record;
import org.apache.iceberg.deletes.EqualityDeleteWriter;
import org.apache.iceberg.expressions.Literal;
import org.apache.iceberg.hadoop.HadoopTables;
import org.apache.iceberg.io.CloseableIterable;
import org.apache.iceberg.io.DataWriter;
import org.apache.iceberg.io.OutputFileFactory;
import org.apache.iceberg.types.TypeUtil;
import org.apache.iceberg.types.Types;

/** Makes a table with equality deletes, and writes the rows that IcebergGenerics reads of each snapshot. */
public class EqualityDeletes {
  static Table table;
  static int task = 0;

  static OutputFileFactory files() {
    return OutputFileFactory.builderFor(table, 1, ++task).format(FileFormat.PARQUET).build();
  }

  static StructLike partition(String part) {
    if (table.spec().isUnpartitioned()) {
      return null;
    }
    PartitionKey key = new PartitionKey(table.spec(), table.schema());
    GenericRecord record = GenericRecord.create(table.schema());
    record.setField("part", part);
    key.partition(record);
    return key;
  }

  static DataFile data(String part, List<Record> rows) throws Exception {
    DataWriter<Record> writer =
        new GenericFileWriterFactory.Builder(table)
            .dataFileFormat(FileFormat.PARQUET)
            .dataSchema(table.schema())
            .build()
            .newDataWriter(files().newOutputFile(table.spec(), partition(part)), table.spec(), partition(part));
    try (writer) {
      for (Record row : rows) {
        writer.write(row);
      }
    }
    return writer.toDataFile();
  }

  static DeleteFile deletes(String part, int[] ids, List<Record> keys) throws Exception {
    Schema schema = TypeUtil.select(table.schema(), Arrays.stream(ids).boxed().collect(Collectors.toSet()));
    EqualityDeleteWriter<Record> writer =
        new GenericFileWriterFactory.Builder(table)
            .dataSchema(table.schema())
            .deleteFileFormat(FileFormat.PARQUET)
            .equalityFieldIds(ids)
            .equalityDeleteRowSchema(schema)
            .build()
            .newEqualityDeleteWriter(
                files().newOutputFile(table.spec(), partition(part)), table.spec(), partition(part));
    try (writer) {
      for (Record key : keys) {
        writer.write(key);
      }
    }
    return writer.toDeleteFile();
  }

  static Record row(Object... pairs) {
    GenericRecord record = GenericRecord.create(table.schema());
    for (int at = 0; at < pairs.length; at += 2) {
      record.setField((String) pairs[at], pairs[at + 1]);
    }
    return record;
  }

  static Record key(int[] ids, Object... pairs) {
    Schema schema = TypeUtil.select(table.schema(), Arrays.stream(ids).boxed().collect(Collectors.toSet()));
    GenericRecord record = GenericRecord.create(schema);
    for (int at = 0; at < pairs.length; at += 2) {
      record.setField((String) pairs[at], pairs[at + 1]);
    }
    return record;
  }

  static List<Record> rows(String part, int from, int to) {
    List<Record> out = new ArrayList<>();
    for (int id = from; id < to; id++) {
      out.add(
          row(
              "id", id % 13 == 0 ? null : id,
              "name", id % 7 == 0 ? null : "n" + id % 10,
              "part", part,
              "score", id % 9 == 0 ? Double.NaN : id / 4.0));
    }
    return out;
  }

  static String text(Object value) {
    if (value == null) {
      return "null";
    }
    if (value instanceof Double && ((Double) value).isNaN()) {
      return "\"NaN\"";
    }
    return value instanceof Number ? value.toString() : "\"" + value + "\"";
  }

  static void write(Writer out, String name, boolean first) throws Exception {
    table.refresh();
    out.write((first ? "" : ",") + "\"" + name + "\":{\"columns\":[");
    List<Types.NestedField> columns = table.schema().columns();
    out.write(columns.stream().map(c -> "\"" + c.name() + "\"").collect(Collectors.joining(",")) + "],\"rows\":[");
    List<String> lines = new ArrayList<>();
    try (CloseableIterable<Record> found = IcebergGenerics.read(table).build()) {
      for (Record record : found) {
        lines.add(
            columns.stream().map(c -> text(record.getField(c.name()))).collect(Collectors.joining(",", "[", "]")));
      }
    }
    Collections.sort(lines);
    out.write(String.join(",", lines) + "]}");
  }

  public static void main(String[] arguments) throws Exception {
    String version = arguments[1];
    Schema schema =
        new Schema(
            Types.NestedField.optional(1, "id", Types.IntegerType.get()),
            Types.NestedField.optional(2, "name", Types.StringType.get()),
            Types.NestedField.optional(3, "part", Types.StringType.get()),
            Types.NestedField.optional(4, "score", Types.DoubleType.get()));
    PartitionSpec spec = PartitionSpec.builderFor(schema).identity("part").build();
    table =
        new HadoopTables(new Configuration())
            .create(schema, spec, Collections.singletonMap("format-version", version), arguments[0]);
    try (Writer out = new FileWriter(arguments[2])) {
      out.write("{");
      AppendFiles append = table.newAppend();
      append.appendFile(data("a", rows("a", 0, 60))).appendFile(data("b", rows("b", 30, 90)));
      append.commit();
      write(out, "snapshot:" + table.currentSnapshot().snapshotId(), true);

      // Of one partition; rows of the same commit stay.
      int[] byName = {2};
      RowDelta delta = table.newRowDelta();
      delta.addRows(data("a", rows("a", 100, 120)));
      delta.addDeletes(deletes("a", byName, List.of(key(byName, "name", "n3"), key(byName, "name", null))));
      delta.commit();
      write(out, "snapshot:" + table.currentSnapshot().snapshotId(), false);

      // Of all partitions, as the spec has no field; with null and NaN as keys, and two sets of ids.
      table.updateSpec().removeField("part").commit();
      table.refresh();
      int[] byId = {1};
      int[] byBoth = {1, 2};
      int[] byScore = {4};
      delta = table.newRowDelta();
      delta.addRows(data("c", rows("c", 200, 220)));
      delta.addDeletes(deletes("", byId, List.of(key(byId, "id", null), key(byId, "id", 35))));
      delta.addDeletes(
          deletes("", byBoth, List.of(key(byBoth, "id", 41, "name", "n1"), key(byBoth, "id", 44, "name", "n1"))));
      delta.addDeletes(deletes("", byScore, List.of(key(byScore, "score", Double.NaN))));
      delta.commit();
      write(out, "snapshot:" + table.currentSnapshot().snapshotId(), false);

      table.updateSchema().renameColumn("name", "title").commit();
      if (version.equals("3")) {
        table
            .updateSchema()
            .addColumn("added", Types.IntegerType.get(), null, Literal.of(42))
            .commit();
        table.refresh();
        int[] byAdded = {5};
        delta = table.newRowDelta();
        delta.addRows(
            data("d", List.of(row("id", 1, "part", "d", "added", 7), row("id", 2, "part", "d", "added", 42))));
        delta.commit();
        write(out, "snapshot:" + table.currentSnapshot().snapshotId(), false);
        delta = table.newRowDelta();
        int[] byAddedAndId = {1, 5};
        delta.addDeletes(
            deletes(
                "",
                byAddedAndId,
                List.of(key(byAddedAndId, "id", 2, "added", 42), key(byAddedAndId, "id", 50, "added", 42))));
        delta.commit();
      } else {
        table.refresh();
        table.newAppend().appendFile(data("d", List.of(row("id", 1, "title", "x", "part", "d")))).commit();
      }
      write(out, "snapshot:" + table.currentSnapshot().snapshotId(), false);
      write(out, "now", false);
      out.write("}");
    }
  }
}
