//! What this host allows, and the skip when it does not.

use std::io::Write;
use std::path::Path;
use std::{env, fs, io, thread};

// Bits of the effective set, capabilities(7).
const CAP_SYS_ADMIN: u32 = 21;
const CAP_PERFMON: u32 = 38;
const CAP_BPF: u32 = 39;

/// Prints `skipped: TEST: REASON` straight to stderr, past the test runner's capture; `cargo xtask test`
/// counts these lines. Panics with `CI=true`, where a
/// skip counts as a failure.
pub fn report_skip(reason: &str) {
    let current = thread::current();
    let test = current.name().unwrap_or("test");
    let _ = writeln!(io::stderr(), "skipped: {test}: {reason}");
    assert!(!env::var("CI").is_ok_and(|value| value == "true"), "skipped under CI=true: {reason}");
}

/// Why probes cannot be attached here, or `None` when they can: root, `CAP_BPF` and `CAP_PERFMON` (or
/// `CAP_SYS_ADMIN`), the uprobe PMU, kernel BTF. A CPU PMU, kprobes and tracefs are not needed.
pub fn missing_for_probes() -> Option<String> {
    let mut missing = Vec::new();
    let capabilities = effective_capabilities();
    let has = |bit: u32| capabilities & (1 << bit) != 0;
    if !(has(CAP_SYS_ADMIN) || (has(CAP_BPF) && has(CAP_PERFMON))) {
        missing.push("CAP_BPF and CAP_PERFMON");
    }
    if !Path::new("/sys/bus/event_source/devices/uprobe/type").exists() {
        missing.push("the uprobe PMU");
    }
    if !Path::new("/sys/kernel/btf/vmlinux").exists() {
        missing.push("kernel BTF");
    }
    (!missing.is_empty()).then(|| format!("needs {}", missing.join(", ")))
}

/// Root, as `unshare`, `mount` and `setpriv` need it.
pub fn is_root() -> bool {
    status_field("Uid:").is_some_and(|ids| ids.split_whitespace().nth(1) == Some("0"))
}

fn effective_capabilities() -> u64 {
    status_field("CapEff:").and_then(|text| u64::from_str_radix(text.trim(), 16).ok()).unwrap_or(0)
}

fn status_field(name: &str) -> Option<String> {
    let status = fs::read_to_string("/proc/self/status").ok()?;
    status.lines().find_map(|line| line.strip_prefix(name).map(str::to_owned))
}
