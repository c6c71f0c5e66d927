//! The kernel object: built from `ebpf/` and committed under `ebpf/prebuilt/`, so that users need only stable Rust.
//!
//! | file | content |
//! |---|---|
//! | `jeprobe-ebpf.o` | the object that the loader embeds |
//! | `BUILD` | two lines: `toolchain:` compiler and linker, `inputs:` digest of the sources it was made of |
//!
//! The same sources and toolchain give the same bytes wherever they lie: paths of the workspace, of cargo's home and of
//! the compiler are mapped to fixed names, and the linker is no part of the flags that cargo hashes into symbols. It has
//! neither DWARF nor BTF: it needs no relocation against the kernel's types, and so loads on kernels without BTF.
#![forbid(unsafe_code)]

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};

use crate::build_alloc::target_dir;
use crate::cmd::{Cmd, root};
use crate::toolchain::{self, Toolchain};

const TARGET: &str = "bpfel-unknown-none";
pub(crate) const OBJECT: &str = "ebpf/prebuilt/jeprobe-ebpf.o";
pub(crate) const RECORD: &str = "ebpf/prebuilt/BUILD";

/// An object and what it was made with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Built {
    pub(crate) object: Vec<u8>,
    pub(crate) record: Record,
}

/// Content of `BUILD`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Record {
    pub(crate) toolchain: String,
    pub(crate) inputs: String,
}

impl Record {
    fn text(&self) -> String {
        format!("toolchain: {}\ninputs: {}\n", self.toolchain, self.inputs)
    }

    pub(crate) fn parse(text: &str) -> Option<Self> {
        let mut lines = text.lines();
        Some(Self {
            toolchain: lines.next()?.strip_prefix("toolchain: ")?.to_owned(),
            inputs: lines.next()?.strip_prefix("inputs: ")?.to_owned(),
        })
    }
}

/// Builds and puts both files in place.
pub(crate) fn run() -> Result<()> {
    let built = build()?;
    let (object, record) = (root().join(OBJECT), root().join(RECORD));
    if let Some(folder) = object.parent() {
        fs::create_dir_all(folder).with_context(|| format!("cannot make {}", folder.display()))?;
    }
    fs::write(&object, &built.object).with_context(|| format!("cannot write {}", object.display()))?;
    fs::write(&record, built.record.text()).with_context(|| format!("cannot write {}", record.display()))?;
    eprintln!("{OBJECT}: {} bytes, {}", built.object.len(), built.record.toolchain);
    Ok(())
}

/// Builds without touching the committed files.
pub(crate) fn build() -> Result<Built> {
    let tools = toolchain::find()?;
    let target = root().join(target_dir()).join("ebpf");
    Cmd::new(&tools.cargo)
        .env("CARGO_TARGET_DIR", &target)
        .env("RUSTC", &tools.rustc)
        .env("RUSTC_BOOTSTRAP", "1")
        .env("CARGO_PROFILE_RELEASE_DEBUG", "0")
        .env("CARGO_TARGET_BPFEL_UNKNOWN_NONE_LINKER", &tools.linker)
        .env("CARGO_ENCODED_RUSTFLAGS", flags(&tools).join("\x1f"))
        .without_env("RUSTFLAGS")
        .without_env("RUSTUP_TOOLCHAIN")
        .args(["build", "--release", "-Z", "build-std=core", "--target", TARGET, "-p", "jeprobe-ebpf"])
        .args(["--bin", "jeprobe-ebpf"])
        .run()?;
    let object = target.join(TARGET).join("release/jeprobe-ebpf");
    let dep_info = object.with_extension("d");
    let sources = fs::read_to_string(&dep_info).with_context(|| format!("cannot read {}", dep_info.display()))?;
    Ok(Built {
        record: Record { toolchain: tools.version, inputs: digest(&root(), &inputs(&root(), &sources))? },
        object: fs::read(&object).with_context(|| format!("cannot read {}", object.display()))?,
    })
}

fn flags(tools: &Toolchain) -> Vec<String> {
    let home = std::env::var_os("CARGO_HOME")
        .map(PathBuf::from)
        .or_else(|| std::env::var_os("HOME").map(|home| PathBuf::from(home).join(".cargo")))
        .unwrap_or_default();
    let map = |from: &Path, to: &str| format!("--remap-path-prefix={}={to}", from.display());
    vec!["-Cdebuginfo=0".into(), map(&home, "/cargo"), map(&tools.sysroot, "/rust"), map(&root(), "/jeprobe")]
}

/// Files of the workspace in cargo's dep-info `object: file file …`, relative to its root, sorted; the manifests of
/// their crates with them.
fn inputs(root: &Path, dep_info: &str) -> Vec<PathBuf> {
    let list = dep_info.split_once(": ").map_or("", |(_, list)| list);
    let mut files: Vec<PathBuf> = list
        .split_whitespace()
        .filter_map(|file| Path::new(file).strip_prefix(root).ok().map(Path::to_path_buf))
        .chain(["ebpf/Cargo.toml".into(), "ebpf/common/Cargo.toml".into()])
        .collect();
    files.sort_unstable();
    files.dedup();
    files
}

/// FNV-1a, 64 bits, over names, lengths and contents: it notices a forgotten rebuild, it is no proof of origin.
fn digest(root: &Path, files: &[PathBuf]) -> Result<String> {
    let mut hash = 0xcbf2_9ce4_8422_2325_u64;
    for file in files {
        let content = fs::read(root.join(file)).with_context(|| format!("cannot read {}", file.display()))?;
        let name = file.to_string_lossy();
        let length = content.len().to_string();
        for byte in name.bytes().chain([0]).chain(length.bytes()).chain([0]).chain(content.iter().copied()) {
            hash = (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3);
        }
    }
    Ok(format!("{} files, {hash:016x}", files.len()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn record_round_trips() {
        let record = Record { toolchain: "rustc 1.96.0, bpf-linker 0.13.0".into(), inputs: "3 files, 00ff".into() };
        assert_eq!(Record::parse(&record.text()), Some(record));
        assert_eq!(Record::parse("toolchain: x\n"), None);
    }

    #[test]
    fn inputs_are_the_workspace_files_of_the_dep_info() {
        let files = inputs(Path::new("/w"), "/w/target/x: /w/ebpf/src/main.rs /c/registry/aya.rs /w/ebpf/src/ctx.rs\n");
        assert_eq!(
            files,
            ["ebpf/Cargo.toml", "ebpf/common/Cargo.toml", "ebpf/src/ctx.rs", "ebpf/src/main.rs"].map(PathBuf::from)
        );
    }

    #[test]
    fn digest_changes_with_content() {
        let folder = root();
        let one = digest(&folder, &["xtask/Cargo.toml".into()]).unwrap();
        assert_eq!(one, digest(&folder, &["xtask/Cargo.toml".into()]).unwrap());
        assert_ne!(one, digest(&folder, &["clippy.toml".into()]).unwrap());
    }
}
