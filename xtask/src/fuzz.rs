//! Runs the fuzz targets of `userspace/fuzz`: libFuzzer with coverage counters, on the same compiler as everything else.
//!
//! Inputs that reach new code are kept in `target/fuzz/corpus`, so a later run goes on where this one ended. An input that
//! makes a target panic, hang or eat memory is kept in `target/fuzz/found`, and the run ends with an error that names it.
#![forbid(unsafe_code)]

use std::fs;
use std::path::PathBuf;

use anyhow::{Context as _, Result, bail};
use clap::Args;

use crate::build_alloc::target_dir;
use crate::cmd::{Cmd, cargo, root};

/// What libFuzzer needs of the compiler: a counter per edge, and calls at comparisons. All of it is stable.
const RUSTFLAGS: &str = "-Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4 \
    -Cllvm-args=-sanitizer-coverage-inline-8bit-counters -Cllvm-args=-sanitizer-coverage-pc-table \
    -Cllvm-args=-sanitizer-coverage-trace-compares";
/// Named, so that the counters stay out of build scripts.
const TRIPLE: &str = "x86_64-unknown-linux-gnu";

/// Seconds that one input may take, and megabytes of the process.
const SECONDS_MOST: u32 = 20;
const MEGABYTES_MOST: u32 = 2048;

#[derive(Args)]
pub(crate) struct Fuzz {
    /// Seconds for each target
    #[arg(long, default_value_t = 60)]
    seconds: u32,
    /// Targets, all of them by default
    targets: Vec<String>,
}

pub(crate) fn run(args: &Fuzz) -> Result<()> {
    let crate_folder = root().join("userspace/fuzz");
    let known = targets(&crate_folder.join("targets"))?;
    if let Some(wrong) = args.targets.iter().find(|name| !known.contains(name)) {
        bail!("no fuzz target `{wrong}`; there are: {}", known.join(" "));
    }
    let chosen = if args.targets.is_empty() { &known } else { &args.targets };
    let target = root().join(target_dir()).join("fuzz");
    let mut build = cargo().dir(&crate_folder).env("RUSTFLAGS", RUSTFLAGS).env("CARGO_TARGET_DIR", &target).args([
        "build",
        "--locked",
        "--release",
        "--target",
        TRIPLE,
    ]);
    for name in chosen {
        build = build.args(["--bin", name]);
    }
    build.run()?;
    let found = target.join("found");
    fs::create_dir_all(&found).with_context(|| format!("cannot create {}", found.display()))?;
    let mut failed = Vec::new();
    for name in chosen {
        let corpus = target.join("corpus").join(name);
        fs::create_dir_all(&corpus).with_context(|| format!("cannot create {}", corpus.display()))?;
        let dictionary = crate_folder.join("dictionaries").join(name);
        let mut fuzzer = Cmd::new(target.join(TRIPLE).join("release").join(name))
            .arg(format!("-max_total_time={}", args.seconds))
            .arg(format!("-timeout={SECONDS_MOST}"))
            .arg(format!("-rss_limit_mb={MEGABYTES_MOST}"))
            .arg(format!("-artifact_prefix={}/{name}-", found.display()))
            // Words of the product go nowhere: they would take most of the time.
            .args(["-close_fd_mask=3", "-print_final_stats=1", "-verbosity=0"]);
        if dictionary.is_file() {
            fuzzer = fuzzer.arg(format!("-dict={}", dictionary.display()));
        }
        fuzzer = fuzzer.arg(&corpus).args(seeds(&crate_folder, name));
        let (_, success) = fuzzer.tee()?;
        if !success {
            failed.push(name.as_str());
        }
    }
    if !failed.is_empty() {
        bail!(
            "{}: the input is in {}; once it is fixed, keep it as a test in userspace/src/mutated",
            failed.join(", "),
            found.display()
        );
    }
    println!("{} targets, {} seconds each: nothing found", chosen.len(), args.seconds);
    Ok(())
}

/// Names of the files in a folder, without `.rs`, sorted.
fn targets(folder: &std::path::Path) -> Result<Vec<String>> {
    let entries = fs::read_dir(folder).with_context(|| format!("cannot list {}", folder.display()))?;
    let mut names: Vec<String> =
        entries.filter_map(|entry| Some(entry.ok()?.file_name().to_str()?.strip_suffix(".rs")?.to_owned())).collect();
    names.sort();
    Ok(names)
}

/// Folders with inputs to begin with: those of the suites, and the target's own.
fn seeds(crate_folder: &std::path::Path, name: &str) -> Vec<PathBuf> {
    let fixtures = ["report", "jeprof"].map(|folder| root().join("tests/fixtures").join(folder));
    let own = [crate_folder.join("seeds").join(name)];
    let shared = fixtures
        .into_iter()
        .filter(|_| matches!(name, "heap" | "profile" | "symbolized" | "elf" | "jeprof_profile" | "maps"));
    own.into_iter().chain(shared).filter(|folder| folder.is_dir()).collect()
}
