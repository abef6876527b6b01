//! `alluvium init`: writes a job file from the tables of a live source.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use url::Url;

use super::output::{complain, print, print_json};
use super::text::count;
use super::{Exit, Global};
use crate::change::TableId;
use crate::config::{self, Job, MysqlConfig, Secret, SourceConfig};
use crate::source::mysql::live;
use crate::source::{DiscoveredTable, Source};

/// Writes a job file from the tables that a server has.
#[derive(Debug, clap::Args)]
pub struct InitArgs {
    /// The server and user: mysql://user@host:port. A password in it, or in the variable <JOB>_DB_PASSWORD, is
    /// used to look at the server, and is not written.
    #[arg(long)]
    pub url: String,
    /// The tables to capture: patterns database.table, with * for any name and a leading ! to take away.
    #[arg(long, num_args = 1.., default_values_t = ["*.*".to_string()])]
    pub tables: Vec<String>,
    /// The lake: a folder or s3://bucket/prefix.
    #[arg(long, default_value = "./lake")]
    pub lake: String,
    /// The job's name [default: the first pattern's database].
    #[arg(long)]
    pub name: Option<String>,
    /// The file to write.
    #[arg(short, long, value_name = "FILE", default_value = "alluvium.yaml")]
    pub output: PathBuf,
    /// Write over a file that is there.
    #[arg(long)]
    pub force: bool,
}

/// What the job file is to say.
#[derive(Debug, Clone)]
pub struct Draft {
    pub name: String,
    /// Without its password.
    pub url: String,
    /// The password that the URL had.
    pub password: Option<Secret>,
    pub tables: Vec<String>,
    pub lake: String,
}

/// A table that the source has and the patterns select.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FoundTable {
    pub table: TableId,
    /// The key, or with a problem the columns that the job file is to name as one.
    pub key: Vec<String>,
    /// The source's own estimate.
    pub rows_estimated: Option<u64>,
    /// Why it cannot be captured as it is.
    pub problem: Option<String>,
}

/// No more tables than these are listed in a job file; the patterns count, not the list.
const TABLES_LISTED_MAX: usize = 200;

pub(super) fn run(global: &Global, args: &InitArgs) -> Exit {
    let draft = match Draft::new(args) {
        Ok(draft) => draft,
        Err(problem) => return refuse(&problem),
    };
    let config = match draft.source() {
        Ok(config) => config,
        Err(problems) => return refuse(&problems),
    };
    if args.output.exists() && !args.force {
        return refuse(&format!("{} is there already: write over it with --force", args.output.display()));
    }
    let source = live::MysqlSource::new(config, BTreeMap::new());
    super::block_on(async {
        match source.tables().await {
            Ok(tables) => finish(global, args, &draft, tables.into_iter().map(FoundTable::from).collect()),
            Err(error) => super::source_failed(global, &error),
        }
    })
}

fn refuse(problem: &str) -> Exit {
    complain(problem);
    Exit::Usage
}

fn finish(global: &Global, args: &InitArgs, draft: &Draft, tables: Vec<FoundTable>) -> Exit {
    let file = args.output.display();
    if let Err(error) = write_file(&args.output, &draft.job_file(&tables), args.force) {
        complain(&format!("{file} cannot be written: {error}"));
        return Exit::Usage;
    }
    let missing = tables.iter().filter(|table| table.problem.is_some() && table.key.is_empty()).count();
    if global.json {
        print_json(&serde_json::json!({ "file": args.output, "tables": tables.len(), "without_capture": missing }));
        return Exit::Done;
    }
    print(&format!(
        "{file}: {} tables, {missing} of them cannot be captured as they are\nNext:\n  export {}=...\n  \
         alluvium check -j {file}\n  alluvium run -j {file}\n",
        count(tables.len() as u64),
        draft.password_variable(),
    ));
    Exit::Done
}

impl From<DiscoveredTable> for FoundTable {
    fn from(found: DiscoveredTable) -> Self {
        let (key, problem) = match &found.schema {
            Ok(schema) => (schema.key_names().into_iter().map(str::to_string).collect(), None),
            Err(problem) => (found.key_advised, Some(problem.clone())),
        };
        Self { table: found.table, key, rows_estimated: found.rows_estimated, problem }
    }
}

impl Draft {
    /// # Errors
    /// A message for an address that is not a URL.
    pub fn new(args: &InitArgs) -> Result<Self, String> {
        let mut url = Url::parse(&args.url)
            .map_err(|error| format!("--url is not a URL ({error}): write mysql://user@host:port"))?;
        let password = url.password().map(|_| url.clone()).and_then(|url| password_of(&url));
        // It fails for a URL without a host, which has no password either.
        let _ = url.set_password(None);
        Ok(Self {
            name: args.name.clone().unwrap_or_else(|| name_of(&args.tables)),
            url: url.to_string().trim_end_matches('/').to_string(),
            password: password.map(Secret::new),
            tables: args.tables.clone(),
            lake: args.lake.clone(),
        })
    }

    /// How `init` itself connects: by the job file that it will write, with the URL's own password.
    ///
    /// # Errors
    /// What is wrong with the arguments, a line each.
    pub fn source(&self) -> Result<MysqlConfig, String> {
        let variable = self.password_variable();
        let environment = |name: &str| match &self.password {
            Some(password) if name == variable => Some(password.reveal().to_string()),
            _ => std::env::var(name).ok(),
        };
        let folder = std::env::current_dir().map_err(|error| format!("there is no current folder: {error}"))?;
        match config::parse(&self.job_file(&[]), Path::new("the job file to be"), &folder, &environment) {
            Ok((Job { source: SourceConfig::Mysql(config), .. }, _)) => Ok(config),
            Ok(_) => Err("only a live source has tables to look at".to_string()),
            Err(problems) => Err(problems.to_string()),
        }
    }

    /// The variable that the job takes its password from.
    pub fn password_variable(&self) -> String {
        format!("{}_DB_PASSWORD", self.name.to_uppercase().replace('-', "_"))
    }

    /// The text of the job file. Without tables it is what `init` itself connects with.
    pub fn job_file(&self, found: &[FoundTable]) -> String {
        let mut text = format!(
            "# A job of Alluvium. Every key is described in docs/job-file.md; what is left out has a default, which\n\
             # `alluvium check --explain` prints. Next: `alluvium check`, then `alluvium run`.\n\
             version: 1\njob: {}\nsource:\n  type: mysql\n  # The password comes from the environment variable {}.\n  \
             url: {}\n  # The last pattern that matches a table decides; ! takes away.\n  tables:\n",
            quoted(&self.name),
            self.password_variable(),
            quoted(&self.url),
        );
        for pattern in &self.tables {
            text += &format!("    - {}\n", quoted(pattern));
        }
        text += &listed(found);
        text +=
            &format!("lake:\n  # A folder, from this file's, or s3://bucket/prefix.\n  path: {}\n", quoted(&self.lake));
        text + &keys_to_fill_in(found)
    }
}

/// The tables as comments: what the patterns select today.
fn listed(found: &[FoundTable]) -> String {
    if found.is_empty() {
        return String::new();
    }
    let mut text = format!("    # {} tables today:\n", count(found.len() as u64));
    for table in found.iter().take(TABLES_LISTED_MAX) {
        let name = one_line(&table.table.to_string());
        let _ = match &table.problem {
            Some(problem) if table.key.is_empty() => {
                writeln!(text, "    #   {name}: NOT CAPTURED: {}", one_line(problem))
            }
            Some(_) => writeln!(text, "    #   {name}: no primary key, so a unique key is named below"),
            None => {
                let rows = table.rows_estimated.map(|rows| format!(", about {} rows", count(rows)));
                let key = one_line(&table.key.join(", "));
                writeln!(text, "    #   {name}: key {key}{}", rows.unwrap_or_default())
            }
        };
    }
    if found.len() > TABLES_LISTED_MAX {
        text += &format!("    #   and {} more\n", found.len() - TABLES_LISTED_MAX);
    }
    text
}

/// The section `tables` for tables without a primary key: their unique keys, and what is to be filled in, as comments.
fn keys_to_fill_in(found: &[FoundTable]) -> String {
    let of_problem = found.iter().filter(|table| table.problem.is_some());
    let (keyless, unique): (Vec<_>, Vec<_>) = of_problem.partition(|table| table.key.is_empty());
    let name = |table: &FoundTable| quoted(&one_line(&table.table.to_string()));
    let mut text = String::new();
    if !unique.is_empty() {
        text += "# Tables without a primary key, and the columns of a unique key that identify their rows as well. Keep that key:\n\
                 # rows that have these columns alike would be one row in the lake.\ntables:\n";
    }
    for table in unique {
        let columns: Vec<String> = table.key.iter().map(|column| quoted(&one_line(column))).collect();
        text += &format!("  - match: {}\n    key: [{}]\n", name(table), columns.join(", "));
    }
    if keyless.is_empty() {
        return text;
    }
    let heading = if text.is_empty() { "# tables:\n" } else { "" };
    text += &format!("# Tables without any key: say which columns identify a row.\n{heading}");
    for table in keyless.iter().take(TABLES_LISTED_MAX) {
        text += &format!("#   - match: {}\n#     key: []\n", name(table));
    }
    text
}

/// Writes a new file, or over an old one where that is wanted.
///
/// # Errors
/// `AlreadyExists` for a file that is there and not to be written over.
pub fn write_file(path: &Path, text: &str, force: bool) -> io::Result<()> {
    let mut options = std::fs::OpenOptions::new();
    options.write(true);
    if force {
        options.create(true).truncate(true)
    } else {
        options.create_new(true)
    };
    let mut file = options.open(path)?;
    file.write_all(text.as_bytes())?;
    file.sync_all()
}

/// The database of the first pattern that names one, made a job's name.
fn name_of(patterns: &[String]) -> String {
    let plain = |pattern: &String| {
        let (database, _) = pattern.split_once('.')?;
        let is_plain = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
        (!database.is_empty() && database.len() <= 64 && database.chars().all(is_plain)).then(|| database.to_string())
    };
    patterns.iter().find_map(plain).unwrap_or_else(|| "alluvium".to_string())
}

/// The password of a URL with its `%XX` resolved, by the rules of the job file.
fn password_of(url: &Url) -> Option<String> {
    url.password().map(crate::config::percent_decoded)
}

/// A YAML scalar in double quotes: JSON strings are YAML. A `$` is doubled, so that it stays one.
fn quoted(text: &str) -> String {
    serde_json::Value::from(text.replace('$', "$$")).to_string()
}

/// Names come from outside; an end of line in one would end the comment.
fn one_line(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn draft(url: &str, tables: &[&str]) -> Draft {
        let tables = tables.iter().map(|table| table.to_string()).collect();
        let args = InitArgs {
            url: url.into(),
            tables,
            lake: "./lake".into(),
            name: None,
            output: PathBuf::from("alluvium.yaml"),
            force: false,
        };
        Draft::new(&args).unwrap()
    }

    fn found(name: &str, key: &[&str], problem: Option<&str>) -> FoundTable {
        FoundTable {
            table: TableId::new("shop", name),
            key: key.iter().map(|column| column.to_string()).collect(),
            rows_estimated: Some(12_345),
            problem: problem.map(str::to_string),
        }
    }

    #[test]
    fn the_file_that_init_writes_is_a_job_and_has_no_password() {
        let draft = draft("mysql://cdc:hunt%40er2@db.internal:3307", &["shop.*", "!shop.$tmp"]);
        assert_eq!(draft.password.as_ref().map(Secret::reveal), Some("hunt@er2"));
        let tables = [
            found("orders", &["id"], None),
            found("log\n x", &[], Some("it has no primary key")),
            found("a", &["b", "c"], None),
            found("u", &["x $y", "z"], Some("it has no primary key")),
        ];
        let text = draft.job_file(&tables);
        assert!(!text.contains("hunt"), "{text}");
        assert!(text.contains("    #   shop.orders: key id, about 12,345 rows\n"), "{text}");
        assert!(text.contains("    #   shop.log  x: NOT CAPTURED: it has no primary key\n"), "{text}");
        assert!(text.contains("#   - match: \"shop.log  x\"\n#     key: []\n"), "{text}");
        let environment = |name: &str| (name == "SHOP_DB_PASSWORD").then(|| "hunter2".to_string());
        let (job, _) = config::parse(&text, Path::new("f"), Path::new("/"), &environment).unwrap();
        let SourceConfig::Mysql(source) = job.source else { panic!("{text}") };
        assert_eq!((source.host.as_str(), source.port, source.user.as_str()), ("db.internal", 3307, "cdc"));
        assert_eq!(source.password.reveal(), "hunter2");
        assert_eq!(source.tables.patterns().collect::<Vec<_>>(), ["shop.*", "!shop.$tmp"]);
        assert_eq!(job.keys["shop.u"], ["x $y", "z"]);
    }

    #[test]
    fn the_name_is_the_first_database_that_can_be_one() {
        for (patterns, name) in
            [(vec!["*.*"], "alluvium"), (vec!["*.*", "my-shop.x"], "my-shop"), (vec!["été.x"], "alluvium")]
        {
            assert_eq!(draft("mysql://u@h", &patterns).name, name);
        }
        assert_eq!(draft("mysql://u@h", &["my-shop.*"]).password_variable(), "MY_SHOP_DB_PASSWORD");
    }

    #[test]
    fn a_file_that_is_there_is_kept_unless_force_is_given() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("alluvium.yaml");
        write_file(&path, "a long first text", false).unwrap();
        assert_eq!(write_file(&path, "b", false).unwrap_err().kind(), io::ErrorKind::AlreadyExists);
        write_file(&path, "b", true).unwrap();
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "b");
    }

    #[test]
    fn many_tables_are_listed_up_to_a_limit() {
        let many = vec![found("t", &["id"], None); 500];
        let text = draft("mysql://u@h", &["shop.*"]).job_file(&many);
        assert!(text.contains("# 500 tables today") && text.contains("and 300 more"));
    }
}
