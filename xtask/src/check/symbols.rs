//! The built library as a linker and a tracer see it.
//!
//! | looked at | rule |
//! |---|---|
//! | `libjeprobe.so`, undefined symbols | none of the malloc family, none of Rust's |
//! | `libjeprobe.so`, defined symbols | exactly those of `allocator/capi/exports.txt` |
//! | `libjeprobe.so`, and programs linked with `libjeprobe.a` by bfd, lld and mold | the probe sites of `probes.rs` |
//!
//! The programs are linked statically and dynamically, with unused sections collected, and run.
#![forbid(unsafe_code)]

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use anyhow::{Context as _, Result};
use object::read::elf::ElfFile64;
use object::{Endianness, Object as _, ObjectSymbol as _};

use super::{probes, read};
use crate::build_alloc::{self, target_dir};
use crate::cmd::{Cmd, root};

const EXPORTS: &str = "allocator/capi/exports.txt";

const MALLOC_FAMILY: &[&str] = &[
    "malloc",
    "calloc",
    "realloc",
    "free",
    "posix_memalign",
    "aligned_alloc",
    "memalign",
    "valloc",
    "pvalloc",
    "malloc_usable_size",
    "reallocarray",
    "strdup",
    "strndup",
    "free_sized",
    "free_aligned_sized",
];

const LINKERS: &[&str] = &["bfd", "lld", "mold"];

const PROGRAM: &str = "#include <stdlib.h>\n#include <string.h>\n\
    int mallctl(const char *, void *, size_t *, void *, size_t);\n\
    int main(int argc, char **argv) {\n    (void)argv;\n    char *p = malloc(100 + argc);\n    if (!p) return 1;\n    memset(p, 1, 100);\n\
    const char *version; size_t size = sizeof version;\n    if (mallctl(\"version\", &version, &size, NULL, 0)) return 2;\n    free(p);\n    return 0;\n}\n";

pub(super) fn check(root: &Path) -> Result<Vec<String>> {
    let folder = self::root().join(build_alloc::run()?);
    let library = fs::read(folder.join("libjeprobe.so")).context("cannot read libjeprobe.so")?;
    let mut breaches = symbol_faults(&library, &read(&root.join(EXPORTS))?)?;
    breaches.extend(probes::faults(&library)?);
    let mut breaches: Vec<String> = breaches.iter().map(|fault| format!("libjeprobe.so:1: symbols: {fault}")).collect();
    breaches.extend(link_faults(&folder)?);
    Ok(breaches)
}

fn symbol_faults(library: &[u8], exports: &str) -> Result<Vec<String>> {
    let file = ElfFile64::<Endianness>::parse(library).context("not a 64-bit ELF file")?;
    let wanted: BTreeSet<&str> =
        exports.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#')).collect();
    let mut defined = BTreeSet::new();
    let mut faults = Vec::new();
    for symbol in file.dynamic_symbols() {
        let name = symbol.name().context("a symbol's name is not text")?;
        if !symbol.is_undefined() {
            defined.insert(name);
        } else if MALLOC_FAMILY.contains(&name) {
            faults.push(format!("needs `{name}`, which it has to provide"));
        } else if is_rust(name) {
            faults.push(format!("needs `{name}`, which no C program has"));
        }
    }
    faults.extend(defined.difference(&wanted).map(|name| format!("exports `{name}`, which {EXPORTS} does not name")));
    faults.extend(wanted.difference(&defined).map(|name| format!("does not export `{name}` of {EXPORTS}")));
    Ok(faults)
}

/// A mangled Rust name, or one of the runtime's own.
fn is_rust(name: &str) -> bool {
    let legacy = name.strip_suffix('E').and_then(|name| name.rsplit_once("17h")).is_some_and(|(start, hash)| {
        start.starts_with("_ZN") && hash.len() == 16 && hash.bytes().all(|byte| byte.is_ascii_hexdigit())
    });
    legacy || name.starts_with("_R") || name.starts_with("rust_") || name.starts_with("__rust")
}

/// Links and runs a C program with every linker, statically and not, and looks at its probe sites.
fn link_faults(libraries: &Path) -> Result<Vec<String>> {
    let folder = root().join(target_dir()).join("check-symbols");
    fs::create_dir_all(&folder).with_context(|| format!("cannot make {}", folder.display()))?;
    let source = folder.join("program.c");
    fs::write(&source, PROGRAM).with_context(|| format!("cannot write {}", source.display()))?;
    let mut faults = Vec::new();
    for linker in LINKERS {
        for mode in ["-static", "-pie"] {
            let named = format!("program linked by {linker} with {mode}:1: symbols:");
            let program = folder.join(format!("program-{linker}{mode}"));
            Cmd::new("cc")
                .args(["-O2", "-ffunction-sections", "-Wl,--gc-sections", mode])
                .arg(format!("-fuse-ld={linker}"))
                .arg("-o")
                .arg(&program)
                .arg(&source)
                .arg(libraries.join("libjeprobe.a"))
                .run()?;
            let bytes = fs::read(&program).with_context(|| format!("cannot read {}", program.display()))?;
            faults.extend(probes::faults(&bytes)?.iter().map(|fault| format!("{named} {fault}")));
            if let Err(error) = Cmd::new(&program).run() {
                faults.push(format!("{named} {error:#}"));
            }
        }
    }
    Ok(faults)
}

#[cfg(test)]
mod tests {
    use super::super::probes::tests::{assemble, library};
    use super::*;

    const NAMES: &str = "# hooks\njeprobe_alloc_semaphore\njeprobe_ctx_semaphore\njeprobe_dump_semaphore\njeprobe_free_semaphore\n\
        jeprobe_hook_alloc\njeprobe_hook_context\njeprobe_hook_dump\njeprobe_hook_free\njeprobe_root\n";

    #[test]
    fn exports_are_exact() {
        let good = assemble("symbols-good", &library());
        assert_eq!(symbol_faults(&good, NAMES).unwrap(), Vec::<String>::new());
        let more = format!("{NAMES}malloc\n");
        assert_eq!(symbol_faults(&good, &more).unwrap(), ["does not export `malloc` of allocator/capi/exports.txt"]);
        let fewer = NAMES.replace("jeprobe_root\n", "");
        assert!(symbol_faults(&good, &fewer).unwrap()[0].contains("exports `jeprobe_root`"));
    }

    #[test]
    fn needs_of_malloc_and_of_rust_fail() {
        let text = format!("{}.text\ncall calloc@PLT\ncall rust_eh_personality@PLT\ncall _RNvC1a1b@PLT\n", library());
        let found = symbol_faults(&assemble("symbols-undefined", &text), NAMES).unwrap();
        assert_eq!(found.len(), 3, "{found:?}");
    }

    #[test]
    fn rust_names_are_known() {
        assert!(is_rust("_ZN4core9panicking5panic17h0123456789abcdefE"));
        assert!(!is_rust("_ZNSt9bad_allocD1Ev"));
        assert!(!is_rust("memcpy"));
    }
}
