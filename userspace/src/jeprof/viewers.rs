//! Programs that show a picture or a listing, and the temporary files they are given.
//!
//! A browser may hand a file on and end at once, so what it was given stays for five seconds after it ended.
#![forbid(unsafe_code)]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{self, Command, Stdio};
use std::thread;
use std::time::Duration;

use super::streams::say;

/// Tried in this order.
const BROWSERS: [&str; 4] =
    ["/etc/alternatives/gnome-www-browser", "/etc/alternatives/x-www-browser", "google-chrome", "firefox"];

/// Temporary files of a run, removed when it ends.
#[derive(Debug, Default)]
pub struct TempFiles {
    next: usize,
    made: Vec<PathBuf>,
}

impl TempFiles {
    /// A name that was not given before.
    pub fn name(&mut self, extension: &str) -> PathBuf {
        let path = PathBuf::from(format!("/tmp/jeprof{}.{}.{extension}", process::id(), self.next));
        self.next += 1;
        self.made.push(path.clone());
        path
    }
}

impl Drop for TempFiles {
    fn drop(&mut self) {
        for path in &self.made {
            let _ = fs::remove_file(path);
        }
    }
}

/// Runs a viewer; true when it could be started and, if it is waited for, ended well.
fn run(program: &str, arguments: &[&str], is_waited_for: bool) -> bool {
    let mut command = Command::new(program);
    command.args(arguments);
    if is_waited_for {
        return command.status().is_ok_and(|status| status.success());
    }
    match command.stdin(Stdio::null()).spawn() {
        Ok(mut child) => {
            thread::spawn(move || child.wait());
            true
        }
        Err(_) => false,
    }
}

/// Shows a PostScript file. `waits`: until the viewer ends.
pub fn gv(path: &Path, scale: i64, waits: bool) {
    let shown = path.display().to_string();
    let knows_long_options = Command::new("gv")
        .arg("--version")
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .is_ok_and(|status| status.success());
    let started = if knows_long_options {
        run("gv", &[&format!("--scale={scale}"), "--noantialias", &shown], waits)
    } else {
        say(format_args!("gv -scale {scale}\n"));
        run("gv", &["-scale", &scale.to_string(), &shown], waits)
    };
    if !started {
        say(format_args!("Could not run gv.\n"));
    }
}

/// Shows a PDF file.
pub fn evince(path: &Path, waits: bool) {
    if !run("evince", &[&path.display().to_string()], waits) {
        say(format_args!("Could not run evince.\n"));
    }
}

/// Shows a page or picture in a browser.
pub fn web(path: &Path) {
    say(format_args!("Loading web page file:///{}\n", path.display()));
    let shown = path.display().to_string();
    if !BROWSERS.iter().any(|browser| run(browser, &[&shown], true)) {
        say(format_args!("Could not load web browser.\n"));
        return;
    }
    thread::sleep(Duration::from_secs(5));
}

/// Shows a callgrind file.
pub fn kcachegrind(path: &Path) {
    say(format_args!("Starting 'kcachegrind {} & '\n", path.display()));
    if !run("kcachegrind", &[&path.display().to_string()], false) {
        say(format_args!("Could not run kcachegrind.\n"));
    }
}
