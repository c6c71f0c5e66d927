//! The picture of the statistics that `stats.*` shows, and its number.
//!
//! | state | who may read and write | moved on by |
//! |---|---|---|
//! | number 0: none taken | lock:Ctl | the first look or the first write of `epoch` |
//! | number n: the n-th picture | lock:Ctl | a write of `epoch` |
//!
//! The lock is the outermost one: taking a picture takes the locks of everything counted, one after the other.
#![forbid(unsafe_code)]

use crate::prof;
use crate::stats::{self, Snapshot};
use crate::sync::mutex::Mutex;
use crate::sync::rank::Rank;

struct Picture {
    number: u64,
    /// `None` only while `number` is 0.
    figures: Option<Snapshot>,
}

static PICTURE: Mutex<Picture> = Mutex::new(Rank::Ctl, Picture { number: 0, figures: None });

impl Picture {
    fn take(&mut self) -> Snapshot {
        let figures = stats::snapshot();
        prof::set_gauges(
            figures.allocated as u64,
            figures.active as u64,
            figures.resident as u64,
            figures.mapped as u64,
        );
        self.number = self.number.wrapping_add(1);
        self.figures = Some(figures);
        figures
    }
}

/// Takes a new picture.
pub(crate) fn refresh() {
    PICTURE.lock().take();
}

/// Number of the present picture; the first is 1.
pub(crate) fn number() -> u64 {
    let mut picture = PICTURE.lock();
    if picture.figures.is_none() {
        picture.take();
    }
    picture.number
}

/// The present picture.
pub(crate) fn figures() -> Snapshot {
    let mut picture = PICTURE.lock();
    match picture.figures {
        Some(figures) => figures,
        None => picture.take(),
    }
}

pub(crate) fn prefork() {
    PICTURE.lock_for_fork();
}

pub(crate) fn postfork_parent() {
    PICTURE.unlock_for_fork();
}

pub(crate) fn postfork_child() {
    PICTURE.reset_in_child();
}
