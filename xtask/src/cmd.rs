//! Runs a command in the workspace root: prints it before, names it when it fails.
//!
//! | way | output | a nonzero exit |
//! |---|---|---|
//! | [`Cmd::run`] | stays on the terminal | is an error |
//! | [`Cmd::output`] | stdout is returned | is an error |
//! | [`Cmd::output_of_any`] | stdout and stderr are returned | is the caller's business |
//! | [`Cmd::tee`] | both are shown as they come, and returned | is returned too |
#![forbid(unsafe_code)]

use std::ffi::OsStr;
use std::fmt::Write as _;
use std::io::{self, BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};

use anyhow::{Context as _, Result, bail};

/// The workspace root: this crate's parent folder.
pub(crate) fn root() -> PathBuf {
    let mut path = PathBuf::from(env!("CARGO_MANIFEST_DIR"));
    path.pop();
    path
}

/// The cargo that runs this program, so that a toolchain chosen by the user stays chosen.
pub(crate) fn cargo() -> Cmd {
    Cmd::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()))
}

pub(crate) struct Cmd {
    command: Command,
    /// The command as it would be typed, for messages.
    text: String,
}

impl Cmd {
    pub(crate) fn new(program: impl AsRef<OsStr>) -> Self {
        let program = program.as_ref();
        let mut command = Command::new(program);
        command.current_dir(root());
        let name = Path::new(program).file_name().unwrap_or(program).to_string_lossy().into_owned();
        Self { command, text: name }
    }

    pub(crate) fn arg(mut self, arg: impl AsRef<OsStr>) -> Self {
        let arg = arg.as_ref();
        let _ = write!(self.text, " {}", arg.to_string_lossy());
        self.command.arg(arg);
        self
    }

    pub(crate) fn args<A: AsRef<OsStr>>(self, args: impl IntoIterator<Item = A>) -> Self {
        args.into_iter().fold(self, Cmd::arg)
    }

    pub(crate) fn env(mut self, name: &str, value: impl AsRef<OsStr>) -> Self {
        let value = value.as_ref();
        self.text = format!("{name}={:?} {}", value.to_string_lossy(), self.text);
        self.command.env(name, value);
        self
    }

    /// Takes a variable out of the child's environment.
    pub(crate) fn without_env(mut self, name: &str) -> Self {
        self.command.env_remove(name);
        self
    }

    pub(crate) fn dir(mut self, dir: &Path) -> Self {
        self.command.current_dir(dir);
        self
    }

    /// Runs with the terminal's stdout and stderr.
    pub(crate) fn run(mut self) -> Result<()> {
        eprintln!("$ {}", self.text);
        let status = self.command.status().with_context(|| format!("cannot start `{}`", self.text))?;
        self.check(status)
    }

    /// Stdout as text; stderr stays on the terminal.
    pub(crate) fn output(mut self) -> Result<String> {
        let output =
            self.command.stderr(Stdio::inherit()).output().with_context(|| format!("cannot start `{}`", self.text))?;
        self.check(output.status)?;
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }

    /// Stdout and stderr as text, and whether the command succeeded.
    pub(crate) fn said(mut self) -> Result<(String, bool)> {
        let output = self.command.output().with_context(|| format!("cannot start `{}`", self.text))?;
        Ok((String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned(), output.status.success()))
    }

    /// Stdout and stderr as text, whether the command succeeded or not.
    pub(crate) fn output_of_any(self) -> Result<String> {
        Ok(self.said()?.0)
    }

    /// Stdout and stderr, shown as they come and returned; whether the command succeeded.
    pub(crate) fn tee(mut self) -> Result<(String, bool)> {
        eprintln!("$ {}", self.text);
        let (reader, writer) = io::pipe().context("cannot make a pipe")?;
        self.command.stdout(writer.try_clone().context("cannot duplicate a pipe")?).stderr(writer);
        let mut child = self.command.spawn().with_context(|| format!("cannot start `{}`", self.text))?;
        // The command holds the pipe's other end open, and reading would not finish.
        drop(self.command);
        let mut text = String::new();
        for line in BufReader::new(reader).split(b'\n') {
            let line = line.with_context(|| format!("cannot read the output of `{}`", self.text))?;
            let line = String::from_utf8_lossy(&line);
            println!("{line}");
            text.push_str(&line);
            text.push('\n');
        }
        let status = child.wait().with_context(|| format!("cannot wait for `{}`", self.text))?;
        Ok((text, status.success()))
    }

    fn check(&self, status: ExitStatus) -> Result<()> {
        if !status.success() {
            bail!("`{}` failed: {status}", self.text);
        }
        Ok(())
    }
}

/// The first executable of this name in `PATH`, then in cargo's own bin folders.
pub(crate) fn find_program(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let cargo_home = std::env::var_os("CARGO_HOME").map(PathBuf::from);
    let home = std::env::var_os("HOME").map(|home| PathBuf::from(home).join(".cargo"));
    std::env::split_paths(&path)
        .chain(cargo_home.into_iter().chain(home).map(|home| home.join("bin")))
        .map(|folder| folder.join(name))
        .find(|file| file.is_file())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tee_returns_output_and_failure() {
        let (text, success) = Cmd::new("sh").args(["-c", "echo one; echo two >&2; exit 3"]).tee().unwrap();
        assert_eq!(text, "one\ntwo\n");
        assert!(!success);
    }

    #[test]
    fn a_failing_command_is_named() {
        let error = Cmd::new("sh").args(["-c", "exit 3"]).output().unwrap_err().to_string();
        assert!(error.contains("sh -c exit 3"), "{error}");
        assert!(Cmd::new("/nowhere/jeprobe-no-such-program").run().is_err());
    }

    #[test]
    fn programs_are_found_by_name() {
        assert!(find_program("sh").is_some());
        assert!(find_program("jeprobe-no-such-program").is_none());
    }
}
