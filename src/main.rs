//! The process entry; everything else is in the library.

use std::process::ExitCode;

fn main() -> ExitCode {
    alluvium::cli::main()
}
