//! Where `unsafe` may stand.
//!
//! The list below is the whole of it: a file that holds `unsafe` is on it with its reason, and in the allocator and in
//! the shared contracts every other file opens with `#![forbid(unsafe_code)]`.
#![forbid(unsafe_code)]

use std::path::Path;

use anyhow::Result;

use super::{files, read, shown, source};

/// File, or folder with a `/` at its end, and why.
const MAY_HOLD: &[(&str, &str)] = &[
    ("allocator/src/ptr.rs", "the only address arithmetic"),
    ("allocator/src/prim.rs", "cells and atomics over raw memory"),
    ("allocator/src/sys/", "system calls"),
    ("allocator/src/tls.rs", "thread slot reached by assembly"),
    ("allocator/src/sync/", "lock guards over shared data"),
    ("allocator/src/ds/", "containers over caller-owned memory"),
    ("allocator/src/base.rs", "metadata memory"),
    ("allocator/src/emap.rs", "address to extent"),
    ("allocator/src/slab.rs", "regions inside client memory"),
    ("allocator/src/thread.rs", "thread state behind the slot, its end"),
    ("allocator/src/background.rs", "starts a thread of its own"),
    ("allocator/src/fork.rs", "handlers that C calls around fork"),
    ("allocator/src/linked.rs", "symbols that the program may define"),
    ("allocator/src/ctl/args.rs", "old and new values behind a caller's pointers"),
    ("allocator/src/prof/backtrace.rs", "stack reads"),
    ("allocator/src/prof/exit.rs", "an entry of .fini_array"),
    ("allocator/src/prof/hooks.rs", "probe sites"),
    ("allocator/src/prof/records.rs", "the profile table's records"),
    ("allocator/src/prof/segments.rs", "the profile table's memory"),
    ("allocator/src/prof/walker.rs", "the snapshot that walks read"),
    ("allocator/src/api/", "raw pointers in and out"),
    ("allocator/capi/src/", "C entry points"),
    ("allocator/benches/", "calls the raw interface"),
    ("allocator/tests/", "calls the raw interface"),
    ("ebpf/src/", "kernel helpers and map pointers"),
    ("ebpf/common/tests/", "records as bytes"),
    ("userspace/src/wait.rs", "poll, timers and signals as descriptors"),
    ("userspace/src/fsuser.rs", "file-system ids of a thread"),
    ("userspace/src/memory.rs", "an allocator"),
    ("userspace/src/image/bytes.rs", "maps files"),
    ("userspace/src/cli/run.rs", "the child between fork and exec"),
    ("userspace/src/remote/memory.rs", "memory of another process"),
    ("userspace/src/remote/sandbox.rs", "filters of another process, read as a debugger does"),
    ("userspace/src/probe/sys.rs", "perf_event_open and its controls"),
    ("tests/", "system calls on test targets"),
];

/// Folders in which a file that holds none says so.
const FORBIDDEN_ELSEWHERE: &[&str] = &["allocator/src", "ebpf/common/src"];

pub(super) fn check(root: &Path) -> Result<Vec<String>> {
    let mut breaches = Vec::new();
    for file in files(root, &["rs"])? {
        let name = shown(root, &file).to_string();
        let allowed = MAY_HOLD.iter().any(|(path, _)| name == *path || (path.ends_with('/') && name.starts_with(path)));
        if allowed {
            continue;
        }
        let code = source::code_only(&read(&file)?);
        for at in source::words(&code, "unsafe") {
            breaches.push(format!(
                "{name}:{}: unsafe_files: `unsafe` in a file not named for it",
                source::line_of(&code, at)
            ));
        }
        let must_forbid = FORBIDDEN_ELSEWHERE.iter().any(|folder| name.starts_with(folder));
        // `lib.rs` cannot: the attribute would hold for the whole crate.
        if must_forbid
            && !name.ends_with("/lib.rs")
            && !name.ends_with("/mod.rs")
            && !code.contains("#![forbid(unsafe_code)]")
        {
            breaches.push(format!("{name}:1: unsafe_files: no #![forbid(unsafe_code)]"));
        }
    }
    for (path, _) in MAY_HOLD {
        if !path.ends_with('/') && !root.join(path).exists() {
            breaches.push(format!("xtask/src/check/unsafe_files.rs:1: unsafe_files: {path} does not exist"));
        }
    }
    Ok(breaches)
}

#[cfg(test)]
mod tests {
    use super::super::Sample;
    use super::check;

    #[test]
    fn unsafe_elsewhere_and_a_missing_attribute_fail() {
        let sample = Sample::new(
            "unsafe",
            &[
                ("allocator/src/ptr.rs", "fn f() { unsafe {} }"),
                ("allocator/src/bin.rs", "// unsafe\n#![forbid(unsafe_code)]\n"),
                ("allocator/src/arena.rs", "fn f() {}\n"),
                ("userspace/src/a.rs", "fn f() {\n    unsafe {}\n}\n"),
            ],
        );
        let found = check(&sample.0).unwrap().join("\n");
        assert!(found.contains("userspace/src/a.rs:2: unsafe_files: `unsafe`"), "{found}");
        assert!(found.contains("allocator/src/arena.rs:1: unsafe_files: no"), "{found}");
        assert!(!found.contains("allocator/src/bin.rs"), "{found}");
        assert!(!found.contains("allocator/src/ptr.rs:"), "{found}");
        assert!(found.contains("allocator/src/tls.rs does not exist"), "{found}");
    }
}
