import com.github.shyiko.mysql.binlog.BinaryLogFileReader;
import com.github.shyiko.mysql.binlog.event.DeleteRowsEventData;
import com.github.shyiko.mysql.binlog.event.Event;
import com.github.shyiko.mysql.binlog.event.EventData;
import com.github.shyiko.mysql.binlog.event.TableMapEventData;
import com.github.shyiko.mysql.binlog.event.UpdateRowsEventData;
import com.github.shyiko.mysql.binlog.event.WriteRowsEventData;
import com.github.shyiko.mysql.binlog.event.deserialization.ChecksumType;
import com.github.shyiko.mysql.binlog.event.deserialization.ColumnType;
import com.github.shyiko.mysql.binlog.event.deserialization.EventDeserializer;
import com.github.shyiko.mysql.binlog.event.deserialization.json.JsonBinary;
import java.io.File;
import java.io.Serializable;
import java.util.BitSet;
import java.util.HashMap;
import java.util.Map;

/**
 * Reads the rows of binlog files with Debezium's reader, documents as texts, which is what its connector makes of them; prints
 * how many rows there are, and the seconds of the last of three readings.
 */
class DebeziumWalk {
    public static void main(String[] files) throws Exception {
        long rows = 0, start = 0;
        for (int repeat = 0; repeat < 3; repeat++) {
            rows = 0;
            start = System.nanoTime();
            for (String file : files) {
                rows += walk(file);
            }
        }
        System.out.println(rows + " " + (System.nanoTime() - start) / 1e9);
    }

    static long walk(String file) throws Exception {
        EventDeserializer deserializer = new EventDeserializer();
        deserializer.setChecksumType(ChecksumType.CRC32);
        Map<Long, byte[]> columnTypes = new HashMap<>();
        long rows = 0;
        try (BinaryLogFileReader reader = new BinaryLogFileReader(new File(file), deserializer)) {
            for (Event event; (event = reader.readEvent()) != null; ) {
                EventData data = event.getData();
                if (data instanceof TableMapEventData map) {
                    columnTypes.put(map.getTableId(), map.getColumnTypes());
                } else if (data instanceof WriteRowsEventData written) {
                    for (Serializable[] row : written.getRows()) {
                        documents(row, written.getIncludedColumns(), columnTypes.get(written.getTableId()));
                        rows++;
                    }
                } else if (data instanceof UpdateRowsEventData updated) {
                    byte[] types = columnTypes.get(updated.getTableId());
                    for (Map.Entry<Serializable[], Serializable[]> row : updated.getRows()) {
                        documents(row.getValue(), updated.getIncludedColumns(), types);
                        rows++;
                    }
                } else if (data instanceof DeleteRowsEventData deleted) {
                    rows += deleted.getRows().size();
                }
            }
        }
        return rows;
    }

    /** Makes texts of the documents of a row. */
    static void documents(Serializable[] row, BitSet included, byte[] types) throws Exception {
        int value = 0;
        for (int column = included.nextSetBit(0); column >= 0; column = included.nextSetBit(column + 1)) {
            boolean isDocument = (types[column] & 0xff) == ColumnType.JSON.getCode();
            if (isDocument && row[value] instanceof byte[] bytes && bytes.length > 0) {
                row[value] = JsonBinary.parseAsString(bytes);
            }
            value++;
        }
    }
}
