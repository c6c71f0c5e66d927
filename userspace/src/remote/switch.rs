//! Sampling switched on in a process from outside, and put back.
//!
//! Put back on drop as well, so an error on the way leaves no sampler running; not when this program is killed with
//! SIGKILL, which leaves the process sampling until it clears `prof.active` itself or a later switch ends.
#![forbid(unsafe_code)]

use super::target::{Target, Word};
use crate::error::Error;

/// See the module's text.
#[derive(Debug)]
pub struct Switch {
    target: Target,
    /// What was there before; `None` when there is nothing to put back.
    prof_active: Option<u32>,
    lg_sample: Option<u32>,
}

impl Switch {
    /// Sets the interval when one is given, then switches on.
    pub fn on(target: &Target, lg_sample: Option<u32>) -> Result<Switch, Error> {
        let mut switch = Switch { target: target.clone(), prof_active: None, lg_sample: None };
        if let Some(lg) = lg_sample {
            switch.lg_sample = Some(target.set(Word::LgSample, lg)?);
        }
        switch.prof_active = Some(target.set(Word::ProfActive, 1)?);
        Ok(switch)
    }

    /// Sampling was on before.
    pub fn was_on(&self) -> bool {
        self.prof_active != Some(0)
    }

    /// Switches on again when someone switched off meanwhile: the process itself, or another command that put back what
    /// it had found. Off is then what was there before, and what is put back in the end.
    pub fn keep_on(&mut self, prof_active: u32) -> Result<(), Error> {
        if prof_active == 0 && self.prof_active.is_some() {
            self.prof_active = Some(self.target.set(Word::ProfActive, 1)?);
        }
        Ok(())
    }

    /// Looks whether it is still on, see [`Switch::keep_on`].
    pub fn look(&mut self) -> Result<(), Error> {
        let prof_active = self.target.root()?.prof_active;
        self.keep_on(prof_active)
    }

    /// Puts both words back.
    pub fn off(&mut self) -> Result<(), Error> {
        if let Some(before) = self.prof_active.take() {
            self.target.set(Word::ProfActive, before)?;
        }
        if let Some(before) = self.lg_sample.take() {
            self.target.set(Word::LgSample, before)?;
        }
        Ok(())
    }

    /// Forgets what was before: the image is gone.
    pub fn disarm(&mut self) {
        self.prof_active = None;
        self.lg_sample = None;
    }
}

impl Drop for Switch {
    fn drop(&mut self) {
        // Reached on errors, which are reported already.
        let _second_error = self.off();
    }
}
