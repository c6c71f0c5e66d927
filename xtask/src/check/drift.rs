//! Whether the committed kernel object is what its sources give.
//!
//! The object is rebuilt and compared byte by byte. Bytes are only comparable from the same compiler and linker; with
//! others the build must succeed and the digest of the sources must be the recorded one, so that a change without a
//! rebuild is noticed either way.
#![forbid(unsafe_code)]

use std::fs;
use std::path::Path;

use anyhow::{Context as _, Result};

use super::read;
use crate::build_ebpf::{self, Built, OBJECT, RECORD, Record};

pub(super) fn check(root: &Path) -> Result<Vec<String>> {
    let object = fs::read(root.join(OBJECT)).with_context(|| format!("cannot read {OBJECT}"))?;
    let record =
        Record::parse(&read(&root.join(RECORD))?).with_context(|| format!("{RECORD} has no two known lines"))?;
    Ok(compare(&Built { object, record }, &build_ebpf::build()?))
}

fn compare(committed: &Built, rebuilt: &Built) -> Vec<String> {
    let hint = "run `cargo xtask build-ebpf` and commit ebpf/prebuilt";
    let mut breaches = Vec::new();
    if committed.record.inputs != rebuilt.record.inputs {
        breaches.push(format!(
            "{RECORD}:2: drift: made of {}, the sources are {}; {hint}",
            committed.record.inputs, rebuilt.record.inputs
        ));
    }
    if committed.record.toolchain != rebuilt.record.toolchain {
        eprintln!(
            "drift: sources compared only: the object is by {}, here is {}",
            committed.record.toolchain, rebuilt.record.toolchain
        );
    } else if committed.object != rebuilt.object {
        let at = committed.object.iter().zip(&rebuilt.object).take_while(|(a, b)| a == b).count();
        breaches.push(format!(
            "{OBJECT}:1: drift: differs from a rebuild at byte {at} ({} bytes, rebuilt {}); {hint}",
            committed.object.len(),
            rebuilt.object.len()
        ));
    }
    breaches
}

#[cfg(test)]
mod tests {
    use super::*;

    fn built(object: &[u8], toolchain: &str, inputs: &str) -> Built {
        Built { object: object.to_vec(), record: Record { toolchain: toolchain.into(), inputs: inputs.into() } }
    }

    #[test]
    fn same_bytes_pass_and_others_fail() {
        let committed = built(b"abc", "t", "i");
        assert_eq!(compare(&committed, &built(b"abc", "t", "i")), Vec::<String>::new());
        let found = compare(&committed, &built(b"abd", "t", "i"));
        assert!(found[0].contains("at byte 2"), "{found:?}");
        assert_eq!(compare(&committed, &built(b"abc", "t", "j")).len(), 1);
    }

    #[test]
    fn another_compiler_compares_the_sources() {
        let committed = built(b"abc", "t", "i");
        assert_eq!(compare(&committed, &built(b"xyz", "u", "i")), Vec::<String>::new());
        assert_eq!(compare(&committed, &built(b"xyz", "u", "j")).len(), 1);
    }
}
