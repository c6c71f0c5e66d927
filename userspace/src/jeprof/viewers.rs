//! Programs that show a picture or a listing.
//!
//! A browser may hand a file on and end at once, so a picture that was given to one stays for five seconds after that.
#![forbid(unsafe_code)]

use std::path::Path;
use std::process::{Command, Stdio};
use std::thread;
use std::time::Duration;

use crate::memory;

use super::streams::say;
use super::temp;

/// Tried in this order.
const BROWSERS: [&str; 4] =
    ["/etc/alternatives/gnome-www-browser", "/etc/alternatives/x-www-browser", "google-chrome", "firefox"];

/// Seconds that a browser has to read a file that it was given.
const READ_WITHIN: u64 = 5;

/// Runs a viewer; true when it could be started and, if it is waited for, ended well.
fn run(program: &str, arguments: &[&str], is_waited_for: bool) -> bool {
    memory::settle();
    let mut command = Command::new(program);
    command.args(arguments);
    if is_waited_for {
        return temp::while_watched(|| command.status()).is_ok_and(|status| status.success());
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
    }
}

/// Has a file removed when a browser has read it, though this run ends before.
pub fn remove_later(path: &Path) {
    let started = Command::new("/bin/sh")
        .args(["-c", &format!("sleep {READ_WITHIN}; exec rm -f -- \"$1\""), "sh"])
        .arg(path)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn();
    if started.is_ok() {
        temp::forget(path);
    } else {
        thread::sleep(Duration::from_secs(READ_WITHIN));
    }
}

/// Shows a callgrind file.
pub fn kcachegrind(path: &Path) {
    say(format_args!("Starting 'kcachegrind {} & '\n", path.display()));
    if !run("kcachegrind", &[&path.display().to_string()], false) {
        say(format_args!("Could not run kcachegrind.\n"));
    }
}
