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

/// Seconds that one input may take, and megabytes of the process.
const SECONDS_MOST: u32 = 20;
const MEGABYTES_MOST: u32 = 2048;
/// Bytes of an input of all readers but that of images.
const BYTES_MOST: u32 = 8192;

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
    let mut build = cargo()
        .dir(&crate_folder)
        .env("RUSTC_WRAPPER", crate_folder.join("rustc.sh"))
        .env("CARGO_TARGET_DIR", root().join(target_dir()))
        .args(["build", "--locked", "--release"]);
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
        let mut fuzzer = Cmd::new(root().join(target_dir()).join("release").join(name))
            .arg(format!("-max_total_time={}", args.seconds))
            .arg(format!("-timeout={SECONDS_MOST}"))
            .arg(format!("-rss_limit_mb={MEGABYTES_MOST}"))
            .arg(format!("-artifact_prefix={}/{name}-", found.display()))
            // Words of the product go nowhere: they would take most of the time.
            .args(["-close_fd_mask=3", "-print_final_stats=1"]);
        if name != "elf" {
            // Larger ones say nothing new, and take longer.
            fuzzer = fuzzer.arg(format!("-max_len={BYTES_MOST}"));
        }
        if dictionary.is_file() {
            fuzzer = fuzzer.arg(format!("-dict={}", dictionary.display()));
        }
        fuzzer = fuzzer.arg(&corpus).args(seeds(&crate_folder, name));
        let (text, success) = fuzzer.said()?;
        if success {
            println!("{name}: {}", covered(&text).with_context(|| format!("{name} was built without counters"))?);
        } else {
            // The lines before tell of inputs that were kept.
            let end = text.lines().skip_while(|line| line.starts_with('#') || line.starts_with("INFO"));
            end.for_each(|line| println!("{line}"));
            failed.push(name.as_str());
        }
    }
    if !failed.is_empty() {
        bail!(
            "{}: the input is in {}; once it is fixed, keep it in userspace/fuzz/seeds and as a test",
            failed.join(", "),
            found.display()
        );
    }
    println!("{} targets, {} seconds each: nothing found", chosen.len(), args.seconds);
    Ok(())
}

/// How many edges were reached at first and at the end, of a run's output; `None` when none were counted.
fn covered(text: &str) -> Option<String> {
    let edges = |mark: &str| {
        let line = text.lines().find(|line| line.starts_with('#') && line.contains(mark))?;
        let mut words = line.split_whitespace().skip_while(|word| *word != "cov:");
        words.nth(1)?.parse::<u64>().ok()
    };
    let runs =
        text.lines().rev().find_map(|line| line.strip_prefix('#')?.split_whitespace().next()?.parse::<u64>().ok())?;
    let (first, last) = (edges("INITED")?, edges("DONE")?);
    Some(format!("{runs} inputs, edges reached: {first} by the first ones, {last} in all"))
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

#[cfg(test)]
mod tests {
    use super::covered;

    #[test]
    fn coverage_is_read_from_a_run() {
        let text = "INFO: Seed: 1\n#3\tINITED cov: 214 ft: 215 corp: 2/276b exec/s: 0 rss: 27Mb\n#4\tNEW    cov: 300 ft: 3\n\
                    #888220\tDONE   cov: 433 ft: 1573 corp: 567/146Kb\nDone 888220 runs in 81 second(s)\n";
        let expected = "888220 inputs, edges reached: 214 by the first ones, 433 in all";
        assert_eq!(covered(text).as_deref(), Some(expected));
        assert_eq!(covered("#2\tINITED exec/s: 0\n#2\tDONE exec/s: 0\n"), None);
    }
}
