//! The one printer. Results go to stdout, words to stderr; an error is one line, its causes indented, then one hint.
//!
//! ```text
//! jeprobe: error: cannot read the memory of pid 4312
//!   caused by: operation not permitted (os error 1)
//! hint: run as the same user or as root: sudo jeprobe dump --pid 4312
//! ```
//!
//! Nothing else in the crate writes to stdout or stderr. A reader that closed its end of stdout is no failure.
#![forbid(unsafe_code)]

use std::fmt::Display;
use std::io::{self, BufWriter, ErrorKind, IsTerminal as _, Write};
use std::process::{Command, ExitStatus, Stdio};

use anyhow::Result;

use crate::error::Error;
use crate::input::InputError;
use crate::memory;
use crate::model::printable;
use crate::probe::error::AttachError;
use crate::session::SessionError;

/// Where words and results of a command go.
#[derive(Clone, Debug)]
pub struct Term {
    quiet: bool,
    verbose: bool,
    results: Results,
    /// Said before the next line, if there is one.
    heading: Option<&'static str>,
}

/// Where results go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Results {
    Stdout,
    Stderr,
}

impl Term {
    pub fn new(quiet: bool, verbose: bool) -> Term {
        Term { quiet, verbose, results: Results::Stdout, heading: None }
    }

    /// True when `-v` asked for details.
    pub fn is_verbose(&self) -> bool {
        self.verbose
    }

    /// A line above those that follow; not said when none does before the next heading.
    pub fn heading(&mut self, line: &'static str) {
        self.heading = Some(line);
    }

    fn begin(&mut self) {
        if let Some(heading) = self.heading.take() {
            put(format_args!("{heading}"));
        }
    }

    /// A line about what is being done; silent with `-q`.
    pub fn say(&mut self, line: impl Display) {
        if !self.quiet {
            self.begin();
            put(format_args!("{line}"));
        }
    }

    /// A line that only `-v` shows.
    pub fn detail(&mut self, line: impl Display) {
        if self.verbose {
            self.begin();
            put(format_args!("{line}"));
        }
    }

    /// A line about something that went wrong without ending the command; `-q` does not hide it.
    pub fn warn(&mut self, line: impl Display) {
        self.begin();
        put(format_args!("jeprobe: warning: {line}"));
    }

    /// The error that ends the command: message, causes, the first hint found in the chain.
    pub fn error(&mut self, error: &anyhow::Error) {
        put(format_args!("jeprobe: error: {error}"));
        let mut last = error.to_string();
        for cause in error.chain().skip(1) {
            let text = cause.to_string();
            // A wrapper that repeats its source verbatim says nothing new.
            if text != last && !last.ends_with(&text) {
                put(format_args!("  caused by: {text}"));
            }
            last = text;
        }
        if let Some(hint) = error.chain().find_map(hint_of) {
            put(format_args!("hint: {hint}"));
        }
    }

    /// Sends the results from here on to stderr: stdout carries a profile, or belongs to a child.
    pub fn results_to_stderr(&mut self) {
        self.results = Results::Stderr;
    }

    /// Shows a result: on a terminal through the pager of `$PAGER`, else like [`Term::result`]. A pager that could not be
    /// started takes nothing with it.
    pub fn paged(&mut self, write: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> Result<()> {
        let pager = match self.results {
            Results::Stdout => pager(),
            Results::Stderr => None,
        };
        let Some(pager) = pager else { return self.result(write) };
        let mut text = Vec::new();
        write(&mut text).map_err(Error::Stdout)?;
        match page(&pager, &text) {
            Ok(status) if status.code() == Some(CANNOT_RUN) || status.code() == Some(NOT_FOUND) => {}
            Ok(status) if status.code().is_some_and(|code| code != 0) => {
                self.warn(format_args!("the pager `{pager}` failed ({status}); --no-pager shows results without one"));
            }
            Ok(_) => return Ok(()),
            Err(error) => self.warn(format_args!("cannot start the pager `{pager}`: {error}")),
        }
        self.result(|out| out.write_all(&text))
    }

    /// Writes a result to stdout, or where [`Term::results_to_stderr`] said. A closed pipe ends the writing and counts as success.
    pub fn result(&mut self, write: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> Result<()> {
        if self.results == Results::Stderr {
            return match write(&mut io::stderr().lock()) {
                Err(error) if error.kind() != ErrorKind::BrokenPipe => Err(Error::Stderr(error).into()),
                _ => Ok(()),
            };
        }
        let mut out = BufWriter::with_capacity(64 * 1024, io::stdout().lock());
        match write(&mut out).and_then(|()| out.flush()) {
            Ok(()) => Ok(()),
            Err(error) if error.kind() == ErrorKind::BrokenPipe => {
                // What is still buffered has no reader; without this the drop would try again.
                let _discarded = out.into_parts();
                Ok(())
            }
            Err(error) => Err(Error::Stdout(error).into()),
        }
    }
}

/// What a shell ends with when it may not run a command, and when there is none of that name.
const CANNOT_RUN: i32 = 126;
const NOT_FOUND: i32 = 127;

/// The pager of the user, when stdout is a terminal that one can work on.
fn pager() -> Option<String> {
    let is_capable = std::env::var_os("TERM").is_some_and(|term| !term.is_empty() && term != "dumb");
    let pager = std::env::var("PAGER").unwrap_or_else(|_| "less".to_owned());
    (io::stdout().is_terminal() && is_capable && !pager.is_empty() && pager != "cat").then_some(pager)
}

/// Gives a text to a pager and waits for it; a pager need not read it all.
fn page(pager: &str, text: &[u8]) -> io::Result<ExitStatus> {
    memory::settle();
    let mut command = Command::new("/bin/sh");
    command.args(["-c", pager]).stdin(Stdio::piped());
    if std::env::var_os("LESS").is_none() {
        // Short results are printed and done; colours pass; the screen keeps what was shown.
        command.env("LESS", "FRX");
    }
    let mut child = command.spawn()?;
    // Closed when it is written, or the pager would wait for more.
    let mut input = child.stdin.take().expect("its input is a pipe");
    let _what_it_did_not_want = input.write_all(text);
    drop(input);
    child.wait()
}

/// Writes one line to stderr, with nothing that a terminal obeys: names of files may hold anything. There is no one left
/// to tell when that fails.
fn put(line: std::fmt::Arguments<'_>) {
    let mut line = line.to_string();
    printable(&mut line);
    let _unreported = writeln!(io::stderr().lock(), "{line}");
}

/// The hint of one error of a chain, when it is of a type that has hints. Every module's error type is named here.
fn hint_of(error: &(dyn std::error::Error + 'static)) -> Option<String> {
    error
        .downcast_ref::<Error>()
        .and_then(Error::hint)
        .or_else(|| error.downcast_ref::<InputError>().and_then(InputError::hint))
        .or_else(|| error.downcast_ref::<AttachError>().and_then(AttachError::hint))
        .or_else(|| error.downcast_ref::<SessionError>().and_then(SessionError::hint))
}
