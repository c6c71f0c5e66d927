//! A process that is watched: its profile table is read now and then, each reading becomes a profile of the series.
//!
//! ```text
//! switch on ─► read, name, push ─► wait ─► … ─► the page is closed: switched back
//!                                          └─► the process ends: what was read stays
//! ```
//!
//! A reading with its names takes at most a tenth of the time. Sampling is switched on for as long as the server runs, when it
//! was not on.
#![forbid(unsafe_code)]

use std::os::fd::AsFd as _;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

use super::app::App;
use super::dataset::Dataset;
use crate::error::Error;
use crate::proc::exe;
use crate::remote::switch::Switch;
use crate::remote::target::Target;
use crate::remote::unsampled::Unsampled;
use crate::symbolize::{Sources, jit, known};
use crate::wait::{PidFd, ready};

const READ_EVERY: Duration = Duration::from_secs(2);
const READ_SHARE: u32 = 10;
/// Between two looks at whether the process is still there.
const LOOK_EVERY: Duration = Duration::from_millis(500);

/// A process and the switch of its sampling.
#[derive(Debug)]
pub struct Live {
    target: Target,
    switch: Switch,
    unsampled: Unsampled,
    sources: Sources,
    began: Instant,
    readings: u64,
}

impl Live {
    /// Opens the process and switches its sampling on.
    pub fn open(pid: u32) -> Result<Live, Error> {
        let target = Target::open(pid)?;
        let mut unsampled = Unsampled::default();
        unsampled.look(&target.read()?);
        let switch = Switch::on(&target, None)?;
        let root = exe::root_of(target.pid);
        let sources = Sources { root: Some(root), ..Sources::default() };
        Ok(Live { target, switch, unsampled, sources, began: Instant::now(), readings: 0 })
    }

    pub fn pid(&self) -> u32 {
        self.target.pid
    }

    pub fn name(&self) -> &str {
        &self.target.name
    }

    /// Sampling was on before.
    pub fn was_on(&self) -> bool {
        self.switch.was_on()
    }

    /// Takes one reading.
    pub fn read(&mut self, app: &App) -> Result<(), Error> {
        let reading = self.target.read()?;
        self.switch.keep_on(reading.root.prof_active)?;
        self.unsampled.look(&reading);
        let mut profile = reading.profile;
        self.unsampled.tell(&mut profile);
        jit::add_names(&mut profile, self.target.pid, self.sources.root.as_deref());
        let symbols = known::name_all(&profile, &self.sources);
        let seconds = self.began.elapsed().as_secs_f64();
        let name = if self.readings == 0 { "start".to_owned() } else { format!("+{seconds:.0} s") };
        app.push(Dataset::new(self.readings, name, seconds, &profile, &symbols));
        self.readings += 1;
        Ok(())
    }

    /// Reads until the other end of `stop` goes away, or the process does, which is told; then switches sampling back.
    pub fn watch(mut self, app: &Arc<App>, stop: &Receiver<()>, tell: impl FnOnce(&str)) {
        let mut pause = READ_EVERY;
        let mut next = Instant::now() + pause;
        let pidfd = PidFd::open(self.pid()).ok();
        while let Err(RecvTimeoutError::Timeout) = stop.recv_timeout(pause.min(LOOK_EVERY)) {
            let now = Instant::now();
            // Its end is told at once; readings of a large process are far between.
            if now < next && !pidfd.as_ref().is_some_and(PidFd::has_ended) {
                continue;
            }
            if let Err(error) = self.read(app) {
                let (pid, name) = (self.pid(), self.name());
                // One that ends lets go of its memory a moment before.
                let has_ended = pidfd
                    .as_ref()
                    .is_none_or(|pidfd| ready(&[pidfd.as_fd()], Some(LOOK_EVERY)).is_ok_and(|ended| ended == [true]));
                let why = if has_ended { format!("process {pid} ({name}) has ended") } else { error.to_string() };
                let line = format!("{why}; the page shows what was read last");
                tell(&line);
                app.watch(Err(line));
                // There is no one left to switch back.
                self.switch.disarm();
                return;
            }
            pause = READ_EVERY.max(now.elapsed() * READ_SHARE);
            next = Instant::now() + pause;
        }
    }
}
