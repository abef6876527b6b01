//! From the job file as it is written to a checked, complete [`Job`].

use std::path::Path;
use std::time::Duration;

use super::problem::{Mark, Report};
use super::raw::{RawBatch, RawJob, RawRun, RawSource};
use super::read::{At, Field};
use super::size::ByteCount;
use super::substitute::Text;
use super::{Job, RunConfig, Setting, TableFilter};

mod dynamodb;
mod files;
mod lake;
mod maintain;
mod mysql;
mod table;

/// What a job file is checked against, beside itself.
pub(super) struct Surroundings<'a> {
    /// The job file's folder, absolute: paths in the file start here.
    pub folder: &'a Path,
    pub environment: &'a dyn Fn(&str) -> Option<String>,
}

/// Checks a job. `None` if the report has problems, and only then.
pub(super) fn check(raw: &RawJob, around: &Surroundings<'_>, report: &mut Report) -> (Option<Job>, Vec<Setting>) {
    let mut checker = Checker { around, report, settings: Vec::new() };
    let job = checker.job(raw);
    let settings = checker.settings;
    (job.filter(|_| report.is_empty()), settings)
}

/// Longer names make longer paths and transaction ids than some stores take.
const NAME_CHARS_MAX: usize = 64;

/// Below this the buffers of one Parquet writer and one reader do not fit.
const MEMORY_MIN: ByteCount = ByteCount(64 << 20);
const MEMORY_DEFAULT: ByteCount = ByteCount(1 << 30);

const BATCH_ROWS_DEFAULT: u64 = 1_000_000;
/// A batch's rows are numbered in 32 bits where they are sorted.
const BATCH_ROWS_MAX: u64 = 1_000_000_000;

/// Smaller batches would be commits of a few rows.
const BATCH_BYTES_MIN: ByteCount = ByteCount(64 << 10);

const BATCH_SECONDS_DEFAULT: u64 = 60;
/// A day: whoever waits longer wants a run by the clock, without --follow.
const BATCH_SECONDS_MAX: u64 = 86_400;

struct Checker<'a> {
    around: &'a Surroundings<'a>,
    report: &'a mut Report,
    settings: Vec<Setting>,
}

impl Checker<'_> {
    fn job(&mut self, raw: &RawJob) -> Option<Job> {
        self.version(&raw.version);
        let name = self.name(&raw.job);
        let source = match raw.source.set().map(|source| &source.value) {
            Some(RawSource::Mysql(source)) => self.mysql(source, name.as_deref()),
            Some(RawSource::BinlogFiles(source)) => self.binlog_files(source),
            Some(RawSource::Dynamodb(source)) => self.dynamodb(source),
            None => None,
        };
        let lake = raw.lake.set().and_then(|lake| self.lake(&lake.value));
        let run = self.run(&raw.run);
        let schema = self.schema(&raw.schema);
        let hash_key = self.hash_key(&raw.hash_key);
        let (keys, tables) = self.tables(&raw.tables, schema, hash_key.as_ref());
        let maintain = self.maintain(&raw.maintain);
        Some(Job { name: name?, source: source?, lake: lake?, run, keys, tables, hash_key, maintain })
    }

    fn version(&mut self, field: &Field<u64>) {
        let Some(version) = field.set() else { return };
        if version.value != 1 {
            let message = format!("must be 1, found {}: this Alluvium knows no other format", version.value);
            self.report.add(version.at, &version.path, message);
        }
        self.given("version", "1");
    }

    fn name(&mut self, field: &Field<Text>) -> Option<String> {
        let name = field.set()?;
        let text = name.value.text();
        let is_plain = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
        if text.is_empty() || text.len() > NAME_CHARS_MAX || !text.chars().all(is_plain) {
            let message = format!("must be 1 to {NAME_CHARS_MAX} letters, digits, - or _");
            self.report.add(name.at, &name.path, message);
            return None;
        }
        self.given("job", &text);
        Some(text)
    }

    /// The patterns of a source, with at least one that selects.
    fn patterns(&mut self, field: &Field<Vec<At<Text>>>) -> Option<TableFilter> {
        let patterns = field.set()?;
        let texts: Vec<String> = patterns.value.iter().map(|pattern| pattern.value.text()).collect();
        let mut is_good = true;
        for (text, pattern) in texts.iter().zip(&patterns.value) {
            if let Err(invalid) = TableFilter::new([text]) {
                self.report.add(pattern.at, &pattern.path, invalid.to_string());
                is_good = false;
            }
        }
        if texts.iter().all(|text| text.starts_with('!')) {
            let message = "must have a pattern that selects tables, for example \"shop.*\"";
            self.report.add(patterns.at, &patterns.path, message);
            return None;
        }
        self.given("source.tables", &texts.join(", "));
        if is_good { TableFilter::new(&texts).ok() } else { None }
    }

    fn run(&mut self, field: &Field<RawRun>) -> RunConfig {
        let none = RawRun::default();
        let raw = field.set().map_or(&none, |run| &run.value);
        let memory = self.value("run.memory", &raw.memory, MEMORY_DEFAULT, ByteCount::to_string);
        if memory < MEMORY_MIN {
            self.refuse(&raw.memory, format!("must be at least {MEMORY_MIN}"));
        }
        let no_batch = RawBatch::default();
        let batch = raw.batch.set().map_or(&no_batch, |batch| &batch.value);
        let rows = self.number("run.batch.rows", &batch.rows, BATCH_ROWS_DEFAULT, 1, BATCH_ROWS_MAX);
        let bytes = self.value("run.batch.bytes", &batch.bytes, memory, ByteCount::to_string);
        if bytes < BATCH_BYTES_MIN {
            self.refuse(&batch.bytes, format!("must be at least {BATCH_BYTES_MIN}"));
        }
        let seconds = self.number("run.batch.seconds", &batch.seconds, BATCH_SECONDS_DEFAULT, 1, BATCH_SECONDS_MAX);
        RunConfig {
            memory_bytes: memory.0,
            batch_rows: usize::try_from(rows).unwrap_or(usize::MAX),
            batch_bytes: bytes.0 as u64,
            batch_age: Duration::from_secs(seconds),
        }
    }

    /// The value of a key that may be left out, noted for `check --explain`.
    fn value<T: Clone>(&mut self, key: &str, field: &Field<T>, default: T, show: impl Fn(&T) -> String) -> T {
        match field.set() {
            Some(at) => {
                self.given(key, &show(&at.value));
                at.value.clone()
            }
            None => {
                self.settings.push(Setting::default(key, show(&default)));
                default
            }
        }
    }

    fn number(&mut self, key: &str, field: &Field<u64>, default: u64, min: u64, max: u64) -> u64 {
        let number = self.value(key, field, default, u64::to_string);
        if number < min || number > max {
            self.refuse(field, format!("must be {min} to {max}, found {number}"));
        }
        number
    }

    fn given(&mut self, key: &str, value: &str) {
        self.settings.push(Setting { key: key.to_string(), value: value.to_string(), is_default: false });
    }

    fn refuse<T>(&mut self, field: &Field<T>, message: impl Into<String>) {
        let place = field.set().map(|at| (at.at, at.path.as_str()));
        let (at, path) = place.unwrap_or((Mark { line: 1, column: 1 }, ""));
        self.report.add(at, path, message);
    }
}
