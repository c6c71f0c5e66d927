//! One program image under a session, besides its samples: where its stacks and symbols are, what it did meanwhile.
//!
//! A process that executes another program becomes another member. What is known is read early and again when a stack
//! names memory that was not mapped then, because a process that has ended can no longer be asked.
#![forbid(unsafe_code)]

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::path::{Path, PathBuf};

use jeprobe_abi::drops::{DROP_REASONS, Reason};
use jeprobe_abi::root::{Counts, Root};

use crate::error::Error;
use crate::model::{Mapping, Mappings, Profile, Values};
use crate::proc::{exe, pids};
use crate::remote::target::{self, Target, Word};
use crate::track::live::Live;
use crate::track::seed::Seed;
use crate::units::{SampleInterval, counted};

/// See the module's text.
#[derive(Debug)]
pub struct Member {
    pub pid: u32,
    /// Command name, at most 15 bytes.
    pub name: String,
    /// Effective user and group, whose rights its files are written with.
    pub owner: (u32, u32),
    /// `None` when the process has no profile table or its memory may not be read.
    pub target: Option<Target>,
    /// Root of the table at the last reading.
    pub root: Option<Root>,
    /// Log2 of the sampling interval that was in force during the session.
    lg_sample: u32,
    /// Calls of `mallctl` by name.
    pub mallctls: BTreeMap<String, u64>,
    /// Calls of `mallctl` whose name nobody could read.
    pub unread_calls: u64,
    /// Heap files that the process wrote.
    pub dumps: u64,
    /// Children that it forked: the first few by pid and name, and how many.
    pub children: Vec<(u32, String)>,
    pub forks: u64,
    /// Losses of the process's own recorder before the session.
    losses_before: [u64; DROP_REASONS],
    counted_before: Option<CountedBefore>,
    /// Cumulative counts begin with the session and not with the process.
    counts_since_attach: bool,
    /// Lines about how it was collected.
    notes: Vec<String>,
    /// Now, and code of libraries that were unloaded since.
    mappings: Mappings,
    /// Files that were unloaded, in whose place there is other code now.
    overlaid: BTreeSet<PathBuf>,
    build_ids: HashMap<PathBuf, Vec<u8>>,
    looked_for_build_id: HashSet<PathBuf>,
    program: Option<PathBuf>,
}

/// Cumulative counts that were in a table before a session although the process does not keep them by itself: those of earlier
/// sessions.
#[derive(Debug)]
pub struct CountedBefore {
    /// Of the table; a reset forgets them.
    epoch: u32,
    /// By address of the context.
    freed: HashMap<u64, Counts>,
}

impl CountedBefore {
    /// To be read before the first probe: what is sampled while probes are set belongs to the session. `None` when there is no
    /// table that can be read.
    pub fn read(pid: u32) -> Option<CountedBefore> {
        let target = Target::open(pid).ok()?;
        let seed = Seed::read(&target.memory(), target.located.root).ok()?;
        Some(CountedBefore { epoch: seed.epoch, freed: seed.freed_before() })
    }
}

/// Children kept by name.
const NAMED_CHILDREN: usize = 8;

impl Member {
    /// Takes what can be had of the process; never fails, since samples without names are still samples.
    pub fn open(pid: u32) -> Member {
        let status = pids::status(pid).unwrap_or_default();
        let mut member = Member {
            pid,
            name: status.name,
            owner: (status.uid, status.gid),
            target: Target::open(pid).ok(),
            root: None,
            lg_sample: 0,
            mallctls: BTreeMap::new(),
            unread_calls: 0,
            dumps: 0,
            children: Vec::new(),
            forks: 0,
            losses_before: [0; DROP_REASONS],
            counted_before: None,
            counts_since_attach: true,
            notes: Vec::new(),
            mappings: Mappings::default(),
            overlaid: BTreeSet::new(),
            build_ids: HashMap::new(),
            looked_for_build_id: HashSet::new(),
            program: None,
        };
        member.refresh();
        member
    }

    /// Reads what the process has recorded; cumulative counts are what was live at the first reading and what came since, unless
    /// the process keeps them by itself. `None` when it has no table.
    pub fn seed(&mut self) -> Result<Option<Seed>, Error> {
        self.look_for_table();
        let Some(target) = &self.target else { return Ok(None) };
        let seed = Seed::read(&target.memory(), target.located.root);
        let mut seed = seed.map_err(|source| Error::Table { pid: self.pid, name: self.name.clone(), source })?;
        let root = target.root()?;
        if seed.is_cumulative {
            self.counts_since_attach = false;
        } else {
            let begun = || CountedBefore { epoch: seed.epoch, freed: seed.freed_before() };
            let before = self.counted_before.get_or_insert_with(begun);
            if before.epoch == seed.epoch {
                seed.count_from(&before.freed);
            }
        }
        if self.root.is_none() {
            // What it had recorded is part of the result, and so is what it had lost.
            self.losses_before = if seed.lives.is_empty() { root.drops } else { [0; DROP_REASONS] };
            self.lg_sample = root.lg_sample;
        }
        self.root = Some(root);
        Ok(Some(seed))
    }

    /// To be called before the first reading of an image that had somebody attached from its start.
    pub fn count_from_its_start(&mut self) {
        self.counted_before = Some(CountedBefore { epoch: 0, freed: HashMap::new() });
        self.counts_since_attach = false;
    }

    /// To be called before the first reading with what was read before the first probe.
    pub fn count_from(&mut self, before: CountedBefore) {
        self.counted_before = Some(before);
    }

    /// Changes the sampling interval; gives the one of before. Restoring it leaves [`Member::interval`] as it was.
    pub fn set_lg_sample(&mut self, lg: u32) -> Result<Option<u32>, Error> {
        self.look_for_table();
        let Some(target) = &self.target else { return Ok(None) };
        let before = target.set(Word::LgSample, lg)?;
        self.lg_sample = self.lg_sample.min(lg);
        if let Some(root) = &mut self.root {
            root.lg_sample = lg;
        }
        Ok(Some(before))
    }

    /// Mean bytes between the samples that are to come.
    pub fn interval_in_force(&self) -> SampleInterval {
        interval(self.root.map_or(self.lg_sample, |root| root.lg_sample))
    }

    /// Mean bytes between samples that the profile is told with, the shortest that was in force; 1 when the process does not
    /// say.
    pub fn interval(&self) -> SampleInterval {
        interval(self.lg_sample)
    }

    /// Reads the gauges and losses again.
    pub fn reread_root(&mut self) {
        self.look_for_table();
        if let Some(root) = self.target.as_ref().and_then(|target| target.root().ok()) {
            self.root = Some(root);
        }
    }

    /// A process that was met while it started may have the library by now.
    fn look_for_table(&mut self) {
        if self.target.is_none() {
            self.target = Target::open(self.pid).ok();
        }
    }

    /// Reads the mappings again; keeps the old ones when the process is gone.
    pub fn refresh(&mut self) {
        let maps = match exe::read_maps(self.pid) {
            Ok(maps) if !maps.entries.is_empty() => maps,
            _ => return,
        };
        let mut now = Mappings::default();
        for mapping in &maps.entries {
            now.add(Mapping::from(mapping));
        }
        self.overlaid.extend(now.keep_unloaded(&self.mappings));
        self.mappings = now;
        self.program = target::program(self.pid).or_else(|| self.program.take());
        for mapping in maps.entries.iter().filter(|m| m.is_file() && m.perms.exec) {
            let path = mapping.path().to_owned();
            if self.looked_for_build_id.insert(path.clone())
                && let Some(id) = target::build_id_of(self.pid, mapping)
            {
                self.build_ids.insert(path, id);
            }
        }
    }

    /// True when every frame lies in a mapping that is known.
    pub fn knows(&self, frames: &[u64]) -> bool {
        frames.iter().all(|&frame| self.mappings.find(frame).is_some())
    }

    /// Adds a line about how it was collected.
    pub fn note(&mut self, line: String) {
        self.notes.push(line);
    }

    pub fn note_child(&mut self, pid: u32) {
        self.forks += 1;
        if self.children.len() < NAMED_CHILDREN {
            let name = pids::status(pid).map(|status| status.name).unwrap_or_default();
            self.children.push((pid, name));
        }
    }

    /// Losses of the process's own recorder, of before the session where the result has samples of then.
    pub fn own_losses(&self) -> [u64; DROP_REASONS] {
        let now = self.root.map_or(self.losses_before, |root| root.drops);
        std::array::from_fn(|reason| now[reason].saturating_sub(self.losses_before[reason]))
    }

    /// The profile of the image, from what the tracker counted.
    pub fn profile(&self, live: Option<&Live>) -> Profile {
        let mut profile = Profile::new(self.interval());
        profile.set_losses(self.own_losses());
        if self.counts_since_attach {
            profile.set_allocated_since_attach();
        }
        let mut without_stack = 0;
        for (_, stack) in live.into_iter().flat_map(Live::stacks) {
            let cumulative = at_least(&stack.cumulative, &stack.current);
            let values = Values { current: stack.current.into(), cumulative: cumulative.into() };
            if values.is_zero() {
                continue;
            }
            if stack.frames.is_none() {
                without_stack += stack.current.objects;
            }
            profile.add_total(stack.frames.as_deref().unwrap_or(&[]), values);
        }
        if let Some([current, cumulative]) = live.map(|live| live.bases(self.interval()))
            && current.is_mixed()
        {
            profile.set_basis(false, current);
            profile.set_basis(true, cumulative);
            // Written at the finest interval, no estimate is lost to rounding.
            profile.set_interval(current.finest);
        }
        if without_stack > 0 {
            profile.add_loss(Reason::NoStack, without_stack);
        }
        if let Some(live) = live {
            let gaps = live.gaps;
            for (reason, count) in [(Reason::UnknownFree, gaps.unknown_frees), (Reason::TornRead, gaps.torn)] {
                if count > 0 {
                    profile.add_loss(reason, count);
                }
            }
            if gaps.missed_frees > 0 {
                let count = counted(gaps.missed_frees, "free", "frees");
                profile.add_note(format!("{count} never arrived; the sample ended at the next one of its address"));
            }
            if gaps.unweighted > 0 {
                let count = counted(gaps.unweighted, "sample", "samples");
                profile.add_note(format!("{count} without a weight, of which nothing is estimated"));
            }
            if gaps.overflowed > 0 {
                let count = counted(gaps.overflowed, "live sample", "live samples");
                profile.add_note(format!("{count} more than this program holds, missing here; raise --lg-sample"));
            }
        }
        for path in &self.overlaid {
            profile.add_note(overlaid(path));
        }
        for mapping in &self.mappings {
            let mut mapping = mapping.clone();
            if let Some(id) = self.build_ids.get(&mapping.path) {
                mapping.build_id.clone_from(id);
            }
            profile.add_mapping(mapping);
        }
        if let Some(root) = self.root
            && root.text_start < root.text_end
        {
            profile.add_allocator_text(root.text_start..root.text_end);
        }
        profile.set_process(self.pid, self.program.clone());
        for note in &self.notes {
            profile.add_note(note.clone());
        }
        profile
    }
}

/// What is to be said of a file that was unloaded.
pub fn overlaid(path: &Path) -> String {
    format!("{} was unloaded and other code is where it was: its stacks of before have names of that", path.display())
}

fn interval(lg_sample: u32) -> SampleInterval {
    SampleInterval(1_u64.checked_shl(lg_sample).unwrap_or(u64::MAX))
}

/// What is live was allocated; the two are read one after the other while the process runs.
fn at_least(cumulative: &Counts, current: &Counts) -> Counts {
    Counts {
        objects: cumulative.objects.max(current.objects),
        bytes: cumulative.bytes.max(current.bytes),
        weight_objects8: cumulative.weight_objects8.max(current.weight_objects8),
        weight_bytes: cumulative.weight_bytes.max(current.weight_bytes),
    }
}
