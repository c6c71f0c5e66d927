//! What Go adds to the text of its profiles (`/debug/pprof/heap?debug=1` and others).
//!
//! ```text
//! 2: 4096 [3: 6144] @ 0x4b3f57 0x4b3f58 0x4b3f2d           return addresses, the youngest too
//! #<tab>0x4b3f56<tab>main.leaf+0x76<tab><tab>/src/main.go:6        the frames that have names, one less each
//! #<tab>0x4b3f57<tab>main.alloc+0x77<tab><tab>/src/main.go:7
//!
//! # runtime.MemStats                                       at the end of a heap profile
//! # Alloc = 4404280
//! ```
//!
//! Go keeps no list of mapped files, so these names are all that there are. Its samples are drawn by a Poisson process at half
//! the number behind `heap/` (`runtime/pprof`, `writeHeapInternal` and `scaleHeapSample`), where gperftools means another one.
#![forbid(unsafe_code)]

use std::collections::HashSet;

use memchr::memmem;

use crate::digits::hex;
use crate::model::{Named, Profile, call_site};

/// The title of what stands at the end of a heap profile.
const STATISTICS: &[u8] = b"# runtime.MemStats";

/// Whether Go wrote the text.
pub(super) fn is_go(text: &[u8]) -> bool {
    memmem::find(text, b"\n#\t0x").is_some() || memmem::find(text, STATISTICS).is_some()
}

/// Makes a stack of Go one as it is elsewhere, where the youngest address is no return address.
pub(super) fn without_return_of_leaf(stack: &mut [u64]) {
    if let Some(leaf) = stack.first_mut() {
        *leaf = leaf.wrapping_sub(1);
    }
}

/// Collects the names of one stack after the other.
#[derive(Debug, Default)]
pub(super) struct Names {
    /// By address as stacks mean it, innermost function first.
    found: Vec<(u64, Named)>,
    /// What may have names: the addresses of the last stack, once it has a line.
    sites: HashSet<u64>,
    has_any: bool,
    has_statistics: bool,
}

impl Names {
    /// Takes a line that opens with `#`, which belongs to the last stack.
    pub(super) fn line(&mut self, line: &[u8], stack: &[u64]) {
        self.has_statistics |= line == STATISTICS;
        let Some((address, named)) = frame(line) else { return };
        self.has_any = true;
        if self.sites.is_empty() {
            self.sites.extend(stack.iter().enumerate().map(|(depth, &avma)| call_site(depth, avma)));
        }
        if self.sites.contains(&address) {
            self.found.push((address, named));
        }
    }

    /// Gives the profile what was found below the last stack. An address keeps the names that it has.
    pub(super) fn give(&mut self, profile: &mut Profile) {
        self.sites.clear();
        let found = std::mem::take(&mut self.found);
        for functions in found.chunk_by(|a, b| a.0 == b.0) {
            let site = functions[0].0;
            if !profile.names().contains_key(&site) {
                profile.set_names(site, functions.iter().map(|(_, named)| named.clone()).collect());
            }
        }
    }

    /// Says when a heap profile ends before its end.
    pub(super) fn finish(&self, profile: &mut Profile) {
        if self.has_any && !self.has_statistics {
            profile.add_note("the file was cut short: Go's memory statistics, which end it, are missing");
        }
    }
}

/// `# ADDRESS FUNCTION+OFFSET FILE:LINE`, with tabs between them.
fn frame(line: &[u8]) -> Option<(u64, Named)> {
    let text = std::str::from_utf8(line.strip_prefix(b"#")?).ok()?;
    let mut words = text.split('\t').map(str::trim).filter(|word| !word.is_empty());
    let (address, function, place) = (words.next()?, words.next()?, words.next());
    let digits = address.strip_prefix("0x")?.as_bytes();
    let (address, length) = hex(digits);
    if length == 0 || length != digits.len() {
        return None;
    }
    let name = function.rsplit_once("+0x").map_or(function, |(name, _)| name);
    let (file, line) = place.and_then(|place| place.rsplit_once(':')).unwrap_or_default();
    let (short, full, file) = (name.to_owned(), name.to_owned(), file.to_owned());
    Some((address, Named { short, full, file, line: line.parse().unwrap_or(0) }.printable()))
}

#[cfg(test)]
mod tests {
    use crate::input::heap_v2::read;
    use crate::model::Profile;

    const HEAP: &str = "heap profile: 3: 12288 [4: 14336] @ heap/8192
2: 8192 [3: 10240] @ 0x4b3f57 0x4b3f58 0x4b3f2d 0x461421
#\t0x4b3f56\tmain.leaf+0x76\t\t/tmp/a b/main.go:6
#\t0x4b3f57\tmain.(*T[...]).alloc+0x77\t/tmp/a b/main.go:7
#\t0x4b3f2c\tmain.inner+0x4c\t\t/tmp/a b/main.go:11
#\t0x4b3f2c\tmain.main+0x4c\t\t/tmp/a b/main.go:12

1: 4096 [1: 4096] @ 0x4b3f57
#\t0x4b3f56\tmain.other+0x76\t\t/tmp/other.go:1


# runtime.MemStats
# Alloc = 2262264
# PauseNs = [0 1 2]
# MaxRSS = 8568832
";

    fn names(profile: &Profile, site: u64) -> Vec<String> {
        let show = |functions: &Vec<crate::model::Named>| {
            functions.iter().map(|named| format!("{} {}:{}", named.short, named.file, named.line)).collect()
        };
        profile.names().get(&site).map(show).unwrap_or_default()
    }

    #[test]
    fn frames_have_the_names_below_their_stack() {
        let profile = read(HEAP.as_bytes()).expect("whole");
        assert_eq!(profile.stack_count(), 2);
        assert_eq!(names(&profile, 0x4b3f56), ["main.leaf /tmp/a b/main.go:6"], "the first name of an address stays");
        assert_eq!(names(&profile, 0x4b3f57), ["main.(*T[...]).alloc /tmp/a b/main.go:7"]);
        assert_eq!(names(&profile, 0x461420), [""; 0], "frames that Go hides");
        assert_eq!(
            names(&profile, 0x4b3f2c),
            ["main.inner /tmp/a b/main.go:11", "main.main /tmp/a b/main.go:12"],
            "inlined calls, innermost first"
        );
        assert_eq!(profile.notes(), [""; 0]);
    }

    #[test]
    fn samples_are_unbiased_as_go_does() {
        let sum = read(HEAP.as_bytes()).expect("whole").sum().current.est;
        // Both records hold objects of 4096 bytes, sampled every 4096 bytes on average.
        let factor = 1.0 / (1.0 - (-1.0_f64).exp());
        assert!((sum.bytes - 12288.0 * factor).abs() < 1e-6, "{sum:?}");
        let other = HEAP.lines().filter(|line| !line.starts_with('#')).collect::<Vec<_>>().join("\n");
        let sum = read(other.as_bytes()).expect("gperftools'").sum().current.est;
        assert!((sum.bytes - 12288.0).abs() < 1e-6, "{sum:?}");
    }

    #[test]
    fn a_cut_is_told_and_contention_has_names_too() {
        let cut = &HEAP[..HEAP.find("# runtime").expect("statistics")];
        let notes = read(cut.as_bytes()).expect("readable").notes().to_vec();
        assert!(notes.len() == 1 && notes[0].contains("cut short"), "{notes:?}");
        let mutex = "--- mutex:\ncycles/second=1000000000\nsampling period=1\n24 1 @ 0x11 0x21\n#\t0x10\tsync.(*Mutex).Unlock+0x2a\t\
                     /go/mutex.go:223\n#\t0x20\tmain.main+0x2\t\t/main.go:1\n\n";
        let profile = read(mutex.as_bytes()).expect("whole");
        assert_eq!((names(&profile, 0x10).len(), names(&profile, 0x20)), (1, vec!["main.main /main.go:1".to_owned()]));
        assert_eq!(profile.notes(), [""; 0]);
    }
}
