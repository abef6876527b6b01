//! Upkeep between batches and at the end of a run: never so much at once that changes wait for it, and always some, so that
//! it does not wait for ever.

use super::session::Session;
use crate::change::TableId;
use crate::lake::LoadState;
use crate::maintain::Occasion;

/// Tables that are looked at between two batches: one that was not open yet is read for it.
const LOOKS_MAX: usize = 16;

impl Session<'_> {
    /// One piece of upkeep, on the table that has waited longest.
    pub(super) async fn keep_up_a_little(&mut self) {
        let tables = self.kept_tables();
        // A run with an end does the rest there, when all its changes are in.
        let occasion = if self.options.follow { Occasion::Idle } else { Occasion::Busy };
        for _ in 0..tables.len().min(LOOKS_MAX) {
            self.upkeep_turn = self.upkeep_turn.wrapping_add(1);
            let Some(table) = tables.get(self.upkeep_turn % tables.len()) else { return };
            if self.keep_up_piece(table, occasion).await.is_some() {
                break;
            }
        }
        self.fold_points(false).await;
        self.upkeep.save().await;
    }

    /// All that is due, unless the run is to stop.
    pub(super) async fn keep_up(&mut self) {
        for table in self.kept_tables() {
            while !self.environment.stop.is_cancelled() {
                match self.keep_up_piece(&table, Occasion::Idle).await {
                    Some(is_right) if is_right => {}
                    _ => break,
                }
            }
        }
        self.fold_points(true).await;
        self.upkeep.save().await;
    }

    /// Whether a piece went well; `None` if there was none.
    async fn keep_up_piece(&mut self, table: &TableId, occasion: Occasion) -> Option<bool> {
        let began = self.environment.clock.instant();
        let report = self.apply.maintain(table, &mut self.upkeep, occasion).await;
        self.tally.stages.upkeep += self.since(began);
        let report = report?;
        self.environment.observer.maintained(&report);
        let is_right = report.error.is_none();
        self.tally.note_upkeep(report);
        Some(is_right)
    }

    /// Tables whose first load is done: before that, files come in larger pieces than upkeep makes of them.
    fn kept_tables(&self) -> Vec<TableId> {
        let loaded = self.state.followed().filter(|(_, _, state)| state.load == LoadState::Done);
        loaded.map(|(table, ..)| table.clone()).collect()
    }
}
