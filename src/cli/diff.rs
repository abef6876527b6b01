//! `alluvium diff`: what differs between two versions of a table.

use super::output::{print, print_json};
use super::past::{Failure, Past};
use super::text::count;
use super::{Exit, Global};
use crate::query::row::{changes, json_object, listed};
use crate::query::{Diff, DiffSummary, RowDifference};

/// Shows which rows were added, removed and changed between two versions of a table.
#[derive(Debug, clap::Args)]
pub struct DiffArgs {
    /// The table: orders, or shop.orders.
    pub table: String,
    /// A version (12), a position of the source (mysql-bin.000007:1234, or a GTID set), or a commit time of the source (UTC).
    #[arg(long, value_name = "VERSION")]
    pub from: String,
    /// The same [default: the newest version].
    #[arg(long, value_name = "VERSION")]
    pub to: Option<String>,
    /// Show this many rows; all are counted.
    #[arg(long, value_name = "ROWS", default_value_t = 100)]
    pub limit: u64,
}

pub(super) fn run(global: &Global, args: &DiffArgs) -> Exit {
    let (job, _) = match super::load_job(global) {
        Ok(loaded) => loaded,
        Err(exit) => return exit,
    };
    super::block_on(async {
        let done = async {
            let past = Past::open(job, &args.table).await?;
            let from = past.session.version_of(&past.table, Some(&args.from)).await?;
            let to = past.session.version_of(&past.table, args.to.as_deref()).await?;
            let mut diff = past.session.diff(&past.table, from, to).await?;
            show(global, &mut diff, args.limit).await?;
            if global.json {
                print_json(&serde_json::json!({ "from": from, "to": to, "summary": diff.summary }));
            } else {
                print(&summary(&past.table.to_string(), (from, to), &diff.summary, args.limit));
            }
            Ok::<_, Failure>(())
        };
        done.await.map_or_else(|failure| failure.exit(global), |()| Exit::Done)
    })
}

async fn show(global: &Global, diff: &mut Diff, limit: u64) -> Result<(), Failure> {
    let mut shown = 0;
    while let Some(row) = diff.next().await? {
        shown += 1;
        if shown > limit {
            continue;
        }
        if global.json {
            print(&json_line(diff, &row));
        } else {
            print(&line(diff, &row));
        }
    }
    Ok(())
}

fn line(diff: &Diff, row: &RowDifference) -> String {
    let schema = &diff.schema;
    match row {
        RowDifference::Added(row) => format!("+ {}\n", listed(schema, row)),
        RowDifference::Removed(row) => format!("- {}\n", listed(schema, row)),
        RowDifference::Changed { before, after } => {
            format!("~ {}  ({})\n", changes(schema, before, after), listed(schema, after))
        }
    }
}

fn json_line(diff: &Diff, row: &RowDifference) -> String {
    let object = |row| json_object(&diff.schema, row);
    match row {
        RowDifference::Added(row) => format!("{{\"change\":\"added\",\"after\":{}}}\n", object(row)),
        RowDifference::Removed(row) => format!("{{\"change\":\"removed\",\"before\":{}}}\n", object(row)),
        RowDifference::Changed { before, after } => {
            format!("{{\"change\":\"changed\",\"before\":{},\"after\":{}}}\n", object(before), object(after))
        }
    }
}

fn summary(table: &str, (from, to): (u64, u64), summary: &DiffSummary, limit: u64) -> String {
    let DiffSummary { added, removed, changed, changed_columns } = summary;
    let all = added + removed + changed;
    let more = if all > limit { format!("({} more rows are not shown)\n", count(all - limit)) } else { String::new() };
    let columns = changed_columns.iter().map(|(name, rows)| format!("  {name}: {} rows\n", count(*rows)));
    format!(
        "{more}{table}, version {from} to {to}: {} added, {} removed, {} changed\n{}",
        count(*added),
        count(*removed),
        count(*changed),
        columns.collect::<String>()
    )
}
