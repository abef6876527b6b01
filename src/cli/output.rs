//! Results go to stdout, everything else to stderr.

use std::io::{self, Write};

use serde::Serialize;

/// Text to stdout. Nobody may be reading any more (`alluvium status | head -1`); that is no error.
pub fn print(text: &str) {
    let _ = io::stdout().lock().write_all(text.as_bytes());
}

/// One JSON value on a line of its own to stdout.
pub fn print_json(value: &impl Serialize) {
    print(&json_line(value));
}

/// Text to stderr, with an end of line.
pub fn complain(text: &str) {
    let _ = writeln!(io::stderr().lock(), "{text}");
}

/// `value` as JSON on one line, or a JSON object that says why not.
pub fn json_line(value: &impl Serialize) -> String {
    let line = serde_json::to_string(value);
    line.unwrap_or_else(|error| serde_json::json!({ "error": error.to_string() }).to_string()) + "\n"
}
