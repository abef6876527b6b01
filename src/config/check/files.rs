//! The checks of binlog files as a source.

use std::cmp::Ordering;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use globset::{GlobBuilder, GlobMatcher};

use super::Checker;
use crate::config::raw::RawBinlogFiles;
use crate::config::read::{At, Field};
use crate::config::substitute::Text;
use crate::config::{BinlogFilesConfig, SourceConfig};

/// More files than a folder of logs has; a pattern that finds more is a mistake.
const FILES_MAX: usize = 100_000;

impl Checker<'_> {
    pub(super) fn binlog_files(&mut self, raw: &RawBinlogFiles) -> Option<SourceConfig> {
        if let Some(kind) = raw.r#type.set() {
            self.given("source.type", kind.value.word());
        }
        let files = self.files(&raw.files);
        let tables = self.patterns(&raw.tables);
        Some(SourceConfig::BinlogFiles(BinlogFilesConfig { files: files?, tables: tables? }))
    }

    fn files(&mut self, field: &Field<Vec<At<Text>>>) -> Option<Vec<PathBuf>> {
        let list = field.set()?;
        if list.value.is_empty() {
            self.report.add(list.at, &list.path, "must name at least one file");
            return None;
        }
        let mut files: Vec<PathBuf> = Vec::new();
        for item in &list.value {
            match find(&self.around.folder.join(item.value.text())) {
                Ok(found) => files.extend(found),
                Err(problem) => self.report.add(item.at, &item.path, problem),
            }
        }
        let mut sorted: Vec<_> = files.iter().collect();
        sorted.sort();
        if let Some([twice, _]) = sorted.windows(2).find(|pair| matches!(pair, [a, b] if a == b)) {
            let message = format!("{} is there twice: a log is read once", twice.display());
            self.report.add(list.at, &list.path, message);
        }
        self.given("source.files", &shown(&files));
        Some(files)
    }
}

fn shown(files: &[PathBuf]) -> String {
    match files {
        [] => "none".into(),
        [one] => one.display().to_string(),
        [first, .., last] => format!("{} files, {} to {}", files.len(), first.display(), last.display()),
    }
}

/// The file of a path, or the files of a pattern in the order of their numbers; at least one.
fn find(path: &Path) -> Result<Vec<PathBuf>, String> {
    let name = path.file_name().map(OsStr::to_string_lossy).unwrap_or_default().into_owned();
    let folder = path.parent().unwrap_or(Path::new("."));
    if folder.to_string_lossy().contains(['*', '?', '[']) {
        return Err("may have a pattern only in the file name, not in a folder's".into());
    }
    if !name.contains(['*', '?', '[']) {
        return if path.is_file() {
            Ok(vec![path.to_path_buf()])
        } else {
            Err(format!("there is no file {}", path.display()))
        };
    }
    let glob = GlobBuilder::new(&name).build().map_err(|error| format!("is not a pattern: {}", error.kind()))?;
    matching(folder, &glob.compile_matcher())
}

fn matching(folder: &Path, glob: &GlobMatcher) -> Result<Vec<PathBuf>, String> {
    let unreadable = |error| format!("the folder {} cannot be read: {error}", folder.display());
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder).map_err(unreadable)? {
        let path = entry.map_err(unreadable)?.path();
        // The list of the logs, which the server keeps beside them, is no log.
        let is_index = path.extension() == Some(OsStr::new("index"));
        if !is_index && path.file_name().is_some_and(|name| glob.is_match(name)) && path.is_file() {
            found.push(path);
        }
        if found.len() > FILES_MAX {
            return Err(format!("finds more than {FILES_MAX} files"));
        }
    }
    if found.is_empty() {
        return Err(format!("no file in {} fits this pattern", folder.display()));
    }
    found.sort_by(|a, b| by_number(a, b));
    Ok(found)
}

/// Log order: by the number that a name ends in, as MySQL numbers its logs (`.999999`, then `.1000000`).
fn by_number(a: &Path, b: &Path) -> Ordering {
    let parts = |path: &Path| {
        let name = path.to_string_lossy().into_owned();
        let stem = name.trim_end_matches(|c: char| c.is_ascii_digit()).to_string();
        let number = name.strip_prefix(&stem).and_then(|digits| digits.parse::<u64>().ok());
        (stem, number, name)
    };
    parts(a).cmp(&parts(b))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(files: &[&str], pattern: &str, expected: Result<&[&str], &str>) {
        let folder = tempfile::tempdir().unwrap();
        for file in files {
            std::fs::write(folder.path().join(file), b"").unwrap();
        }
        let found = find(&folder.path().join(pattern)).map(|found| {
            found.iter().map(|path| path.file_name().unwrap().to_string_lossy().into_owned()).collect::<Vec<_>>()
        });
        match (found, expected) {
            (Err(message), Err(part)) => assert!(message.contains(part), "{message}"),
            (found, expected) => assert_eq!(found.unwrap_or_default(), expected.unwrap_or_default()),
        }
    }

    #[test]
    fn files_come_in_the_order_of_their_numbers() {
        let files = ["bin.1000000", "bin.000002", "bin.000010", "bin.999999", "bin.index", "other.000001"];
        check(&files, "bin.*", Ok(&["bin.000002", "bin.000010", "bin.999999", "bin.1000000"]));
        check(&files, "bin.00000?", Ok(&["bin.000002"]));
        check(&files, "bin.000002", Ok(&["bin.000002"]));
    }

    #[test]
    fn what_is_not_there_is_said() {
        check(&["a.1"], "b.*", Err("no file in"));
        check(&["a.1"], "a.2", Err("there is no file"));
        check(&[], "*/a.1", Err("only in the file name"));
        check(&[], "none/a.*", Err("cannot be read"));
        check(&[], "a.[", Err("is not a pattern"));
    }
}
