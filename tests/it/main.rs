//! The one integration-test binary: the real program against real servers. Linking Arrow and DataFusion is
//! slow, so every test that needs the whole of Alluvium is a module here.
#![allow(clippy::unwrap_used, clippy::panic, clippy::print_stdout, clippy::print_stderr)]

mod audit;
mod bad_input;
mod cli;
mod columns;
mod crash;
mod ddl_corpus;
mod demo;
mod dynamodb;
mod harness;
mod harness_tests;
mod huge;
mod live_source;
mod loads;
mod log_settings;
mod memory;
mod oracle;
mod oracle_tests;
mod readers;
mod s3;
mod schema;
mod schema_random;
mod security;
mod takeover;
mod two_copies;
