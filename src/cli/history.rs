//! `alluvium history`: the states of one row.

use super::output::print;
use super::past::{Failure, Past};
use super::text::{Align, table, time};
use super::{Exit, Global};
use crate::lake::{RowHistory, RowState};
use crate::query::row::{Row, changes, json_object, listed, rows_of};

/// Shows each state of one row: when the source changed it, how, and to what.
#[derive(Debug, clap::Args)]
pub struct HistoryArgs {
    /// The table: orders, or shop.orders.
    pub table: String,
    /// The value of the key; once for each of its columns, in the key's order.
    #[arg(long, required = true, value_name = "VALUE", allow_hyphen_values = true)]
    pub key: Vec<String>,
}

pub(super) fn run(global: &Global, args: &HistoryArgs) -> Exit {
    let (job, _) = match super::load_job(global) {
        Ok(loaded) => loaded,
        Err(exit) => return exit,
    };
    super::block_on(async {
        let history = async {
            let past = Past::open(job, &args.table).await?;
            let missing = || crate::query::QueryError::NotLoaded { table: past.table.to_string() };
            let open = past.lake.open_table(&past.table).await?.ok_or_else(missing)?;
            let history = open.history(&args.key).await?;
            let text = if global.json { json_lines(&history)? } else { render(&history)? };
            Ok::<_, Failure>(text)
        };
        match history.await {
            Ok(text) => {
                print(&text);
                Exit::Done
            }
            Err(failure) => failure.exit(global),
        }
    })
}

fn row_of(state: &RowState) -> Result<Option<Row>, Failure> {
    let Some(row) = &state.row else { return Ok(None) };
    Ok(rows_of(row)?.into_iter().next())
}

/// For people: a line for each state, with what it changed.
fn render(history: &RowHistory) -> Result<String, Failure> {
    let mut lines = Vec::new();
    let mut before: Option<Row> = None;
    for state in &history.states {
        let row = row_of(state)?;
        let what = match (&state.row, &before, &row) {
            (Some(batch), Some(before), Some(row)) => changes(&batch.schema(), before, row),
            (Some(batch), None, Some(row)) => listed(&batch.schema(), row),
            _ => String::new(),
        };
        let none = || "-".to_string();
        lines.push(vec![
            state.version.to_string(),
            state.source_time_us.map_or_else(none, time),
            state.position.clone().unwrap_or_else(none),
            state.operation.name().to_string(),
            what,
        ]);
        before = row;
    }
    let heading = [
        ("VERSION", Align::Right),
        ("SOURCE COMMIT", Align::Left),
        ("POSITION", Align::Left),
        ("OPERATION", Align::Left),
        ("VALUES", Align::Left),
    ];
    let mut text = match lines.is_empty() {
        true => "there has been no row with this key\n".to_string(),
        false => table(&heading, &lines),
    };
    if history.oldest > 0 {
        text += &format!("(from version {} on: older versions can't be read any more)\n", history.oldest);
    }
    Ok(text)
}

/// For programs: a JSON object for each state.
fn json_lines(history: &RowHistory) -> Result<String, Failure> {
    let mut text = String::new();
    for state in &history.states {
        let row = match (&state.row, row_of(state)?) {
            (Some(batch), Some(row)) => json_object(&batch.schema(), &row),
            _ => "null".to_string(),
        };
        let head = serde_json::json!({
            "version": state.version,
            "operation": state.operation,
            "source_commit": state.source_time_us.map(time),
            "position": state.position,
            "step": state.sequence,
            "committed": state.committed_ms.map(|ms| time(ms.saturating_mul(1_000))),
        });
        let head = head.to_string();
        text += &format!("{},\"row\":{row}}}\n", head.trim_end_matches('}'));
    }
    Ok(text)
}
