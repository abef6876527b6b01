//! What stands in the way of following the tables, and the rights that a job needs.

use std::time::Duration;

use serde_json::{Value as Json, json};

use super::catalogue::{DATABASE, TableInfo};
use super::progress::Progress;
use super::stream::{RETENTION, wall_ms};
use crate::change::{ResumePoint, SourceIdentity};
use crate::config::TableFilter;

/// With less time left than this, a job should be run now.
const LEFT_MIN: Duration = Duration::from_secs(12 * 3600);

/// One thing that stands in the way.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    /// Whether the job can run nevertheless, with less than it could have.
    pub is_warning: bool,
    pub subject: String,
    pub found: String,
    pub wanted: String,
}

/// Of the tables: that there are any, and that their streams tell all that is needed.
pub(super) fn of_tables(tables: &[TableInfo], filter: &TableFilter) -> Vec<Finding> {
    if tables.is_empty() {
        let patterns: Vec<&str> = filter.patterns().collect();
        return vec![Finding {
            is_warning: false,
            subject: "source.tables".into(),
            found: format!("no table fits {}", patterns.join(", ")),
            wanted: "tables that are there, in source.region".into(),
        }];
    }
    let problems = tables.iter().filter_map(|info| {
        Some(Finding {
            is_warning: false,
            subject: info.table().to_string(),
            found: info.stream_problem()?,
            wanted: "a stream with new items".into(),
        })
    });
    problems.collect()
}

/// Of the account: that it is the one that was read.
pub(super) fn other_account(known: &SourceIdentity, found: &SourceIdentity) -> Finding {
    Finding {
        is_warning: false,
        subject: "account and region".into(),
        found: format!("{found}, but the job has read {known}"),
        wanted: "the credentials and source.region of before, or another name and lake for a new job".into(),
    }
}

/// Of the position: that the streams still hold what comes after it, and for how long.
pub(super) fn of_position(progress: &Progress, at: &ResumePoint, tables: &[TableInfo]) -> Vec<Finding> {
    let mut findings = Vec::new();
    for info in tables {
        let Some(known) = progress.0.get(&info.table_name) else { continue };
        if info.stream().is_some_and(|stream| stream != known.stream) {
            findings.push(Finding {
                is_warning: false,
                subject: info.table().to_string(),
                found: "it has another stream than the one that was read".into(),
                wanted: format!("alluvium run --resnapshot {}", info.table()),
            });
        }
    }
    let left = time_left(at);
    if left < LEFT_MIN && !progress.0.is_empty() {
        findings.push(Finding {
            is_warning: !left.is_zero(),
            subject: "position".into(),
            found: format!(
                "the job has read up to {}; {:.1} h are left until records are lost",
                at.position,
                hours(left)
            ),
            wanted: "a run at least every 12 h".into(),
        });
    }
    findings
}

/// For how long streams still hold all that comes after this point.
pub fn time_left(at: &ResumePoint) -> Duration {
    RETENTION.saturating_sub(Duration::from_millis(wall_ms().saturating_sub(at.position.order.0)))
}

fn hours(time: Duration) -> f64 {
    time.as_secs_f64() / 3600.0
}

/// The least that a job may be allowed to do, as an IAM policy.
pub fn policy(filter: &TableFilter) -> Json {
    let prefix = format!("{DATABASE}.");
    let selected = filter.patterns().filter(|pattern| !pattern.starts_with('!'));
    // IAM knows * and ? too; a pattern with anything else becomes wider.
    let names = selected.map(|pattern| pattern.strip_prefix(&prefix).unwrap_or(pattern)).map(widened);
    let tables: Vec<String> = names.map(|name| format!("arn:aws:dynamodb:*:*:table/{name}")).collect();
    let streams: Vec<String> = tables.iter().map(|table| format!("{table}/stream/*")).collect();
    json!({
        "Version": "2012-10-17",
        "Statement": [
            { "Effect": "Allow", "Action": ["dynamodb:DescribeTable", "dynamodb:Scan"], "Resource": tables },
            {
                "Effect": "Allow",
                "Action": ["dynamodb:DescribeStream", "dynamodb:GetShardIterator", "dynamodb:GetRecords"],
                "Resource": streams,
            },
            { "Effect": "Allow", "Action": "dynamodb:ListTables", "Resource": "*" },
        ],
    })
}

fn widened(pattern: &str) -> String {
    match pattern.find(['[', '{']) {
        Some(at) => format!("{}*", &pattern[..at]),
        None => pattern.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_policy_names_the_tables_and_their_streams() {
        let filter = TableFilter::new(["dynamodb.orders", "dynamodb.shop_[ab]", "!dynamodb.shop_tmp"]).unwrap();
        let policy = policy(&filter);
        let tables = ["arn:aws:dynamodb:*:*:table/orders", "arn:aws:dynamodb:*:*:table/shop_*"];
        assert_eq!(policy["Statement"][0]["Resource"], json!(tables));
        assert_eq!(policy["Statement"][1]["Resource"], json!(tables.map(|table| format!("{table}/stream/*"))));
        assert!(!policy.to_string().contains("Write") && !policy.to_string().contains("Put"));
    }
}
