//! Temporary files, and what a signal that ends the run does about them.
//!
//! | signal | what happens |
//! |---|---|
//! | SIGINT | files removed, closing advice, exit code 1; ignored while a viewer in the foreground runs, which has it too |
//! | SIGTERM, SIGHUP | files removed; the run ends by the signal |
//!
//! All files of the run are on one list, whoever made them: pictures for viewers, pages, and profiles that have not
//! arrived whole. Whoever makes one holds the list meanwhile, and a signal keeps it until the process has ended, so no
//! file is made behind its back.
#![forbid(unsafe_code)]

use std::fs::{self, File};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::process;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, Once, OnceLock, PoisonError};
use std::thread;

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::flag;
use signal_hook::iterator::Signals;
use signal_hook::low_level::emulate_default_handler;

use super::streams::say;

/// What is left to do when the run ends, at its end or by a signal.
#[derive(Debug, Default)]
struct Ending {
    files: Vec<PathBuf>,
    /// Names in the temporary directory that were given away.
    given: usize,
    /// Closing advice.
    advice: String,
}

static ENDING: Mutex<Ending> = Mutex::new(Ending { files: Vec::new(), given: 0, advice: String::new() });

/// Whether SIGINT ends the run in its handler, with exit code 1: as long as there is nothing else to do.
static ENDS_AT_ONCE: OnceLock<Arc<AtomicBool>> = OnceLock::new();

/// A viewer runs in the foreground. Only a hint to the signals' thread: `Relaxed`, nothing is published with it.
static IS_WATCHED: AtomicBool = AtomicBool::new(false);

fn ending() -> MutexGuard<'static, Ending> {
    ENDING.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Ending {
    fn remove_files(&mut self) {
        for path in self.files.drain(..) {
            // It may never have been made.
            let _gone = fs::remove_file(path);
        }
    }
}

/// From here on signals end the run as the table says. A thread for what is to be done first starts when there is something.
pub fn watch_signals() {
    let ends = ENDS_AT_ONCE.get_or_init(|| Arc::new(AtomicBool::new(true)));
    let _as_it_is = flag::register_conditional_shutdown(SIGINT, 1, ends.clone());
}

/// From here on signals that end the run clean up first. Without a thread for them they end it as they are.
fn clean_up_first() {
    static STARTED: Once = Once::new();
    STARTED.call_once(start_thread);
}

fn start_thread() {
    let Ok(mut signals) = Signals::new([SIGINT, SIGTERM, SIGHUP]) else { return };
    if let Some(ends) = ENDS_AT_ONCE.get() {
        ends.store(false, Ordering::SeqCst);
    }
    let _without_it = thread::Builder::new().name("signals".into()).spawn(move || {
        for signal in signals.forever() {
            if signal == SIGINT && IS_WATCHED.load(Ordering::Relaxed) {
                continue;
            }
            // Held until the process is gone.
            let mut ending = ending();
            ending.remove_files();
            if signal == SIGINT {
                say(format_args!("{}", ending.advice));
                process::exit(1);
            }
            let _ends = emulate_default_handler(signal);
            process::exit(1);
        }
    });
}

/// Runs a viewer that is waited for.
pub fn while_watched<T>(run: impl FnOnce() -> T) -> T {
    clean_up_first();
    IS_WATCHED.store(true, Ordering::Relaxed);
    let result = run();
    IS_WATCHED.store(false, Ordering::Relaxed);
    result
}

/// What is said about fetched profiles at the end.
pub fn set_advice(advice: String) {
    if !advice.is_empty() {
        clean_up_first();
    }
    ending().advice = advice;
}

/// Removes all temporary files and gives the closing advice.
pub fn finish() -> String {
    let mut ending = ending();
    ending.remove_files();
    std::mem::take(&mut ending.advice)
}

/// Makes a file of its own for a viewer.
pub fn save(extension: &str, bytes: &[u8]) -> Result<PathBuf, (PathBuf, io::Error)> {
    clean_up_first();
    let mut ending = ending();
    let path = PathBuf::from(format!("/tmp/jeprof{}.{}.{extension}", process::id(), ending.given));
    ending.given += 1;
    // Never a file or link that somebody else laid there.
    let made = File::create_new(&path);
    if made.is_ok() {
        ending.files.push(path.clone());
    }
    drop(ending);
    match made.and_then(|mut file| file.write_all(bytes)) {
        Ok(()) => Ok(path),
        Err(error) => Err((path, error)),
    }
}

/// Makes a file that is to become another when it is whole.
pub fn part(path: &Path) -> io::Result<File> {
    clean_up_first();
    let mut ending = ending();
    let file = File::create(path)?;
    ending.files.push(path.to_owned());
    Ok(file)
}

/// Takes a file off the list: it has another name now, or somebody else removes it.
pub fn forget(path: &Path) {
    ending().files.retain(|known| known != path);
}

/// Removes one file now.
pub fn remove(path: &Path) {
    forget(path);
    let _gone = fs::remove_file(path);
}
