//! Holds the shape of the code: who may import whom, how long files and functions are, and what must not be left
//! behind. Uses the standard library only, so that it links in no time.
#![allow(clippy::unwrap_used, clippy::panic)]

use std::fs;
use std::path::{Path, PathBuf};

/// The layers of `src/`, top to bottom. A module imports from lower layers only, and from its own layer only where
/// [`NEIGHBOURS`] says so.
const LAYERS: &[&[&str]] = &[
    &["main"],
    &["cli"],
    &["pipeline"],
    &["maintain"],
    &["query"],
    &["source", "lake"],
    &["batch"],
    &["config"],
    &["change", "schema"],
    &["failpoint", "error", "clock", "units", "telemetry"],
];

/// Modules of one layer that see each other.
const NEIGHBOURS: &[(&str, &str)] = &[("change", "schema")];

/// Lines of a file before its tests: what one can read in one sitting.
const FILE_LINES_MAX: usize = 900;

/// Lines of a function, and of the median one.
const FUNCTION_LINES_MAX: usize = 70;
const FUNCTION_LINES_MEDIAN_MAX: usize = 10;

#[test]
fn modules_import_downwards_only() {
    let mut wrong = Vec::new();
    for file in production_files() {
        let from = module_of(&file.path);
        for to in imported_modules(&file.code) {
            if !may_import(&from, &to) {
                wrong.push(format!("{}: {from} must not import {to}", file.path.display()));
            }
        }
    }
    report(wrong);
}

#[test]
fn every_module_has_a_layer() {
    let modules = production_files().into_iter().map(|file| module_of(&file.path)).filter(|module| module != "lib");
    report(modules.filter(|module| layer(module).is_none()).map(|module| format!("{module} has no layer")).collect());
}

#[test]
fn files_are_short_enough_to_read() {
    let long = production_files().into_iter().filter(|file| file.code.lines().count() > FILE_LINES_MAX);
    report(
        long.map(|file| format!("{}: {} lines before its tests", file.path.display(), file.code.lines().count()))
            .collect(),
    );
}

#[test]
fn functions_are_short_enough_to_see_whole() {
    let mut lengths = Vec::new();
    let mut long = Vec::new();
    for file in production_files() {
        for (name, lines) in functions(&file.code) {
            if lines > FUNCTION_LINES_MAX {
                long.push(format!("{}: {name} has {lines} lines", file.path.display()));
            }
            lengths.push(lines);
        }
    }
    report(long);
    lengths.sort_unstable();
    let median = lengths[lengths.len() / 2];
    assert!(median <= FUNCTION_LINES_MEDIAN_MAX, "the median function has {median} lines");
}

#[test]
fn nothing_is_left_over_in_production_code() {
    let mut found = Vec::new();
    for file in production_files() {
        let module = module_of(&file.path);
        for (number, line) in file.code.lines().enumerate() {
            let mut words: Vec<&str> = ["todo!", "unimplemented!", "dbg!", ".unwrap()", "panic!"]
                .into_iter()
                .filter(|word| line.contains(word))
                .collect();
            if module != "cli" && module != "main" && (line.contains("println!") || line.contains("print!(")) {
                words.push("print");
            }
            found.extend(words.iter().map(|word| format!("{}:{}: {word}", file.path.display(), number + 1)));
        }
    }
    report(found);
}

#[test]
fn no_file_names_a_machine_or_an_unfinished_thing() {
    // In pieces, so that this file is not found by itself.
    let forbidden =
        [concat!("/wo", "rk/"), concat!("/ro", "ot/"), concat!("FIX", "ME"), concat!("TO", "DO"), concat!("X", "XX ")];
    let mut found = Vec::new();
    for path in text_files() {
        let Ok(text) = fs::read_to_string(&path) else { continue };
        for (number, line) in text.lines().enumerate() {
            let words = forbidden.iter().filter(|word| line.contains(**word));
            found.extend(words.map(|word| format!("{}:{}: {word}", path.display(), number + 1)));
        }
    }
    report(found);
}

#[test]
fn decisions_are_numbered_without_a_gap() {
    let mut names: Vec<String> =
        files_under(&root().join("docs/decisions")).iter().map(|path| file_name(path)).collect();
    names.sort();
    let wrong = names.iter().enumerate().filter(|(index, name)| !name.starts_with(&format!("{:04}-", index + 1)));
    report(
        wrong.map(|(index, name)| format!("docs/decisions/{name} should have the number {:04}", index + 1)).collect(),
    );
}

#[test]
fn every_recorded_file_is_in_the_catalogue() {
    let folder = root().join("tests/data");
    let unnamed = files_under(&folder).into_iter().filter(|path| file_name(path) != "README.md").filter(|path| {
        // A folder may have a catalogue of its own.
        let catalogue = path.ancestors().map(|above| above.join("README.md")).find(|file| file.is_file()).unwrap();
        !fs::read_to_string(catalogue).unwrap().contains(&file_name(path))
    });
    report(unnamed.map(|path| format!("{} is not named in the README.md above it", path.display())).collect());
}

#[test]
fn the_scanner_sees_through_strings_and_comments() {
    let check = |code: &str, expected: &str| assert_eq!(blank(code), expected, "{code}");
    check("a // fn b() {\nc", "a            \nc");
    check("a /* x /* y */ } */ b", "a                   b");
    check(r#"f("}\" {", 'x', '\'', '{')"#, r#"f("     ", ' ', '  ', ' ')"#);
    check("r#\"}\"#; &'a str", "r#\" \"#; &'a str");
    assert_eq!(without_tests("a\n#[cfg(test)]\nmod tests;\nb\n#[cfg(test)]\nfn f([u8; 2]) { {} }\nc"), "a\n\nb\n\nc");
    assert_eq!(functions("fn a() {\n  b();\n}\nfn c();\n"), vec![("a".to_string(), 3)]);
    assert_eq!(imported_modules("use crate::{a::B, c::{d, e}};\ncrate::f::g()"), ["a", "c", "f"]);
}

struct SourceFile {
    path: PathBuf,
    /// Without comments, strings and tests; lines as in the file.
    code: String,
}

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

fn report(problems: Vec<String>) {
    assert!(problems.is_empty(), "\n{}\n", problems.join("\n"));
}

fn file_name(path: &Path) -> String {
    path.file_name().unwrap().to_string_lossy().into_owned()
}

fn files_under(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).into_iter().flatten() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(files_under(&path));
        } else {
            found.push(path);
        }
    }
    found.sort();
    found
}

/// All that people read or run, but for recorded data and what is built.
fn text_files() -> Vec<PathBuf> {
    let folders = ["src", "tests", "docs", "jobs", "sql", "benches", "fuzz", ".ci"];
    let mut found: Vec<PathBuf> = folders.iter().flat_map(|folder| files_under(&root().join(folder))).collect();
    found.extend(fs::read_dir(root()).unwrap().map(|entry| entry.unwrap().path()).filter(|path| path.is_file()));
    found.retain(|path| file_name(path) != ".git" && !path.components().any(|part| part.as_os_str() == "target"));
    found
}

fn production_files() -> Vec<SourceFile> {
    let rust =
        files_under(&root().join("src")).into_iter().filter(|path| path.extension().is_some_and(|end| end == "rs"));
    let production = rust
        .filter(|path| file_name(path) != "tests.rs" && !path.parent().is_some_and(|folder| folder.ends_with("tests")));
    production
        .map(|path| {
            let code = blank(&fs::read_to_string(&path).unwrap());
            SourceFile { path: path.strip_prefix(root()).unwrap().to_path_buf(), code: without_tests(&code) }
        })
        .collect()
}

/// The code without the items that stand under `#[cfg(test)]`.
fn without_tests(code: &str) -> String {
    let mut kept = String::new();
    let mut rest = code;
    while let Some(start) = rest.find("#[cfg(test)]") {
        kept.push_str(&rest[..start]);
        rest = &rest[start..];
        rest = &rest[item_end(rest).0..];
    }
    kept + rest
}

/// The first part of the path under `src/`.
fn module_of(path: &Path) -> String {
    let first = path.components().nth(1).unwrap();
    Path::new(first.as_os_str()).file_stem().unwrap().to_string_lossy().into_owned()
}

fn layer(module: &str) -> Option<usize> {
    LAYERS.iter().position(|layer| layer.contains(&module))
}

fn may_import(from: &str, to: &str) -> bool {
    if from == to || from == "lib" || NEIGHBOURS.contains(&(from, to)) || NEIGHBOURS.contains(&(to, from)) {
        return true;
    }
    match (layer(from), layer(to)) {
        (Some(from), Some(to)) => from < to,
        _ => false,
    }
}

/// The top-level modules that are named after `crate::` or `alluvium::`.
fn imported_modules(code: &str) -> Vec<String> {
    let mut found = Vec::new();
    for prefix in ["crate::", "alluvium::"] {
        for (start, _) in code.match_indices(prefix) {
            let before = code[..start].chars().next_back();
            if before.is_some_and(|c| c.is_alphanumeric() || c == '_' || c == ':') {
                continue;
            }
            found.extend(first_names(&code[start + prefix.len()..]));
        }
    }
    found
}

/// `a::b` gives `a`; `{a::b, c::{d, e}}` gives `a` and `c`.
fn first_names(path: &str) -> Vec<String> {
    let Some(group) = path.strip_prefix('{') else { return vec![identifier(path)] };
    let (mut depth, mut names, mut at_start) = (1, Vec::new(), true);
    for (index, c) in group.char_indices() {
        match c {
            '{' => depth += 1,
            '}' => depth -= 1,
            ',' if depth == 1 => at_start = true,
            c if at_start && !c.is_whitespace() => {
                names.push(identifier(&group[index..]));
                at_start = false;
            }
            _ => {}
        }
        if depth == 0 {
            break;
        }
    }
    names
}

fn identifier(text: &str) -> String {
    text.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect()
}

/// Every function that has a body, with the lines from its `fn` to its last brace.
fn functions(code: &str) -> Vec<(String, usize)> {
    let mut found = Vec::new();
    for (start, _) in code.match_indices("fn ") {
        if code[..start].chars().next_back().is_some_and(|c| c.is_alphanumeric() || c == '_') {
            continue;
        }
        let name = identifier(&code[start + 3..]);
        let (end, has_body) = item_end(&code[start..]);
        if !name.is_empty() && has_body {
            found.push((name, code[start..start + end].lines().count()));
        }
    }
    found
}

/// Where an item ends, and whether it has a body: `fn a();` has none.
fn item_end(code: &str) -> (usize, bool) {
    let (mut depth, mut brackets) = (0, 0);
    for (index, c) in code.char_indices() {
        match c {
            '[' | '(' => brackets += 1,
            ']' | ')' => brackets -= 1,
            // `[u8; 4]` in a signature is no end.
            ';' if depth == 0 && brackets == 0 => return (index + 1, false),
            '{' => depth += 1,
            '}' => {
                depth -= 1;
                if depth == 0 {
                    return (index + 1, true);
                }
            }
            _ => {}
        }
    }
    (code.len(), false)
}

/// The code with the insides of comments, strings and character literals replaced by spaces; lines stay.
fn blank(code: &str) -> String {
    let chars: Vec<char> = code.chars().collect();
    let mut out = String::with_capacity(code.len());
    let mut index = 0;
    while index < chars.len() {
        let (end, keep_ends) = token_end(&chars, index);
        for (position, c) in chars.iter().enumerate().take(end).skip(index) {
            let kept = position < index + keep_ends.0 || position >= end.saturating_sub(keep_ends.1) || *c == '\n';
            out.push(if kept { *c } else { ' ' });
        }
        index = end;
    }
    out
}

/// The end of the token at `start`, and how many characters of its two ends are kept.
fn token_end(chars: &[char], start: usize) -> (usize, (usize, usize)) {
    let at = |offset: usize| chars.get(start + offset).copied().unwrap_or(' ');
    match (at(0), at(1)) {
        ('/', '/') => (find(chars, start, |i| chars[i] == '\n'), (0, 0)),
        ('/', '*') => (comment_end(chars, start), (0, 0)),
        ('r', '"' | '#') if !is_word(chars, start) => raw_string_end(chars, start).unwrap_or((start + 1, (1, 0))),
        ('"', _) => (quoted_end(chars, start, '"'), (1, 1)),
        // A lifetime is no literal.
        ('\'', '\\') => (quoted_end(chars, start, '\''), (1, 1)),
        ('\'', _) if at(2) == '\'' => (start + 3, (1, 1)),
        _ => (start + 1, (1, 0)),
    }
}

fn is_word(chars: &[char], start: usize) -> bool {
    // `br"` is a raw string too.
    start > 0 && (chars[start - 1].is_alphanumeric() || chars[start - 1] == '_') && chars[start - 1] != 'b'
}

fn find(chars: &[char], start: usize, stop: impl Fn(usize) -> bool) -> usize {
    (start..chars.len()).find(|index| stop(*index)).unwrap_or(chars.len())
}

fn comment_end(chars: &[char], start: usize) -> usize {
    let mut depth = 0;
    let mut index = start;
    while index + 1 < chars.len() {
        match (chars[index], chars[index + 1]) {
            ('/', '*') => depth += 1,
            ('*', '/') => depth -= 1,
            _ => {
                index += 1;
                continue;
            }
        }
        index += 2;
        if depth == 0 {
            return index;
        }
    }
    chars.len()
}

fn quoted_end(chars: &[char], start: usize, quote: char) -> usize {
    let mut index = start + 1;
    while index < chars.len() && chars[index] != quote {
        index += if chars[index] == '\\' { 2 } else { 1 };
    }
    (index + 1).min(chars.len())
}

fn raw_string_end(chars: &[char], start: usize) -> Option<(usize, (usize, usize))> {
    let hashes = chars[start + 1..].iter().take_while(|c| **c == '#').count();
    let body = start + 2 + hashes;
    if chars.get(body - 1) != Some(&'"') {
        return None;
    }
    let end = find(chars, body, |i| chars[i] == '"' && (1..=hashes).all(|n| chars.get(i + n) == Some(&'#')));
    Some(((end + 1 + hashes).min(chars.len()), (2 + hashes, 1 + hashes)))
}
