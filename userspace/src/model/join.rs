//! Several profiles as one: address spaces laid side by side, threads numbered anew, names beside each other.
//!
//! [`Profile::adopt`] takes over what another profile knows of stacks and addresses, [`Profile::merge`] its values, too.
#![forbid(unsafe_code)]

use std::collections::{BTreeMap, HashMap};

use super::mapping::Relocation;
use super::profile::{MADE_UP, Profile, Thread, Values};
use super::stack::{StackId, ThreadUid, call_site};

impl Profile {
    /// Labels every sample: all threads get the label, and stacks of which no thread is known become the share of a
    /// thread of their own.
    pub fn label_all(&mut self, labels: &[(String, String)]) {
        let mut shared = vec![false; self.totals.len()];
        for share in &self.shares {
            shared[share.stack.index()] = true;
        }
        // A number that no thread had: its name is empty on purpose.
        let unknown = ThreadUid(self.threads.last_key_value().map_or(0, |(uid, _)| uid.0.saturating_add(1)));
        for id in self.stacks.ids().filter(|id| !shared[id.index()]) {
            self.add_share(id, unknown, self.totals[id.index()]);
        }
        if let Some(thread) = self.threads.get_mut(&unknown) {
            thread.labels.push(("thread".to_owned(), String::new()));
        }
        for thread in self.threads.values_mut() {
            for (key, value) in labels {
                if !thread.labels.iter().any(|(known, _)| known == key) {
                    thread.labels.push((key.clone(), value.clone()));
                }
            }
        }
    }

    /// Knows the mappings and stacks of `other` from now on, without its values. Addresses move into this profile's
    /// space where the two differ. Gives the id here of each of its stacks, in the order of its ids.
    pub fn adopt(&mut self, other: &Profile) -> Vec<StackId> {
        let moved = Relocation::plan(&mut self.mappings, &other.mappings);
        for range in &other.allocator_text {
            let start = moved.apply(range.start);
            self.add_allocator_text(start..start.saturating_add(range.end - range.start));
        }
        let renamed = self.adopt_names(other, &moved);
        let mut stack = Vec::new();
        let mut ids = Vec::with_capacity(other.totals.len());
        for id in other.stacks.ids() {
            stack.clear();
            // A return address may lie just past the end of its mapping; the call before it does not.
            stack.extend(other.frames(id).iter().enumerate().map(|(depth, &avma)| {
                let site = call_site(depth, avma);
                let here = renamed.get(&site).copied().unwrap_or_else(|| moved.apply(site));
                here.wrapping_add(avma.wrapping_sub(site))
            }));
            ids.push(self.add_total(&stack, Values::default()));
        }
        ids
    }

    /// Takes over names. Where another name stands at the address already, as at addresses that a reader made up, the
    /// other's gets an address of its own: the result.
    fn adopt_names(&mut self, other: &Profile, moved: &Relocation) -> HashMap<u64, u64> {
        let mut renamed = HashMap::new();
        let mut next = self.names.keys().chain(other.names.keys()).map(|site| moved.apply(*site)).max().unwrap_or(0);
        next = next.max(MADE_UP);
        for (&site, functions) in &other.names {
            let here = moved.apply(site);
            match self.names.get(&here) {
                Some(known) if known != functions => {
                    next += 2;
                    renamed.insert(site, next);
                    self.names.insert(next, functions.clone());
                }
                Some(_) => {}
                None => drop(self.names.insert(here, functions.clone())),
            }
        }
        renamed
    }

    /// Adds everything of `other`, as [`Profile::adopt`] moves it. Threads keep their number when they are the same
    /// (number, tid and name) and get a new one otherwise. Pid and program stay only when both agree.
    pub fn merge(&mut self, other: &Profile) {
        let is_first = self.totals.is_empty() && self.mappings.is_empty();
        self.bases = self.bases_with(other);
        let uids = self.adopt_threads(other);
        let ids = self.adopt(other);
        for (id, values) in ids.iter().zip(&other.totals) {
            self.add_to(*id, *values);
        }
        for share in &other.shares {
            self.add_share(ids[share.stack.index()], uids[&share.thread], share.values);
        }
        for (slot, count) in self.losses.iter_mut().zip(other.losses) {
            *slot = slot.saturating_add(count);
        }
        for (name, count) in &other.counters {
            self.add_counter(name, *count);
        }
        for note in &other.notes {
            self.add_note(note.clone());
        }
        for (key, value) in &other.configuration {
            if !self.configuration.iter().any(|(known, _)| known == key) {
                self.configuration.push((key.clone(), value.clone()));
            }
        }
        if is_first {
            self.interval = other.interval;
        } else if self.interval != other.interval {
            // Written at the finest interval, no estimate is lost to rounding.
            let (fine, coarse) = (self.interval.min(other.interval), self.interval.max(other.interval));
            self.add_note(if fine.0 <= 1 {
                format!("merged from profiles that count every object and such with one sample per {} bytes", coarse.0)
            } else {
                format!("merged from profiles with one sample per {} and {} bytes", fine.0, coarse.0)
            });
            self.interval = fine;
        }
        if is_first {
            self.kind = other.kind.clone();
            (self.pid, self.program) = (other.pid, other.program.clone());
        } else {
            self.pid = self.pid.filter(|pid| Some(*pid) == other.pid);
            self.program = self.program.take().filter(|program| Some(program) == other.program.as_ref());
        }
    }

    fn adopt_threads(&mut self, other: &Profile) -> HashMap<ThreadUid, ThreadUid> {
        let past = |threads: &BTreeMap<ThreadUid, Thread>| {
            threads.last_key_value().map_or(0, |(uid, _)| uid.0.saturating_add(1))
        };
        let mut next = past(&self.threads).max(past(&other.threads));
        let mut uids = HashMap::new();
        for (&uid, thread) in &other.threads {
            let mut thread = thread.clone();
            let here = match self.threads.get(&uid) {
                Some(known) if *known != thread => {
                    if thread.name.is_empty() {
                        // The number by which its own process knows it.
                        thread.name = format!("t{}", uid.0);
                    }
                    next = next.saturating_add(1);
                    ThreadUid(next - 1)
                }
                _ => uid,
            };
            self.threads.insert(here, thread);
            uids.insert(uid, here);
        }
        uids
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::Mapping;
    use crate::units::{Count, EstCount, SampleInterval, Sums};
    use jeprobe_abi::drops::Reason;

    fn sums(objects: u64, bytes: u64) -> Sums {
        Sums {
            raw: Count { objects, bytes },
            est: EstCount { objects: objects as f64 * 2.0, bytes: bytes as f64 * 2.0 },
        }
    }

    fn profile(start: u64) -> Profile {
        let mut profile = Profile::new(SampleInterval(1024));
        profile.add_mapping(Mapping {
            start,
            end: start + 0x1000,
            permissions: *b"r-xp",
            path: "/lib".into(),
            ..Mapping::default()
        });
        profile.add_thread(ThreadUid(0), Thread { tid: Some(7), name: "main".into(), ..Thread::default() });
        profile.add(&[start + 1, start + 0x1000], Some(ThreadUid(0)), sums(1, 10), Sums::ZERO);
        profile.add(&[start + 1, start + 0x1000], Some(ThreadUid(1)), sums(2, 20), Sums::ZERO);
        profile.add_loss(Reason::RingFull, 3);
        profile
    }

    #[test]
    fn totals_are_sums_over_threads() {
        let profile = profile(0x1000);
        assert_eq!(profile.stack_count(), 1);
        assert_eq!(profile.sum().current, sums(3, 30));
        assert_eq!(profile.shares().len(), 2);
    }

    #[test]
    fn merging_another_address_space_joins_equal_stacks() {
        let mut merged = profile(0x1000);
        merged.merge(&profile(0x8000));
        assert_eq!(merged.stack_count(), 1, "a return address at the end of its mapping moves with it");
        assert_eq!(merged.sum().current, sums(6, 60));
        assert_eq!(merged.losses().collect::<Vec<_>>(), [(Reason::RingFull, 6)]);
        assert_eq!(merged.threads().count(), 2);
    }

    #[test]
    fn threads_that_differ_get_a_new_number() {
        let mut merged = profile(0x1000);
        let mut other = profile(0x1000);
        other.add_thread(ThreadUid(0), Thread { tid: Some(8), name: "other".into(), ..Thread::default() });
        merged.merge(&other);
        let names: Vec<_> = merged.threads().map(|(uid, thread)| (uid.0, thread.name.as_str())).collect();
        assert_eq!(names, [(0, "main"), (1, ""), (2, "other")]);
        assert_eq!(merged.shares().len(), 3);
    }
}
