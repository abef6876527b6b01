//! `alluvium schema`: the JSON Schema of the job file.

use super::Exit;
use super::output::print;
use crate::config;

pub(super) fn run() -> Exit {
    print(&format!("{:#}\n", config::json_schema()));
    Exit::Done
}
