//! XA transactions in two phases: their rows stand in the log where they were prepared, and count from where they are
//! committed. In between no boundary is given out, so that reading never restarts behind the rows of a transaction that
//! is still prepared.
//!
//! MySQL: `XA_prepare_event` in `libs/mysql/binlog/event/control_events.h`; MariaDB writes the same.

use std::collections::{BTreeSet, HashMap};
use std::time::{Duration, Instant};

use super::decoder::{Decoder, Failure};
use super::event::EventHeader;
use super::follow::header_time_us;
use super::reader::{Malformed, Reader};
use crate::change::{ChangeBatch, TableId, TransactionSpan};
use crate::source::SourceEvent;

/// How often it is told that nothing can be applied.
const WARN_EVERY: Duration = Duration::from_secs(60);

/// Memory that the rows of prepared transactions may take, all together: they cannot be handed out before their commit.
const XA_BYTES_MAX: usize = 64 << 20;

const TOO_LARGE: &str = "an XA transaction has changed it that is larger than 64 MiB, or many were prepared at once: \
                         change it in plain transactions, then load the table again";

/// The rows of an XA transaction.
#[derive(Debug, Default)]
pub struct Kept {
    batches: Vec<ChangeBatch>,
    tables: BTreeSet<TableId>,
    bytes: usize,
}

impl Kept {
    pub fn push(&mut self, batch: ChangeBatch) {
        self.tables.insert(batch.schema.table.clone());
        self.bytes += batch.memory_bytes();
        if self.bytes <= XA_BYTES_MAX {
            self.batches.push(batch);
        }
    }

    /// Of the batches only the first `keep` remain.
    pub fn truncate(&mut self, keep: usize) {
        self.batches.truncate(keep);
    }
}

/// The transactions that are prepared and not finished, by their ids.
#[derive(Debug, Default)]
pub struct Prepared {
    transactions: HashMap<String, Kept>,
    /// `Rows` events since the last boundary that belong to ended transactions.
    pub handed: usize,
    /// Since when there have been any, or it was told last.
    waiting_since: Option<Instant>,
}

impl Prepared {
    /// Tells now and then that nothing can be applied while transactions are prepared.
    pub fn tell(&mut self) {
        let now = Instant::now();
        let since = *self.waiting_since.get_or_insert(now);
        if self.is_empty() {
            self.waiting_since = None;
        } else if now.saturating_duration_since(since) >= WARN_EVERY {
            self.waiting_since = Some(now);
            tracing::warn!(
                transactions = self.transactions.len(),
                "XA transactions are prepared and not finished: what comes after them in the log is applied once they are \
                 committed or rolled back (XA RECOVER lists them)"
            );
        }
    }

    /// Whether boundaries may be given out.
    pub fn is_empty(&self) -> bool {
        self.transactions.is_empty()
    }

    fn bytes(&self) -> usize {
        self.transactions.values().map(|kept| kept.bytes).sum()
    }
}

impl Decoder {
    pub(super) fn xa_prepare(&mut self, body: &[u8], header: &EventHeader) -> Result<(), Failure> {
        let (one_phase, id) = read(body)?;
        // The rows that are still held are kept too, behind all that was committed before.
        self.hand_out(Vec::new())?;
        if let Some(kept) = self.transaction.xa.take() {
            self.transaction.handed = 0;
            if kept.bytes > XA_BYTES_MAX || (!one_phase && kept.bytes + self.prepared.bytes() > XA_BYTES_MAX) {
                for table in &kept.tables {
                    self.stop(table, TOO_LARGE.to_string())?;
                }
            } else if one_phase {
                self.release(kept, header);
            } else if !kept.batches.is_empty() {
                self.prepared.transactions.insert(id, kept);
            }
        }
        self.end_transaction(header)
    }

    pub(super) fn xa_commit(&mut self, id: &str, header: &EventHeader) -> Result<(), Failure> {
        if let Some(kept) = self.prepared.transactions.remove(id) {
            self.hand_out(Vec::new())?;
            self.release(kept, header);
        }
        self.end_transaction(header)
    }

    pub(super) fn xa_roll_back(&mut self, id: &str, header: &EventHeader) -> Result<(), Failure> {
        self.prepared.transactions.remove(id);
        self.end_transaction(header)
    }

    /// Hands out kept rows as those of a transaction that is committed here.
    fn release(&mut self, kept: Kept, header: &EventHeader) {
        let commit_time_us = self.transaction.commit_time_us.unwrap_or_else(|| header_time_us(header));
        for mut batch in kept.batches {
            if !self.tables.wants(&batch.schema.table) {
                continue;
            }
            let position = self.here.position();
            batch.transactions = vec![TransactionSpan { first_row: 0, commit_time_us, position }];
            self.ready.push_back(SourceEvent::Rows(batch));
            self.prepared.handed += 1;
        }
    }
}

/// Whether the transaction ends here, and its id as statements have it: `X'61',X'',1`.
fn read(body: &[u8]) -> Result<(bool, String), Malformed> {
    let mut reader = Reader::new(body);
    let one_phase = reader.u8()? != 0;
    let (format, branch, qualifier) = (reader.u32()?, reader.u32()?, reader.u32()?);
    let mut hex = |length: u32| -> Result<String, Malformed> {
        let bytes = reader.take(usize::try_from(length).unwrap_or(usize::MAX))?;
        Ok(bytes.iter().map(|byte| format!("{byte:02X}")).collect())
    };
    let (branch, qualifier) = (hex(branch)?, hex(qualifier)?);
    Ok((one_phase, format!("X'{branch}',X'{qualifier}',{}", format as i32)))
}
