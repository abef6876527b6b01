import com.github.shyiko.mysql.binlog.BinaryLogFileReader;
import com.github.shyiko.mysql.binlog.event.DeleteRowsEventData;
import com.github.shyiko.mysql.binlog.event.Event;
import com.github.shyiko.mysql.binlog.event.EventData;
import com.github.shyiko.mysql.binlog.event.UpdateRowsEventData;
import com.github.shyiko.mysql.binlog.event.WriteRowsEventData;
import com.github.shyiko.mysql.binlog.event.deserialization.ChecksumType;
import com.github.shyiko.mysql.binlog.event.deserialization.EventDeserializer;
import java.io.File;

/** Reads the rows of binlog files with Debezium's reader; prints how many there are, and the seconds of the last of three readings. */
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
        long rows = 0;
        try (BinaryLogFileReader reader = new BinaryLogFileReader(new File(file), deserializer)) {
            for (Event event; (event = reader.readEvent()) != null; ) {
                EventData data = event.getData();
                if (data instanceof WriteRowsEventData written) {
                    rows += written.getRows().size();
                } else if (data instanceof UpdateRowsEventData updated) {
                    rows += updated.getRows().size();
                } else if (data instanceof DeleteRowsEventData deleted) {
                    rows += deleted.getRows().size();
                }
            }
        }
        return rows;
    }
}
