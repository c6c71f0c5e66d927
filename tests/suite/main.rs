//! Real software and real profiles, without privileges: programs run on the library and print what they print without
//! it; profiles agree with truth; the command says what it should.

mod cli_errors;
mod dump_failures;
mod huge_inputs;
mod jeprof_cli;
mod jeprof_options;
mod jeprof_programs;
mod jeprof_recorded;
mod jeprof_remote;
mod jeprof_viewers;
mod loader;
mod mallctl_tree;
mod names_cache;
mod one_file;
mod reader_errors;
mod redis;
mod report_debuginfod;
mod report_exchange;
mod report_formats;
mod report_golden;
mod report_jit;
mod report_names;
mod report_otlp;
mod report_passing;
mod report_results;
mod rust_global;
mod sampling_error;
mod software;
mod stacks_cache;
mod web_page;
