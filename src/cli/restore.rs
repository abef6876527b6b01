//! `alluvium restore`: brings back an older version of a table, with a plan first.

use super::output::{print, print_json};
use super::past::{Failure, Past};
use super::text::{count, time};
use super::{Exit, Global};
use crate::clock::SystemClock;
use crate::lake::RestorePlan;
use crate::pipeline::{self, Restored};

/// Brings back the rows of an older version of a table as a new version, and takes the table out of the job.
#[derive(Debug, clap::Args)]
pub struct RestoreArgs {
    /// The table: orders, or shop.orders.
    pub table: String,
    /// A version (12), a position of the source (mysql-bin.000007:1234, or a GTID set), or a commit time of the source (UTC).
    #[arg(long, value_name = "VERSION")]
    pub to: String,
    /// Do it; without this, only the plan is shown.
    #[arg(long)]
    pub yes: bool,
}

pub(super) fn run(global: &Global, args: &RestoreArgs) -> Exit {
    let (job, _) = match super::load_job(global) {
        Ok(loaded) => loaded,
        Err(exit) => return exit,
    };
    super::block_on(async {
        let done = async {
            let past = Past::open(job, &args.table).await?;
            let version = past.session.version_of(&past.table, Some(&args.to)).await?;
            let missing = || crate::query::QueryError::NotLoaded { table: past.table.to_string() };
            let plan = past.lake.open_table(&past.table).await?.ok_or_else(missing)?.restore_plan(version).await?;
            if !args.yes {
                tell_plan(global, &past, &plan);
                return Ok::<_, Failure>(());
            }
            let restored = pipeline::restore(&past.job, &past.lake, &SystemClock, &past.table, version).await?;
            tell_done(global, &restored);
            Ok(())
        };
        done.await.map_or_else(|failure| failure.exit(global), |()| Exit::Done)
    })
}

fn tell_plan(global: &Global, past: &Past, plan: &RestorePlan) {
    if global.json {
        return print_json(&serde_json::json!({ "table": past.table, "plan": plan, "done": false }));
    }
    print(&plan_text(&past.table.to_string(), plan));
}

fn plan_text(table: &str, plan: &RestorePlan) -> String {
    let at = plan.position.as_deref().unwrap_or("a position that is not known");
    let when = plan.source_time_us.map(|us| format!(", committed at {}", time(us))).unwrap_or_default();
    let columns = if plan.changes_columns { "  columns and properties become those of then\n" } else { "" };
    format!(
        "{table} would get the rows of version {} (the source at {at}{when}) as a new version after {}:\n  \
         {} rows instead of {}; {} files of then come back, {} files of now go (they stay readable as version {})\n{columns}  \
         the table is taken out of the job, since later changes do not fit rows of then; \
         alluvium run --resnapshot {table} takes it in again\n\
         Nothing was changed. To do it: alluvium restore {table} --to {} --yes\n",
        plan.version,
        plan.present,
        count(plan.rows_then),
        count(plan.rows_now),
        count(plan.files_added),
        count(plan.files_removed),
        plan.present,
        plan.version,
    )
}

fn tell_done(global: &Global, restored: &Restored) {
    if global.json {
        return print_json(&serde_json::json!({ "restored": restored, "done": true }));
    }
    let Restored { table, version, new_version, taken_out } = restored;
    let job = if *taken_out { "it is taken out of the job" } else { "it was out of the job already" };
    print(&format!(
        "{table} has the rows of version {version} as version {new_version}; {job}; to follow the source again: \
         alluvium run --resnapshot {table}\n"
    ));
}
