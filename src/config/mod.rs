//! The job file: what was typed becomes a checked, complete [`Job`], or a list of problems.

use std::path::{Path, PathBuf};

mod check;
mod filter;
mod job;
mod maintain;
mod period;
mod problem;
mod raw;
mod read;
mod schema;
mod size;
mod substitute;
mod table;
mod yaml;

pub use filter::{InvalidPattern, TableFilter};
pub use job::*;
pub use maintain::{CompactConfig, MaintainConfig, VacuumConfig};
pub use problem::{Mark, Problem, Problems};
pub use schema::{Key, json_schema, keys};
pub use substitute::percent_decoded;
pub use table::{DatePart, MergeMode, PartitionBy, TableRules, TableSettings};

use problem::Report;
use read::FromNode;

/// A job file is a page of text; a larger file is another one, opened by mistake.
const FILE_BYTES_MAX: u64 = 1 << 20;

/// One key of a job with the value that holds. Secrets come as where they are from.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct Setting {
    /// The key's path: `run.batch.rows`.
    pub key: String,
    pub value: String,
    /// The job file does not have this key.
    pub is_default: bool,
}

impl Setting {
    fn default(key: impl Into<String>, value: impl Into<String>) -> Self {
        Self { key: key.into(), value: value.into(), is_default: true }
    }
}

/// A length of time as it is written in a job file: `90s`, `15m`, `6h`, `7d`. `None` for anything else.
pub fn parse_period(text: &str) -> Option<std::time::Duration> {
    period::Period::parse(text).map(|period| period.0)
}

/// Reads and checks a job file. `${NAME}` is taken from the process's environment, paths start at the file's
/// folder; secrets are read, nothing is connected to.
///
/// # Errors
/// All problems of the file, in its order.
pub fn load(path: &Path) -> Result<Job, Problems> {
    load_explained(path).map(|(job, _)| job)
}

/// As [`load`], with every key that holds, defaults included, in the order of the file's sections.
///
/// # Errors
/// All problems of the file, in its order.
pub fn load_explained(path: &Path) -> Result<(Job, Vec<Setting>), Problems> {
    let fail = |message: String| Problems {
        file: path.to_path_buf(),
        list: vec![Problem { at: None, key: String::new(), message }],
    };
    let text = read_file(path).map_err(fail)?;
    let folder = folder_of(path).map_err(fail)?;
    parse(&text, path, &folder, &|name| std::env::var(name).ok())
}

/// Checks the text of a job file. `file` is its name in messages, `folder` where its paths start (absolute),
/// `environment` gives the values of `${NAME}`.
///
/// # Errors
/// All problems of the file, in its order.
pub fn parse(
    text: &str,
    file: &Path,
    folder: &Path,
    environment: &dyn Fn(&str) -> Option<String>,
) -> Result<(Job, Vec<Setting>), Problems> {
    let mut report = Report::default();
    let raw =
        yaml::parse(text, environment, &mut report).and_then(|node| raw::RawJob::from_node(&node, "", &mut report));
    let Some(raw) = raw else { return Err(report.into_problems(file.to_path_buf())) };
    let around = check::Surroundings { folder, environment };
    match check::check(&raw, &around, &mut report) {
        (Some(job), settings) => Ok((job, settings)),
        (None, _) => Err(report.into_problems(file.to_path_buf())),
    }
}

fn read_file(path: &Path) -> Result<String, String> {
    let metadata = std::fs::metadata(path).map_err(|error| match error.kind() {
        std::io::ErrorKind::NotFound => {
            "there is no such file: name it with --job FILE, or write one with alluvium init".to_string()
        }
        _ => format!("cannot be read: {error}"),
    })?;
    if !metadata.is_file() {
        return Err("is not a file".into());
    }
    if metadata.len() > FILE_BYTES_MAX {
        return Err(format!("has {} bytes: a job file has at most {FILE_BYTES_MAX}", metadata.len()));
    }
    let bytes = std::fs::read(path).map_err(|error| format!("cannot be read: {error}"))?;
    String::from_utf8(bytes).map_err(|error| format!("is not UTF-8 text (byte {})", error.utf8_error().valid_up_to()))
}

fn folder_of(file: &Path) -> Result<PathBuf, String> {
    let absolute = std::path::absolute(file).map_err(|error| format!("has no absolute path: {error}"))?;
    Ok(absolute.parent().map(Path::to_path_buf).unwrap_or_default())
}

#[cfg(test)]
mod tests;
