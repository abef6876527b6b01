//! Logs, and the last words of a fault.

use std::io::{self, Write};
use std::panic::PanicHookInfo;

use tracing_subscriber::EnvFilter;
use tracing_subscriber::fmt::MakeWriter;

/// The environment variable that sets the log's filter in full (`alluvium=debug,mysql_async=info`).
pub const LOG_VARIABLE: &str = "ALLUVIUM_LOG";

/// Starts the log. `level` is for Alluvium's own lines, the libraries' come from `warn` upwards;
/// [`LOG_VARIABLE`] overrules both. Lines are JSON objects where `is_json`. A log that was started before stays.
pub fn start_log<W>(level: &str, is_json: bool, writer: W)
where
    W: for<'a> MakeWriter<'a> + Send + Sync + 'static,
{
    let filter = EnvFilter::try_from_env(LOG_VARIABLE).unwrap_or_else(|_| EnvFilter::new(filter_of(level)));
    let log = tracing_subscriber::fmt().with_env_filter(filter).with_writer(writer).with_ansi(false);
    let started = if is_json { log.json().try_init() } else { log.with_target(false).try_init() };
    // Two starts happen in tests only; the first log is as good.
    drop(started);
}

fn filter_of(level: &str) -> String {
    match level {
        "off" | "error" => level.to_string(),
        level => format!("warn,alluvium={level}"),
    }
}

/// Makes a panic say what it is: a fault in Alluvium, with the place in the code.
pub fn explain_panics() {
    std::panic::set_hook(Box::new(|info| {
        let _ = io::stderr().write_all(last_words(info).as_bytes());
    }));
}

fn last_words(info: &PanicHookInfo<'_>) -> String {
    let message = info.payload_as_str().unwrap_or("no message");
    let place = info.location().map(|place| place.to_string()).unwrap_or_default();
    format!(
        "this is a fault in Alluvium, version {}: {message} ({place})\n\
         The tables in the lake are right: a run writes whole batches only. Please report this line.\n",
        env!("CARGO_PKG_VERSION")
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_level_is_for_alluvium_and_libraries_only_warn() {
        assert_eq!(filter_of("debug"), "warn,alluvium=debug");
        assert_eq!(filter_of("off"), "off");
    }
}
