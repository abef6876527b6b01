//! The prompt of `alluvium sql`: statements over several lines up to a semicolon, with a history that is kept, completion of
//! names, and some of the commands that people know from psql. Without a terminal, statements are read from standard input.

use std::collections::{BTreeSet, VecDeque};
use std::fs::OpenOptions;
use std::io::{self, BufRead, IsTerminal, Write};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use arrow::array::RecordBatch;
use dialoguer::theme::Theme;
use dialoguer::{Completion, History, Input};
use futures::TryStreamExt;

use super::output::{complain, print};
use crate::query::row::rows_of;
use crate::query::script::{Script, on_one_line};
use crate::query::{QueryError, Session, output};

/// Statements that are kept; older ones go.
const HISTORY_MAX: usize = 1_000;
/// In the home directory.
const HISTORY_FILE: &str = ".alluvium_history";
/// Names of columns are offered of this many tables at most: each is opened for it.
const COMPLETED_TABLES_MAX: usize = 50;

const HELP: &str = "\
\\d          tables        \\d TABLE   columns of a table
\\timing     how long each statement takes, on or off
\\r          drops what was typed since the last statement
\\q          end           \\?         this help
Statements end with a semicolon, and may have several lines.\n";

/// What a line asks for.
#[derive(Debug, PartialEq, Eq)]
enum Command {
    Tables,
    Columns(String),
    Timing,
    Help,
    Drop,
    Quit,
    Unknown,
}

impl Command {
    /// `None` for a line of SQL.
    fn read(line: &str) -> Option<Self> {
        let mut words = line.split_whitespace();
        let command = match (words.next()?.trim_end_matches(';'), words.next()) {
            ("\\d" | "\\dt", None) => Self::Tables,
            ("\\d", Some(table)) => Self::Columns(table.trim_end_matches(';').to_string()),
            ("\\timing", _) => Self::Timing,
            ("\\?" | "\\h" | "help", None) => Self::Help,
            ("\\r", None) => Self::Drop,
            ("\\q" | "quit" | "exit", None) => Self::Quit,
            (word, _) if word.starts_with('\\') => Self::Unknown,
            _ => return None,
        };
        Some(command)
    }
}

/// Asks and answers until the end of the input, or `\q`. False if a statement failed and there was no person to see it.
pub(super) async fn run(session: &Session, format: output::Format) -> bool {
    if io::stdin().is_terminal() && io::stderr().is_terminal() {
        let names = names(session).await;
        talk(session, format, Typed::new(names)).await;
        return true;
    }
    talk(session, format, Piped(io::stdin().lock().lines())).await
}

/// Where lines come from.
trait Lines {
    /// The next line; `None` at the end.
    fn next(&mut self, is_first: bool) -> Option<io::Result<String>>;

    /// Keeps a whole statement.
    fn keep(&mut self, _statement: &str) {}
}

/// Whether all went well.
async fn talk(session: &Session, format: output::Format, mut lines: impl Lines) -> bool {
    let (mut typed, mut is_timed, mut is_right) = (String::new(), false, true);
    while let Some(line) = lines.next(typed.is_empty()) {
        let Ok(line) = line else {
            complain("a line could not be read: it is not in UTF-8");
            is_right = false;
            continue;
        };
        if let Some(command) = Command::read(&line).filter(|command| typed.is_empty() || *command == Command::Drop) {
            let sql = match command {
                Command::Drop => {
                    typed.clear();
                    continue;
                }
                Command::Quit => break,
                Command::Tables => "SHOW TABLES".to_string(),
                Command::Columns(table) => format!("DESCRIBE {table}"),
                Command::Timing => {
                    is_timed = !is_timed;
                    complain(if is_timed { "timing is on" } else { "timing is off" });
                    continue;
                }
                Command::Help => {
                    print(HELP);
                    continue;
                }
                Command::Unknown => {
                    complain("no such command; \\? tells those there are");
                    continue;
                }
            };
            is_right &= answer(session, &sql, format, is_timed).await;
            continue;
        }
        typed.push_str(&line);
        typed.push('\n');
        let script = Script::read(&typed);
        typed = script.rest;
        if !typed.is_empty() && !typed.ends_with('\n') {
            typed.push('\n');
        }
        for sql in script.statements {
            lines.keep(&sql);
            is_right &= answer(session, &sql, format, is_timed).await;
        }
    }
    if !typed.trim().is_empty() {
        is_right &= answer(session, &typed, format, is_timed).await;
    }
    is_right
}

async fn answer(session: &Session, sql: &str, format: output::Format, is_timed: bool) -> bool {
    let began = Instant::now();
    let done = write(session, sql, format).await;
    if let Err(error) = &done {
        complain(&error.to_string());
    }
    if is_timed {
        complain(&format!("time: {:.1} ms", Duration::as_secs_f64(&began.elapsed()) * 1e3));
    }
    done.is_ok()
}

async fn write(session: &Session, sql: &str, format: output::Format) -> Result<(), QueryError> {
    let (_, rows) = session.sql(sql).await?;
    let mut out = io::BufWriter::new(io::stdout());
    output::write(rows, format, &mut out).await?;
    Ok(out.flush()?)
}

struct Piped<L>(L);

impl<L: Iterator<Item = io::Result<String>>> Lines for Piped<L> {
    fn next(&mut self, _is_first: bool) -> Option<io::Result<String>> {
        self.0.next()
    }
}

/// Lines of a person at a terminal.
struct Typed {
    names: Names,
    kept: Kept,
}

impl Typed {
    fn new(names: BTreeSet<String>) -> Self {
        complain("\\? for help, \\q to end");
        Self { names: Names(names), kept: Kept::load() }
    }
}

impl Lines for Typed {
    fn next(&mut self, is_first: bool) -> Option<io::Result<String>> {
        let prompt = if is_first { "alluvium>" } else { "      ->" };
        let input = Input::<String>::with_theme(&Plain).with_prompt(prompt).allow_empty(true);
        input.history_with(&mut self.kept).completion_with(&self.names).interact_text().ok().map(Ok)
    }

    fn keep(&mut self, statement: &str) {
        self.kept.save(statement);
    }
}

/// A prompt without a colon behind it.
struct Plain;

impl Theme for Plain {
    fn format_input_prompt(&self, f: &mut dyn std::fmt::Write, prompt: &str, _: Option<&str>) -> std::fmt::Result {
        write!(f, "{prompt} ")
    }

    fn format_input_prompt_selection(&self, f: &mut dyn std::fmt::Write, prompt: &str, line: &str) -> std::fmt::Result {
        write!(f, "{prompt} {line}")
    }
}

/// Earlier statements, newest first, in a file of the person's home directory.
struct Kept {
    statements: VecDeque<String>,
    file: Option<PathBuf>,
}

impl Kept {
    fn load() -> Self {
        let file = std::env::var_os("HOME").map(|home| PathBuf::from(home).join(HISTORY_FILE));
        let text = file.as_ref().and_then(|file| std::fs::read_to_string(file).ok()).unwrap_or_default();
        let mut statements: VecDeque<String> = VecDeque::new();
        for line in text.lines().rev().take(HISTORY_MAX) {
            if !statements.iter().any(|kept| kept == line) {
                statements.push_back(line.to_string());
            }
        }
        if let (Some(file), true) = (&file, text.lines().count() > 2 * HISTORY_MAX) {
            let newest: String = statements.iter().rev().map(|line| format!("{line}\n")).collect();
            _ = std::fs::write(file, newest);
        }
        Self { statements, file }
    }

    /// On one line, for the editor knows no others. A history that cannot be kept is no reason to stop.
    fn save(&mut self, statement: &str) {
        let Some(line) = on_one_line(statement).map(|line| line + ";") else { return };
        self.statements.retain(|kept| *kept != line);
        self.statements.push_front(line.clone());
        self.statements.truncate(HISTORY_MAX);
        let Some(file) = &self.file else { return };
        // Behind what other prompts have added meanwhile.
        let opened = OpenOptions::new().append(true).create(true).open(file);
        if let Err(error) = opened.and_then(|mut file| writeln!(file, "{line}")) {
            tracing::debug!(%error, "the history of statements could not be kept");
        }
    }
}

impl History<String> for Kept {
    fn read(&self, position: usize) -> Option<String> {
        self.statements.get(position).cloned()
    }

    /// Single lines are kept with the statement that they end.
    fn write(&mut self, _line: &String) {}
}

/// The names that the last word of a line may become.
struct Names(BTreeSet<String>);

impl Completion for Names {
    fn get(&self, line: &str) -> Option<String> {
        let start = line.rfind(|letter: char| !letter.is_alphanumeric() && letter != '_').map_or(0, |at| at + 1);
        let word = line.get(start..).filter(|word| !word.is_empty())?.to_lowercase();
        let mut fitting = self.0.iter().filter(|name| name.to_lowercase().starts_with(&word));
        let first = fitting.next()?;
        let common = fitting.fold(first.clone(), |common, name| {
            common.chars().zip(name.chars()).take_while(|(a, b)| a == b).map(|(a, _)| a).collect()
        });
        let longer = common.chars().count() > word.chars().count();
        longer.then(|| format!("{}{common}", line.get(..start).unwrap_or_default()))
    }
}

/// Names of tables and their columns.
async fn names(session: &Session) -> BTreeSet<String> {
    let tables = first_column(session, "SHOW TABLES").await;
    let mut names: BTreeSet<String> = tables.iter().cloned().collect();
    if tables.len() <= COMPLETED_TABLES_MAX {
        names.extend(first_column(session, "SELECT DISTINCT column_name FROM information_schema.columns").await);
    }
    names
}

async fn first_column(session: &Session, sql: &str) -> Vec<String> {
    let Ok((schema, stream)) = session.sql(sql).await else { return Vec::new() };
    let is_name = |name: &str| name.eq_ignore_ascii_case("table") || name.ends_with("_name");
    let column = schema.fields().iter().position(|field| is_name(field.name())).unwrap_or(0);
    let batches: Vec<RecordBatch> = stream.try_collect().await.unwrap_or_default();
    let rows = batches.iter().filter_map(|batch| rows_of(batch).ok()).flatten();
    rows.filter_map(|row| row.get(column).cloned().flatten()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_are_told_from_sql() {
        for (line, expected) in [
            ("\\d", Some(Command::Tables)),
            ("\\d shop.orders;", Some(Command::Columns("shop.orders".into()))),
            ("  \\q ", Some(Command::Quit)),
            ("exit;", Some(Command::Quit)),
            ("\\x", Some(Command::Unknown)),
            ("select 1;", None),
            ("", None),
        ] {
            assert_eq!(Command::read(line), expected, "{line}");
        }
    }

    #[test]
    fn the_last_word_is_completed_as_far_as_it_is_clear() {
        let names = Names(["orders", "order_items", "Customers"].map(str::to_string).into());
        for (line, expected) in [
            ("select * from cu", Some("select * from Customers")),
            ("select * from o", Some("select * from order")),
            ("select * from order", None),
            ("select (ORDERS", None),
            ("select * from ", None),
            ("zz", None),
        ] {
            assert_eq!(names.get(line).as_deref(), expected, "{line}");
        }
    }
}
