//! What takes longer than a second says so, on a terminal: one line on stderr that is rewritten, and gone at the end.
//!
//! ```text
//! reading server.heap: 41 %, 3 s
//! ```
//!
//! A thread of its own writes, so that the work is not slowed down; where stderr is no terminal there is neither thread nor
//! line. Of work within work the inner one is shown. Nothing else is written to stderr meanwhile by those who use it.
#![forbid(unsafe_code)]

use std::io::{self, IsTerminal as _, Write};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// Shorter work says nothing.
const PATIENCE: Duration = Duration::from_secs(1);
/// Between two lines.
const PERIOD: Duration = Duration::from_millis(250);

/// Work that is being done; the last is shown.
static OPEN: Mutex<Vec<Arc<State>>> = Mutex::new(Vec::new());

fn open() -> MutexGuard<'static, Vec<Arc<State>>> {
    OPEN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Work that ended last.
static ENDED: Mutex<Option<Arc<State>>> = Mutex::new(None);

/// Tells what is being done, as it was named, and `while`; else what was done last, and `after`. `None` when there was
/// nothing, or that is about to change. Allocates nothing.
pub fn innermost<R>(tell: impl FnOnce(Option<(&'static str, &str)>) -> R) -> R {
    let (open, ended) = (OPEN.try_lock().ok(), ENDED.try_lock().ok());
    let open = open.as_deref().and_then(|open| open.last()).map(|state| ("while", state.what.as_str()));
    let ended = ended.as_deref().and_then(Option::as_ref).map(|state| ("after", state.what.as_str()));
    tell(open.or(ended))
}

struct State {
    number: u64,
    what: String,
    done: AtomicU64,
    /// 0: unknown.
    total: u64,
    ended: Mutex<bool>,
    end: Condvar,
}

/// Work that is being done, until it is dropped.
pub struct Working {
    state: Arc<State>,
    writer: Option<JoinHandle<()>>,
}

impl Working {
    /// `what`: lower case, as in "reading FILE". `total`: units of the whole work; 0 when it is not known.
    pub fn on(what: impl Into<String>, total: u64) -> Working {
        let to = io::stderr().is_terminal().then(io::stderr);
        Working::writing(what.into(), total, to, PATIENCE)
    }

    fn writing(what: String, total: u64, to: Option<impl Write + Send + 'static>, patience: Duration) -> Working {
        static NUMBER: AtomicU64 = AtomicU64::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let (done, ended, end) = (AtomicU64::new(0), Mutex::new(false), Condvar::new());
        let state = Arc::new(State { number, what, done, total, ended, end });
        let shared = state.clone();
        open().push(state.clone());
        let writer = to.and_then(|to| {
            thread::Builder::new().name("progress".into()).spawn(move || shared.write(to, patience)).ok()
        });
        Working { state, writer }
    }

    /// Units done so far.
    pub fn done(&self, units: u64) {
        // Only shown: nothing is published by it.
        self.state.done.store(units, Ordering::Relaxed);
    }
}

impl Drop for Working {
    fn drop(&mut self) {
        if let Some(writer) = self.writer.take() {
            *self.state.ended.lock().unwrap_or_else(PoisonError::into_inner) = true;
            self.state.end.notify_one();
            let _a_lost_line_is_no_failure = writer.join();
        }
        open().retain(|state| state.number != self.state.number);
        *ENDED.lock().unwrap_or_else(PoisonError::into_inner) = Some(self.state.clone());
    }
}

impl State {
    fn write(&self, mut to: impl Write, patience: Duration) {
        let started = Instant::now();
        let mut wait = patience;
        let mut is_shown = false;
        let mut ended = self.ended.lock().unwrap_or_else(PoisonError::into_inner);
        while !*ended {
            let (guard, timeout) = self.end.wait_timeout(ended, wait).unwrap_or_else(PoisonError::into_inner);
            ended = guard;
            let is_innermost = || open().last().is_some_and(|state| state.number == self.number);
            if timeout.timed_out() && !*ended && is_innermost() {
                let _terminal_gone = write!(to, "\r\x1b[K{}", self.line(started.elapsed())).and_then(|()| to.flush());
                is_shown = true;
            }
            wait = PERIOD;
        }
        if is_shown {
            let _terminal_gone = write!(to, "\r\x1b[K").and_then(|()| to.flush());
        }
    }

    fn line(&self, elapsed: Duration) -> String {
        let seconds = elapsed.as_secs();
        match (self.done.load(Ordering::Relaxed), self.total) {
            (0, _) | (_, 0) => format!("{}: {seconds} s", self.what),
            (done, total) => {
                format!("{}: {} %, {seconds} s", self.what, u128::from(done.min(total)) * 100 / u128::from(total))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    /// Passes on what is written.
    struct Passes(mpsc::Sender<String>);

    impl Write for Passes {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.send(String::from_utf8_lossy(bytes).into_owned()).map_err(io::Error::other)?;
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn long_work_says_how_far_it_is_and_cleans_up() {
        let (to, said) = mpsc::channel();
        let working = Working::writing("reading x".into(), 200, Some(Passes(to)), Duration::ZERO);
        working.done(50);
        let mut text = String::new();
        while !text.contains("25 %, 0 s") {
            text.push_str(&said.recv().expect("a line"));
        }
        assert!(text.contains("reading x: "), "{text:?}");
        drop(working);
        text.extend(said);
        assert!(text.ends_with("\r\x1b[K"), "{text:?}");
    }

    #[test]
    fn work_within_work_is_shown_alone() {
        let quick = Duration::from_millis(1);
        let (to, outer_said) = mpsc::channel();
        let (inner_to, inner_said) = mpsc::channel();
        let mut to = Some(Passes(to));
        let outer = Working::writing("outer".into(), 0, to.take(), Duration::from_millis(50));
        let inner = Working::writing("inner".into(), 0, Some(Passes(inner_to)), quick);
        assert!(inner_said.recv().is_ok());
        drop(inner);
        assert!(outer_said.recv().is_ok(), "it is shown again");
        drop(outer);
    }

    #[test]
    fn what_is_done_can_be_asked() {
        let named = |name: &str| OPEN.lock().is_ok_and(|open| open.iter().any(|state| state.what == name));
        let working = Working::on("reading what no other test reads", 0);
        assert!(named("reading what no other test reads"));
        drop(working);
        assert!(!named("reading what no other test reads"));
        innermost(|_any| ());
    }

    #[test]
    fn short_work_says_nothing() {
        let (to, said) = mpsc::channel();
        drop(Working::writing("reading x".into(), 0, Some(Passes(to)), Duration::from_hours(1)));
        assert_eq!(said.iter().count(), 0);
    }
}
