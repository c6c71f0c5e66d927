//! What this process may do and what the kernel offers, asked before anything is changed and told all together.
#![forbid(unsafe_code)]

use std::fmt;
use std::fs;
use std::path::Path;

use super::sys::UPROBE_PMU;

/// One thing that eBPF profiling needs and that is not there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Missing {
    pub what: &'static str,
    pub why: String,
    pub hint: String,
}

impl fmt::Display for Missing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.what, self.why)
    }
}

/// Bits of `CapEff`.
const CAP_SYS_PTRACE: u32 = 19;
const CAP_SYS_ADMIN: u32 = 21;
const CAP_PERFMON: u32 = 38;
const CAP_BPF: u32 = 39;

/// Everything that is missing; empty when profiling through eBPF can start.
pub fn check() -> Vec<Missing> {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let lockdown = fs::read_to_string("/sys/kernel/security/lockdown").unwrap_or_default();
    let mut missing = check_kernel();
    missing.extend(judge_capabilities(&status));
    missing.extend(judge_lockdown(&lockdown));
    missing
}

fn check_kernel() -> Vec<Missing> {
    let mut missing = Vec::new();
    if !Path::new(UPROBE_PMU).join("type").exists() {
        missing.push(Missing {
            what: "uprobes",
            why: format!("{UPROBE_PMU} does not exist"),
            hint: "use a kernel with CONFIG_UPROBE_EVENTS and sysfs mounted".into(),
        });
    } else if !Path::new(UPROBE_PMU).join("format/ref_ctr_offset").exists() {
        missing.push(Missing {
            what: "semaphores",
            why: "this kernel's uprobes cannot raise them".into(),
            hint: "use Linux 4.20 or later".into(),
        });
    }
    let release = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    if parse_release(&release).is_some_and(|release| release < (5, 8)) {
        missing.push(Missing {
            what: "ring buffer",
            why: format!("Linux {} has none", release.trim()),
            hint: "use Linux 5.8 or later".into(),
        });
    }
    missing
}

fn judge_capabilities(status: &str) -> Option<Missing> {
    let caps = status
        .lines()
        .find_map(|line| line.strip_prefix("CapEff:"))
        .and_then(|hex| u64::from_str_radix(hex.trim(), 16).ok())?;
    let has = |cap: u32| caps >> cap & 1 == 1;
    if has(CAP_SYS_ADMIN) {
        return None;
    }
    let lacking: Vec<&str> = [(CAP_BPF, "CAP_BPF"), (CAP_PERFMON, "CAP_PERFMON"), (CAP_SYS_PTRACE, "CAP_SYS_PTRACE")]
        .into_iter()
        .filter(|(cap, _)| !has(*cap))
        .map(|(_, name)| name)
        .collect();
    (!lacking.is_empty()).then(|| Missing {
        what: "privilege",
        why: format!("this process lacks {}", lacking.join(", ")),
        hint: "run as root, or once: setcap cap_bpf,cap_perfmon,cap_sys_ptrace=ep \"$(command -v jeprobe)\"".into(),
    })
}

/// `none [integrity] confidentiality`: the bracketed mode is in force.
fn judge_lockdown(text: &str) -> Option<Missing> {
    text.contains("[confidentiality]").then(|| Missing {
        what: "kernel lockdown",
        why: "its confidentiality mode forbids programs that read memory".into(),
        hint: "boot without lockdown=confidentiality, or use jeprobe attach --mode inprocess".into(),
    })
}

fn parse_release(text: &str) -> Option<(u32, u32)> {
    let mut numbers = text.split(|c: char| !c.is_ascii_digit()).map(str::parse);
    Some((numbers.next()?.ok()?, numbers.next()?.ok()?))
}

#[cfg(test)]
mod tests {
    use super::{judge_capabilities, judge_lockdown, parse_release};

    #[test]
    fn all_missing_capabilities_are_told_together() {
        let missing = judge_capabilities("Name:\tx\nCapEff:\t0000000000000000\n").expect("none held");
        assert_eq!(missing.to_string(), "privilege: this process lacks CAP_BPF, CAP_PERFMON, CAP_SYS_PTRACE");
        let missing = judge_capabilities("CapEff:\t0000008000000000\n").expect("only CAP_BPF held");
        assert_eq!(missing.why, "this process lacks CAP_PERFMON, CAP_SYS_PTRACE");
    }

    #[test]
    fn root_and_the_three_capabilities_suffice() {
        assert_eq!(judge_capabilities("CapEff:\t000001fffeffffff\n"), None);
        assert_eq!(judge_capabilities("CapEff:\t000000c000080000\n"), None);
    }

    #[test]
    fn lockdown_counts_only_in_force() {
        assert!(judge_lockdown("none integrity [confidentiality]\n").is_some());
        assert_eq!(judge_lockdown("[none] integrity confidentiality\n"), None);
        assert_eq!(judge_lockdown(""), None);
    }

    #[test]
    fn releases() {
        assert_eq!(parse_release("6.18.44-fc\n"), Some((6, 18)));
        assert_eq!(parse_release("5.8\n"), Some((5, 8)));
        assert_eq!(parse_release("x"), None);
    }
}
