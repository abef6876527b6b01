//! Events written by hand, through the whole decoder.

mod log;
mod model;
mod recorded;

use std::collections::{BTreeMap, HashMap, HashSet};

use arrow::util::display::{ArrayFormatter, FormatOptions};

use self::log::LogWriter;
use super::{Decoder, DecoderOptions};
use crate::change::{ChangeBatch, Operation, ResumePoint, SourcePosition};
use crate::config::TableFilter;
use crate::source::{SourceError, SourceErrorKind, SourceEvent};

fn options(chunk_bytes: usize) -> DecoderOptions {
    options_of(TableFilter::new(["shop.*", "!shop.tmp*"]).unwrap(), chunk_bytes)
}

fn options_of(filter: TableFilter, chunk_bytes: usize) -> DecoderOptions {
    let position = SourcePosition { order: (1, 4), text: "bin.000001:4".into() };
    DecoderOptions {
        filter,
        schemas: HashMap::new(),
        skip: HashSet::new(),
        keys: BTreeMap::new(),
        start: ResumePoint { position, gtid_set: None },
        chunk_bytes,
        chunk_rows: usize::MAX,
    }
}

/// One line for each row: what happens, table, values; a dot stands for one that is left out, `~` for a patch.
fn rows(batch: &ChangeBatch) -> String {
    batch.validate().unwrap();
    let options = FormatOptions::default().with_null("-");
    let columns: Vec<_> =
        batch.rows.columns().iter().map(|column| ArrayFormatter::try_new(column, &options).unwrap()).collect();
    let line = |(row, operation): (usize, &Operation)| {
        let gap = batch.gaps.as_ref().map(|gaps| gaps.get(row));
        let value = |(index, column): (usize, &ArrayFormatter<'_>)| match &gap {
            Some(gap) if gap.is_absent(index) => ".".to_string(),
            Some(gap) if gap.is_patched(index) => {
                format!("~{}", column.value(row).to_string().replace('\t', " ").replace('\n', ";"))
            }
            _ => column.value(row).to_string(),
        };
        let values: Vec<String> = columns.iter().enumerate().map(value).collect();
        format!("{operation:?} {} {}", batch.schema.table.table, values.join(" "))
    };
    batch.operations.iter().enumerate().map(line).collect::<Vec<_>>().join(", ")
}

fn describe(event: &SourceEvent) -> String {
    match event {
        SourceEvent::Rows(batch) => rows(batch),
        SourceEvent::Boundary(_) => "boundary".into(),
        SourceEvent::Discard { keep } => format!("discard {keep}"),
        SourceEvent::Schema(change) => format!("schema {} v{}", change.schema.table.table, change.schema.version),
        SourceEvent::TableStopped(stopped) => format!("stopped {}", stopped.table.table),
    }
}

fn drain(decoder: &mut Decoder, out: &mut Vec<SourceEvent>) -> Result<(), SourceError> {
    while let Some(event) = decoder.next_event()? {
        out.push(event);
    }
    Ok(())
}

/// Feeds everything and flushes at the end.
fn run(log: &LogWriter, options: DecoderOptions) -> Result<Vec<SourceEvent>, SourceError> {
    let (mut decoder, mut out) = (Decoder::new(options), Vec::new());
    for event in &log.events {
        decoder.feed(event)?;
        drain(&mut decoder, &mut out)?;
    }
    decoder.flush()?;
    drain(&mut decoder, &mut out)?;
    Ok(out)
}

/// Options under which the tables `a` and `b` are known.
fn options_known(chunk_bytes: usize) -> DecoderOptions {
    let mut options = options(chunk_bytes);
    for event in run(&LogWriter::of("begin; a+1 x; b+1 x; commit"), self::options(1)).unwrap() {
        if let SourceEvent::Schema(change) = event {
            options.schemas.insert(change.schema.table.clone(), change.schema);
        }
    }
    options
}

/// Runs statements and compares the events that come out.
fn check_chunks(chunk_bytes: usize, script: &str, expected: &[&str]) {
    let events = run(&LogWriter::of(script), options_known(chunk_bytes)).unwrap();
    let found: Vec<String> = events.iter().map(describe).collect();
    assert_eq!(found, expected, "{script}");
}

fn check(script: &str, expected: &[&str]) {
    check_chunks(1 << 20, script, expected);
}

fn check_error(log: &LogWriter, kind: SourceErrorKind, words: &str) {
    let error = run(log, options(1 << 20)).map(|events| events.iter().map(describe).collect::<Vec<_>>()).unwrap_err();
    assert_eq!(error.kind, kind, "{error}");
    assert!(error.message.contains(words), "{words:?} in {error}");
}

#[test]
fn small_transactions_come_as_one_batch_and_one_boundary() {
    check(
        "begin; a+1 x; commit; begin; a=1 x y; commit; begin; a-1; commit",
        &["Insert a 1 x, Update a 1 y, Delete a 1 -", "boundary"],
    );
}

#[test]
fn a_key_change_is_a_delete_and_an_insert() {
    check("begin; a=1>2 x y; commit", &["Delete a 1 -, Insert a 2 y", "boundary"]);
}

#[test]
fn each_table_has_a_batch_of_its_own() {
    check("begin; a+1 x; b+2 y; a+3 z; commit", &["Insert a 1 x, Insert a 3 z", "Insert b 2 y", "boundary"]);
}

#[test]
fn tables_that_nobody_asked_for_are_left_out() {
    check("begin; tmp+1 x; a+1 x; commit", &["Insert a 1 x", "boundary"]);
}

#[test]
fn a_rollback_leaves_nothing() {
    check("begin; a+1 x; commit; begin; a+2 x; rollback", &["Insert a 1 x", "boundary"]);
}

#[test]
fn a_large_transaction_is_handed_out_before_its_end() {
    check_chunks(1, "begin; a+1 x; a+2 y; commit", &["Insert a 1 x", "Insert a 2 y", "boundary"]);
}

#[test]
fn what_was_handed_out_is_discarded_by_a_rollback() {
    check_chunks(
        1,
        "begin; a+1 x; commit; begin; a+2 x; a+3 x; rollback",
        &["Insert a 1 x", "boundary", "Insert a 2 x", "Insert a 3 x", "discard 0", "boundary"],
    );
}

#[test]
fn a_savepoint_keeps_what_came_before_it() {
    check("begin; a+1 x; savepoint s; a+2 x; b+1 x; to s; a+3 x; commit", &["Insert a 1 x, Insert a 3 x", "boundary"]);
    check_chunks(
        1,
        "begin; a+1 x; savepoint s; a+2 x; b+1 x; to s; a+3 x; commit",
        &["Insert a 1 x", "Insert a 2 x", "Insert b 1 x", "discard 1", "Insert a 3 x", "boundary"],
    );
}

#[test]
fn rows_that_are_handed_out_are_cut_at_savepoints() {
    // Two rows fill a chunk: the savepoint lies between them.
    check_chunks(
        40,
        "begin; a+1 x; savepoint s; a+2 x; a+3 x; to s; commit",
        &["Insert a 1 x", "Insert a 2 x, Insert a 3 x", "discard 1", "boundary"],
    );
}

#[test]
fn rows_outside_of_a_transaction_end_with_their_statement() {
    check("a+1 x; a+2 y", &["Insert a 1 x, Insert a 2 y", "boundary"]);
}

#[test]
fn every_part_of_an_open_transaction_waits_for_its_end() {
    let mut log = LogWriter::of("begin; a+1 x; commit; begin; a+2 y");
    let (mut decoder, mut out) = (Decoder::new(options(1 << 20)), Vec::new());
    for event in &log.events {
        decoder.feed(event).unwrap();
    }
    assert!(!decoder.is_between_transactions());
    decoder.flush().unwrap();
    drain(&mut decoder, &mut out).unwrap();
    let found: Vec<String> = out.iter().map(describe).collect();
    assert_eq!(found, ["schema a v1", "Insert a 1 x", "boundary", "Insert a 2 y"]);
    log.run("commit");
    decoder.feed(log.events.last().unwrap()).unwrap();
    assert!(decoder.is_between_transactions());
}

#[test]
fn a_boundary_tells_where_its_last_transaction_ended_and_when() {
    let log = LogWriter::of("begin; a+1 x; commit; begin; a+2 x; commit");
    let events = run(&log, options(1 << 20)).unwrap();
    let Some(SourceEvent::Boundary(boundary)) = events.last() else { panic!("no boundary at the end") };
    assert_eq!(boundary.resume.position.text, format!("bin.000001:{}", log.offset));
    assert_eq!(boundary.commit_time_us, Some(1_700_000_000_000_000));
    let spans = events.iter().filter_map(|event| match event {
        SourceEvent::Rows(batch) => Some(batch.transactions.iter().map(|span| span.first_row).collect::<Vec<_>>()),
        _ => None,
    });
    assert_eq!(spans.collect::<Vec<_>>(), [vec![0, 1]]);
}

#[test]
fn a_boundary_is_never_after_an_event_that_the_next_transaction_needs() {
    const ANONYMOUS_GTID: u8 = 34;
    const PREVIOUS_GTIDS: u8 = 35;
    let boundary_before = |write: &dyn Fn(&mut LogWriter), events: usize| {
        let mut log = LogWriter::of("begin; a+1 x; commit");
        let end = log.events.len() + events;
        write(&mut log);
        log.events.truncate(end);
        let events = run(&log, options_known(1 << 20)).unwrap();
        let Some(SourceEvent::Boundary(boundary)) = events.last() else { panic!("no boundary at the end") };
        boundary.resume.position.order.1
    };
    let before = boundary_before(&|_| (), 0);
    assert_eq!(boundary_before(&|log| log.emit(ANONYMOUS_GTID, &[0; 25]), 1), before);
    // A TABLE_MAP outside of any transaction.
    assert_eq!(boundary_before(&|log| log.run("a+2 x"), 1), before);
    assert!(boundary_before(&|log| log.emit(PREVIOUS_GTIDS, &[0; 8]), 1) > before);
}

#[test]
fn a_table_whose_columns_are_not_known_is_taken_out_and_the_others_go_on() {
    let mut log = LogWriter::of("begin; a+1 x");
    log.bare_metadata = true;
    log.run("b+1 x; a+2 x; commit");
    let found: Vec<String> = run(&log, options(1 << 20)).unwrap().iter().map(describe).collect();
    assert_eq!(found, ["schema a v1", "stopped b", "Insert a 1 x", "Insert a 2 x", "boundary"]);
}

#[test]
fn images_without_all_columns_take_their_table_out() {
    let mut log = LogWriter::of("begin; a+1 x; commit; begin");
    log.partial_images = true;
    log.run("a+2 x; commit");
    let events = run(&log, options(1 << 20)).unwrap();
    let reasons: Vec<&str> = events
        .iter()
        .filter_map(|event| match event {
            SourceEvent::TableStopped(stopped) => Some(stopped.reason.as_str()),
            _ => None,
        })
        .collect();
    assert_eq!(reasons.len(), 1);
    assert!(reasons[0].contains("binlog_row_image = FULL"), "{}", reasons[0]);
}

#[test]
fn a_prepared_transaction_counts_from_its_commit_on() {
    let script = "begin; a+1 x; commit; xa; a+2 x; b+2 x; prepare; begin; a+3 x; commit";
    check(
        &format!("{script}; sql XA COMMIT X'61',X'',1; begin; a+4 x; commit"),
        &["Insert a 1 x", "boundary", "Insert a 3 x", "Insert a 2 x", "Insert b 2 x", "Insert a 4 x", "boundary"],
    );
    check(
        &format!("{script}; sql XA ROLLBACK X'61',X'',1; begin; a+4 x; commit"),
        &["Insert a 1 x", "boundary", "Insert a 3 x, Insert a 4 x", "boundary"],
    );
    // Nothing may be resumed from behind its rows before.
    check(script, &["Insert a 1 x", "boundary", "Insert a 3 x"]);
}

#[test]
fn what_is_rolled_back_while_another_is_prepared_leaves_the_rows_before_it() {
    check_chunks(
        1,
        "xa; a+1 x; savepoint s; a+9 x; to s; prepare; begin; a+2 x; commit; begin; a+3 x; rollback; \
         sql XA COMMIT X'61',X'',1",
        &["Insert a 2 x", "Insert a 3 x", "discard 1", "Insert a 1 x", "boundary"],
    );
}

#[test]
fn a_truncate_while_a_transaction_is_prepared_stays_when_a_later_one_is_rolled_back() {
    check_chunks(
        1,
        "xa; b+1 x; prepare; sql truncate table a; begin; a+3 x; rollback; sql XA COMMIT X'61',X'',1",
        &["Truncate a - -", "Insert a 3 x", "discard 1", "Insert b 1 x", "boundary"],
    );
}

#[test]
fn truncate_is_a_transaction_of_its_own() {
    check(
        "begin; a+1 x; commit; sql truncate table a; begin; a+2 x; commit",
        &["Insert a 1 x", "boundary", "Truncate a - -", "boundary", "Insert a 2 x", "boundary"],
    );
}

#[test]
fn a_statement_in_place_of_rows_takes_its_table_out() {
    check(
        "begin; a+1 x; b+1 x; commit; begin; sql insert into a values (2, 'x'); commit; begin; a+2 x; b+2 x; commit",
        &["Insert a 1 x", "Insert b 1 x", "boundary", "stopped a", "Insert b 2 x", "boundary"],
    );
}

#[test]
fn a_table_that_stops_within_a_transaction_is_told_at_once() {
    // Its rows of this transaction must not be committed without those that are missing: the reader goes back.
    check_chunks(
        1,
        "begin; a+1 x; sql insert into a values (2, 'x'); b+1 x; commit",
        &["Insert a 1 x", "stopped a", "Insert b 1 x", "boundary"],
    );
}

#[test]
fn events_that_are_not_known_are_skipped_only_where_that_is_allowed() {
    let mut log = LogWriter::of("begin; a+1 x; commit");
    log.emit_flags(99, 0x80, b"whatever");
    run(&log, options(1 << 20)).unwrap();
    log.emit(99, b"whatever");
    check_error(&log, SourceErrorKind::Corrupt, "event type 99 is unknown");
}

#[test]
fn an_incident_stops_the_source() {
    let mut log = LogWriter::of("");
    log.emit(26, &[1, 0, 0]);
    check_error(&log, SourceErrorKind::Misconfigured, "incident");
}

#[test]
fn a_log_that_goes_on_elsewhere_within_a_transaction_is_refused() {
    let mut log = LogWriter::of("begin; a+1 x");
    log.format_description(0);
    check_error(&log, SourceErrorKind::Corrupt, "part of the log is missing");
}

#[test]
fn a_server_that_started_anew_has_rolled_back_what_was_open() {
    let mut log = LogWriter::of("begin; a+1 x");
    log.format_description(1_700_000_000);
    log.run("begin; a+2 x; commit");
    let found: Vec<String> = run(&log, options(1 << 20)).unwrap().iter().map(describe).collect();
    assert_eq!(found, ["schema a v1", "Insert a 2 x", "boundary"]);
}

#[test]
fn what_was_committed_before_an_error_is_still_handed_out() {
    let mut log = LogWriter::of("begin; a+1 x; commit; begin; a+2 x");
    log.emit(99, b"");
    let (mut decoder, mut out) = (Decoder::new(options(1 << 20)), Vec::new());
    let fed: Vec<bool> = log.events.iter().map(|event| decoder.feed(event).is_ok()).collect();
    assert_eq!(fed.iter().filter(|ok| !**ok).count(), 1);
    drain(&mut decoder, &mut out).unwrap();
    let found: Vec<String> = out.iter().map(describe).collect();
    assert_eq!(found, ["schema a v1", "Insert a 1 x", "boundary"]);
    assert!(decoder.feed(&log.events[1]).is_err(), "nothing can follow an error");
}
