//! The suite suite.

mod cli_errors;
mod mallctl_tree;
mod report_golden;
