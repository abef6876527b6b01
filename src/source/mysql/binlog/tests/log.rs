//! A log written event by event, with checksums.

/// Collects events as a server would write them. Every table is `id int primary key, v varchar(20)`.
pub struct LogWriter {
    pub events: Vec<Vec<u8>>,
    pub offset: usize,
    /// Leave the optional metadata out of TABLE_MAP events.
    pub bare_metadata: bool,
    /// Leave the second column out of the images.
    pub partial_images: bool,
    table_id: u64,
}

impl LogWriter {
    /// A log that begins with its format description and goes on with a script.
    pub fn of(script: &str) -> Self {
        let mut log = Self { events: Vec::new(), offset: 4, bare_metadata: false, partial_images: false, table_id: 0 };
        log.format_description(1);
        log.run(script);
        log
    }

    /// Statements separated by semicolons: `begin`, `commit`, `rollback`, `savepoint s`, `to s`, `xa`, `prepare`,
    /// `sql ...`, and rows: `a+1 x` (insert), `a=1 x y` (update), `a=1>2 x y` (with a new key), `a-1` (delete).
    pub fn run(&mut self, script: &str) {
        for statement in script.split(';').map(str::trim).filter(|statement| !statement.is_empty()) {
            let words: Vec<&str> = statement.split(' ').collect();
            match words[0] {
                "begin" => self.query("BEGIN"),
                "commit" => self.emit(16, &7u64.to_le_bytes()),
                "rollback" => self.query("ROLLBACK"),
                "savepoint" => self.query(&format!("SAVEPOINT `{}`", words[1])),
                "to" => self.query(&format!("ROLLBACK TO `{}`", words[1])),
                "xa" => self.query("XA START X'61',X'',1"),
                "prepare" => self.emit(38, &[0, 1, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, b'a']),
                "sql" => self.query(&words[1..].join(" ")),
                _ => self.rows(&words),
            }
        }
    }

    fn rows(&mut self, words: &[&str]) {
        let at = words[0].find(['+', '-', '=']).expect("a row statement");
        let (table, change) = words[0].split_at(at);
        self.table_map(table);
        let (kind, rest) = change.split_at(1);
        let (before, after) = rest.split_once('>').unwrap_or((rest, rest));
        let (before, after) = (before.parse().unwrap(), after.parse().unwrap());
        match kind {
            "+" => self.row_event(30, &[(after, words[1])]),
            "-" => self.row_event(32, &[(before, "gone")]),
            _ => self.row_event(31, &[(before, words[1]), (after, words[2])]),
        }
    }

    fn table_map(&mut self, table: &str) {
        let id = table.bytes().fold(100u64, |id, byte| id * 31 + u64::from(byte)) & 0xffff;
        let mut body = id.to_le_bytes()[..6].to_vec();
        body.extend([1, 0, 4]);
        body.extend(b"shop\0");
        body.push(table.len() as u8);
        body.extend(table.bytes());
        body.extend([0, 2, 3, 15, 2, 80, 0, 2]);
        if !self.bare_metadata {
            body.extend(b"\x01\x01\x00\x02\x01\x2d\x04\x05\x02id\x01v\x08\x01\x00");
        }
        self.emit(19, &body);
        self.table_id = id;
    }

    fn row_event(&mut self, kind: u8, images: &[(i32, &str)]) {
        let mut body = self.table_id.to_le_bytes()[..6].to_vec();
        body.extend([1, 0, 2, 0, 2]);
        let present = if self.partial_images { 1 } else { 0xff };
        body.push(present);
        if kind == 31 {
            body.push(present);
        }
        for (id, value) in images {
            body.push(0);
            body.extend(id.to_le_bytes());
            if !self.partial_images {
                body.push(value.len() as u8);
                body.extend(value.bytes());
            }
        }
        self.emit(kind, &body);
    }

    fn query(&mut self, statement: &str) {
        let mut body = vec![0; 8];
        body.extend([4, 0, 0, 0, 0]);
        body.extend(b"shop\0");
        body.extend(statement.bytes());
        self.emit(2, &body);
    }

    /// `started_s` is 0 for a file that a rotation began.
    pub fn format_description(&mut self, started_s: u32) {
        let mut body = vec![4, 0];
        body.extend(format!("{:\0<50}", "8.0.36").bytes());
        body.extend(started_s.to_le_bytes());
        body.push(19);
        body.extend([8; 41]);
        body.push(1);
        self.emit(15, &body);
    }

    pub fn emit(&mut self, kind: u8, body: &[u8]) {
        self.emit_flags(kind, 0, body);
    }

    pub fn emit_flags(&mut self, kind: u8, flags: u16, body: &[u8]) {
        let size = 19 + body.len() + 4;
        self.offset += size;
        let mut event = 1_700_000_000u32.to_le_bytes().to_vec();
        event.push(kind);
        event.extend(1u32.to_le_bytes());
        event.extend((size as u32).to_le_bytes());
        event.extend((self.offset as u32).to_le_bytes());
        event.extend(flags.to_le_bytes());
        event.extend(body);
        event.extend(crc32fast::hash(&event).to_le_bytes());
        self.events.push(event);
    }
}
