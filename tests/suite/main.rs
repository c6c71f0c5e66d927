//! The suite suite.
mod cli_errors;
