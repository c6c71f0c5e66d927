//! The C and C++ interface, seen by programs: exported names, results and errno, size classes, content, threads, fork,
//! linking in every way, configuration, and memory limits.
//!
//! The expectations are jemalloc 5.3.1's behaviour; each module names the table of facts that it checks.

mod classes;
mod conf;
mod content;
mod cxx;
mod cxx_failure;
mod exports;
mod life;
mod limits;
mod linking;
mod std_calls;
mod x_calls;
