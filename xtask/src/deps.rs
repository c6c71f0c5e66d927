//! Installs what the build and the tests need, on Debian: packages through apt, `bpf-linker` through cargo, and the
//! references of [`crate::references`].
//!
//! Nothing is done when all is present. apt needs root; without it the command to run is printed instead. No service
//! is started: while packages are configured, a policy file answers no to every service start, and it answers yes
//! again by itself once this program is gone.
#![forbid(unsafe_code)]

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use anyhow::{Context as _, Result, bail};

use crate::cmd::{Cmd, cargo, find_program};
use crate::references;
use crate::toolchain::{BPF_LINKER_VERSION, Compiler, linker_version};

/// Package, and a program that stands for it when it came from elsewhere (`""`: only the package will do).
const PACKAGES: &[(&str, &str)] = &[
    // Builds.
    ("build-essential", ""),
    ("pkg-config", "pkg-config"),
    ("git", "git"),
    // The kernel object: a compiler with `core`'s sources.
    ("rustc-web", ""),
    ("cargo-web", ""),
    ("rust-web-src", ""),
    // Other compilers and linkers that user programs are built with.
    ("clang", "clang"),
    ("lld", "ld.lld"),
    ("mold", "mold"),
    ("binutils", "objdump"),
    // Real programs that run on the allocator.
    ("redis-server", "redis-server"),
    ("redis-tools", "redis-benchmark"),
    ("sqlite3", "sqlite3"),
    ("python3", "python3"),
    ("libpython3-stdlib", ""),
    ("z3", "z3"),
    ("lua5.4", "lua5.4"),
    ("ghostscript", "gs"),
    ("rocksdb-tools", "db_bench"),
    ("nodejs", "node"),
    ("perl", "perl"),
    ("php-cli", "php"),
    // A browser for the page.
    ("chromium", "chromium"),
    ("chromium-driver", "chromedriver"),
    // References that results are compared with, and tools that look at them.
    ("libjemalloc2", ""),
    ("libjemalloc-dev", ""),
    ("libtcmalloc-minimal4", ""),
    ("bpftrace", "bpftrace"),
    ("valgrind", "valgrind"),
    ("gdb", "gdb"),
    ("libc6-dbg", ""),
    ("golang-go", "go"),
    ("dwz", "dwz"),
    ("xz-utils", "xz"),
    ("graphviz", "dot"),
    ("ghostscript", "ps2pdf"),
    ("elfutils", "eu-readelf"),
    ("poppler-utils", "pdftotext"),
    ("file", "file"),
    ("procps", "ps"),
    ("util-linux", "unshare"),
    ("iproute2", "ip"),
];

const POLICY: &str = "/usr/sbin/policy-rc.d";

pub(crate) fn run() -> Result<()> {
    let mut missing = missing_packages(PACKAGES.iter().copied())?;
    if !missing.is_empty() {
        install(&missing)?;
    }
    // Two names carry a version that is known only now: the LLVM that the linker has to match, and Python's own tests.
    let compiler = Compiler::find().context("rustc-web and rust-web-src are installed but do not work together")?;
    let mut versioned = vec![format!("llvm-{}-dev", compiler.llvm)];
    let python = "import sys\ntry:\n import test.test_json, test.test_re\nexcept ImportError:\n print('%d.%d' % sys.version_info[:2])";
    let version = Cmd::new("python3").args(["-c", python]).output()?;
    if !version.trim().is_empty() {
        versioned.push(format!("libpython{}-testsuite", version.trim()));
    }
    missing = missing_packages(versioned.iter().map(|package| (package.as_str(), "")))?;
    if !missing.is_empty() {
        install(&missing)?;
    }
    let present = find_program("bpf-linker").and_then(|linker| linker_version(&linker));
    if present.as_deref() != Some(BPF_LINKER_VERSION) {
        eprintln!("installing bpf-linker {BPF_LINKER_VERSION} for LLVM {}", compiler.llvm);
        cargo()
            .env("LLVM_PREFIX", format!("/usr/lib/llvm-{}", compiler.llvm))
            .args(["install", "--locked", "--force", "bpf-linker", "--version", BPF_LINKER_VERSION])
            .args(["--no-default-features", "--features", &format!("llvm-{}", compiler.llvm)])
            .without_env("RUSTFLAGS")
            .without_env("CARGO_TARGET_DIR")
            .run()?;
    }
    references::run()?;
    eprintln!("deps: all present");
    Ok(())
}

fn missing_packages<'a>(packages: impl IntoIterator<Item = (&'a str, &'a str)>) -> Result<Vec<&'a str>> {
    if find_program("dpkg-query").is_none() {
        bail!("not a Debian system (no dpkg-query): install the packages listed in xtask/src/deps.rs by hand");
    }
    let installed = Cmd::new("dpkg-query").args(["-W", "-f", "${Package} ${db:Status-Status}\n"]).output()?;
    Ok(missing_of(packages, &installed, |program| find_program(program).is_some()))
}

fn missing_of<'a>(
    packages: impl IntoIterator<Item = (&'a str, &'a str)>,
    installed: &str,
    has_program: impl Fn(&str) -> bool,
) -> Vec<&'a str> {
    let is_installed = |package: &str| {
        installed.lines().any(|line| line.strip_suffix(" installed").is_some_and(|name| name == package))
    };
    packages
        .into_iter()
        .filter(|(package, program)| !is_installed(package) && (program.is_empty() || !has_program(program)))
        .map(|(package, _)| package)
        .collect()
}

fn install(packages: &[&str]) -> Result<()> {
    let list = packages.join(" ");
    if Cmd::new("id").arg("-u").output()?.trim() != "0" {
        bail!("missing packages; as root: apt-get update && apt-get install --no-install-recommends {list}");
    }
    eprintln!("installing: {list}");
    let _policy = ServicePolicy::deny()?;
    Cmd::new("apt-get").args(["update", "-qq"]).run()?;
    Cmd::new("apt-get")
        .env("DEBIAN_FRONTEND", "noninteractive")
        .args(["install", "-y", "-qq", "--no-install-recommends"])
        .args(packages)
        .run()
}

/// While it lives, no package starts a service.
struct ServicePolicy {
    ours: bool,
}

impl ServicePolicy {
    fn deny() -> Result<Self> {
        const MARK: &str = "jeprobe-xtask";
        let path = Path::new(POLICY);
        if path.exists() && !fs::read_to_string(path).is_ok_and(|text| text.contains(MARK)) {
            // Somebody's own policy stays in force.
            return Ok(Self { ours: false });
        }
        let pid = std::process::id();
        fs::write(
            path,
            format!(
                "#!/bin/sh\n# {MARK}: no service starts while it installs packages\n[ ! -d /proc/{pid} ] || exit 101\n"
            ),
        )
        .and_then(|()| fs::set_permissions(path, fs::Permissions::from_mode(0o755)))
        .with_context(|| format!("cannot write {POLICY}"))?;
        Ok(Self { ours: true })
    }
}

impl Drop for ServicePolicy {
    fn drop(&mut self) {
        if self.ours {
            let _ = fs::remove_file(POLICY);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::missing_of;

    #[test]
    fn a_program_from_elsewhere_counts_and_a_removed_package_does_not() {
        let installed = "gdb installed\nmold config-files\n";
        let packages = [("gdb", ""), ("mold", "ld.mold"), ("nodejs", "node"), ("libjemalloc2", "")];
        assert_eq!(missing_of(packages, installed, |program| program == "node"), ["mold", "libjemalloc2"]);
    }
}
