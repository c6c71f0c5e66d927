//! Proof that the loom models see what they are for: each weakens one memory ordering in a copy of the sources, and the
//! model of that file has to fail.
//!
//! A model sees only what goes through loom: with a plain field in the place of loom's cell it would pass whatever the
//! ordering. Every ordering that a model stands for is in the list.
#![forbid(unsafe_code)]

use std::fs;
use std::path::Path;

use anyhow::{Context as _, Result, bail};

use crate::build_alloc::target_dir;
use crate::cmd::{Cmd, root};
use crate::test::Counts;

struct Mutation {
    /// Relative to the workspace.
    file: &'static str,
    /// Stands once in the file.
    from: &'static str,
    to: &'static str,
    /// Model that fails with it.
    model: &'static str,
}

const MUTATIONS: &[Mutation] = &[
    Mutation {
        file: "allocator/src/ds/remote.rs",
        from: "compare_exchange_weak(head, first, Ordering::Release,",
        to: "compare_exchange_weak(head, first, Ordering::Relaxed,",
        model: "ds::remote::model::",
    },
    Mutation {
        file: "allocator/src/ds/remote.rs",
        from: "swap(core::ptr::null_mut(), Ordering::Acquire)",
        to: "swap(core::ptr::null_mut(), Ordering::Relaxed)",
        model: "ds::remote::model::",
    },
    Mutation {
        file: "allocator/src/sync/mutex.rs",
        from: "self.word.swap(FREE, Ordering::Release)",
        to: "self.word.swap(FREE, Ordering::Relaxed)",
        model: "sync::mutex::model::",
    },
    Mutation {
        file: "allocator/src/sync/mutex.rs",
        from: "compare_exchange(FREE, HELD, Ordering::Acquire, Ordering::Relaxed).is_err()",
        to: "compare_exchange(FREE, HELD, Ordering::Relaxed, Ordering::Relaxed).is_err()",
        model: "sync::mutex::model::",
    },
    Mutation {
        file: "allocator/src/sync/once.rs",
        from: "self.word.store(ONCE_DONE, Ordering::Release)",
        to: "self.word.store(ONCE_DONE, Ordering::Relaxed)",
        model: "sync::once::model::",
    },
    Mutation {
        file: "allocator/src/sync/once.rs",
        from: "compare_exchange(0, me, Ordering::Relaxed, Ordering::Acquire)",
        to: "compare_exchange(0, me, Ordering::Relaxed, Ordering::Relaxed)",
        model: "sync::once::model::",
    },
];

/// Runs them all, one test each. `test` makes the command that runs the models, without directory and filter.
pub(crate) fn run(test: impl Fn() -> Cmd) -> Result<Counts> {
    let copy = root().join(target_dir()).join("loom-mutants");
    if copy.exists() {
        fs::remove_dir_all(&copy).with_context(|| format!("cannot remove {}", copy.display()))?;
    }
    fs::create_dir_all(&copy).with_context(|| format!("cannot make {}", copy.display()))?;
    for part in ["Cargo.toml", "Cargo.lock", "allocator", "ebpf", "tests", "userspace", "xtask"] {
        copy_tree(&root().join(part), &copy.join(part))?;
    }
    let mut counts = Counts::default();
    for mutation in MUTATIONS {
        let file = copy.join(mutation.file);
        let original = fs::read_to_string(&file).with_context(|| format!("cannot read {}", file.display()))?;
        fs::write(&file, mutation.apply(&original)?).with_context(|| format!("cannot write {}", file.display()))?;
        let output = test().arg(mutation.model).dir(&copy).output_of_any()?;
        fs::write(&file, &original).with_context(|| format!("cannot write {}", file.display()))?;
        let caught = output.contains("test result: FAILED");
        let verdict = if caught { "is caught" } else { "is NOT caught" };
        println!("{}: `{}` {verdict}", mutation.file, mutation.to);
        if !caught {
            println!("{output}");
        }
        counts.add(Counts::of(caught));
    }
    Ok(counts)
}

impl Mutation {
    fn apply(&self, source: &str) -> Result<String> {
        if source.matches(self.from).count() != 1 {
            bail!("{}: `{}` does not stand there once; mend the list in xtask/src/mutate.rs", self.file, self.from);
        }
        Ok(source.replace(self.from, self.to))
    }
}

fn copy_tree(from: &Path, to: &Path) -> Result<()> {
    if from.is_dir() {
        fs::create_dir_all(to).with_context(|| format!("cannot make {}", to.display()))?;
        for entry in fs::read_dir(from).with_context(|| format!("cannot list {}", from.display()))? {
            let entry = entry.with_context(|| format!("cannot list {}", from.display()))?;
            if entry.file_name() != "target" {
                copy_tree(&entry.path(), &to.join(entry.file_name()))?;
            }
        }
        return Ok(());
    }
    fs::copy(from, to).map(drop).with_context(|| format!("cannot copy {}", from.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_mutation_fits_the_sources() {
        for mutation in MUTATIONS {
            let source = fs::read_to_string(root().join(mutation.file)).unwrap();
            assert_ne!(mutation.apply(&source).unwrap(), source);
        }
        assert!(MUTATIONS[0].apply("nothing").is_err());
    }
}
