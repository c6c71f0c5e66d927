//! Runs the test tiers in order, stops at the first red one, and ends with one line `N passed, N failed, N skipped`
//! that counts every tier that ran.
//!
//! | tier | what runs | counted by |
//! |---|---|---|
//! | fmt | `cargo fmt --check` | one |
//! | clippy | warnings as errors, in two builds | one each |
//! | check | the structure checks | one each |
//! | unit | tests inside the crates | libtest |
//! | abi, suite, kernel | test targets of `jeprobe-tests` on the built library and command | libtest, skip lines |
//! | loom | models of the allocator's concurrent parts; each again with a weakened ordering, which must fail | libtest, one each |
//!
//! libtest has no skip at run time. A test that cannot run here prints `skipped: TEST: REASON` past the capture and
//! returns; the line moves one test from passed to skipped. With `CI=true` such a test fails instead.
#![forbid(unsafe_code)]

use anyhow::{Result, bail};
use clap::ValueEnum;

use crate::check::{self, Check};
use crate::cmd::{Cmd, cargo, root};
use crate::{build_alloc, deps, dist, mutate};

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, ValueEnum)]
pub(crate) enum Tier {
    Fmt,
    Clippy,
    Check,
    Unit,
    Abi,
    Loom,
    Suite,
    Kernel,
}

/// Results of one tier or of all. `count` tests each.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    pub(crate) passed: u64,
    pub(crate) failed: u64,
    pub(crate) skipped: u64,
}

impl Counts {
    pub(crate) fn of(success: bool) -> Self {
        Self { passed: u64::from(success), failed: u64::from(!success), skipped: 0 }
    }

    pub(crate) fn add(&mut self, other: Self) {
        self.passed += other.passed;
        self.failed += other.failed;
        self.skipped += other.skipped;
    }

    fn line(self) -> String {
        format!("{} passed, {} failed, {} skipped", self.passed, self.failed, self.skipped)
    }
}

pub(crate) fn run(tiers: &[Tier]) -> Result<()> {
    let mut order = tiers.to_vec();
    if order.is_empty() {
        // A whole run is what a new machine does first.
        deps::run()?;
        order = Tier::value_variants().to_vec();
    }
    order.sort_unstable();
    order.dedup();

    let mut total = Counts::default();
    let mut failure = None;
    for tier in order {
        eprintln!("== {}", name(tier));
        match run_tier(tier) {
            Ok(counts) => {
                println!("{}: {}", name(tier), counts.line());
                total.add(counts);
                if counts.failed > 0 {
                    failure = Some(format!("tier {} failed", name(tier)));
                }
            }
            Err(error) => {
                total.failed += 1;
                failure = Some(format!("tier {}: {error:#}", name(tier)));
            }
        }
        if failure.is_some() {
            break;
        }
    }
    if let Some(failure) = &failure {
        eprintln!("xtask: {failure}; later tiers did not run");
    }
    println!("{}", total.line());
    if failure.is_some() {
        bail!("tests failed");
    }
    Ok(())
}

fn name(tier: Tier) -> String {
    tier.to_possible_value().map_or_else(String::new, |value| value.get_name().to_owned())
}

fn run_tier(tier: Tier) -> Result<Counts> {
    match tier {
        Tier::Fmt => Ok(Counts::of(cargo().args(["fmt", "--all", "--check"]).tee()?.1)),
        Tier::Clippy => clippy(),
        Tier::Check => Ok(check::count(Check::value_variants())),
        Tier::Unit => libtest(cargo().args([
            "test",
            "--no-fail-fast",
            "-p",
            "jeprobe-alloc",
            "-p",
            "jeprobe-abi",
            "-p",
            "jeprobe",
            "-p",
            "xtask",
        ])),
        Tier::Loom => {
            let mut counts = libtest(models().arg("model::"))?;
            if counts.failed == 0 {
                counts.add(mutate::run(models)?);
            }
            Ok(counts)
        }
        Tier::Abi => programs("abi", false),
        Tier::Suite => programs("suite", false),
        Tier::Kernel => programs("kernel", true),
    }
}

/// The allocator's tests built for loom, in a target folder of their own: the flag would rebuild all else.
fn models() -> Cmd {
    cargo()
        .env("RUSTFLAGS", "--cfg loom")
        .env("LOOM_MAX_PREEMPTIONS", "2")
        .env("CARGO_TARGET_DIR", root().join(build_alloc::target_dir()).join("loom"))
        .args(["test", "-p", "jeprobe-alloc", "--lib"])
}

fn clippy() -> Result<Counts> {
    let strict = ["--quiet", "--", "-D", "warnings"];
    let workspace =
        ["clippy", "--workspace", "--all-targets", "--exclude", "jeprobe-capi", "--exclude", "jeprobe-ebpf"];
    let mut counts = Counts::of(cargo().args(workspace).args(strict).tee()?.1);
    counts.add(Counts::of(cargo().args(["clippy", "-p", "jeprobe-capi"]).args(strict).tee()?.1));
    Ok(counts)
}

/// A test target of `jeprobe-tests`, on the library and the command as they are given to others.
fn programs(target: &str, alone: bool) -> Result<Counts> {
    build_alloc::run()?;
    dist::run()?;
    let mut test = cargo().args(["test", "-p", "jeprobe-tests", "--test", target]);
    if alone {
        // Probes are visible to the whole machine: two such tests would count each other's processes.
        test = test.args(["--", "--test-threads=1"]);
    }
    libtest(test)
}

/// Runs a `cargo test` and sums the lines libtest closes each target with. A run that failed without counting a
/// failure (it did not build, or a test aborted) counts one.
fn libtest(test: Cmd) -> Result<Counts> {
    let (output, success) = test.tee()?;
    let mut counts = sum(&output, std::env::var_os("CI").is_some_and(|value| value == "true"));
    if success && counts.passed == 0 {
        bail!("no test ran");
    }
    if !success && counts.failed == 0 {
        counts.failed = 1;
    }
    Ok(counts)
}

fn sum(output: &str, skips_fail: bool) -> Counts {
    let mut total = Counts::default();
    for line in output.lines().filter(|line| line.starts_with("test result: ")) {
        let number = |word: &str| {
            let before = line.split(word).next().unwrap_or_default().trim_end();
            before.rsplit([' ', '.', ';']).next().and_then(|text| text.parse().ok()).unwrap_or(0)
        };
        total.add(Counts { passed: number("passed;"), failed: number("failed;"), skipped: number("ignored;") });
    }
    // Where a skip is a failure, libtest has counted it as one.
    if !skips_fail {
        let skips = output.lines().filter(|line| line.contains("skipped: ")).count() as u64;
        total.passed = total.passed.saturating_sub(skips);
        total.skipped += skips;
    }
    total
}

#[cfg(test)]
mod tests {
    use super::*;

    const OUTPUT: &str = "running 3 tests\n\
        test one ... skipped: one: needs root\n\
        ok\n\
        test result: ok. 12 passed; 0 failed; 1 ignored; 0 measured; 4 filtered out; finished in 0.00s\n\
        words: 9 passed; 9 failed\n\
        test result: FAILED. 3 passed; 2 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.00s\n";

    #[test]
    fn result_lines_are_summed_and_skips_leave_the_passed() {
        assert_eq!(sum(OUTPUT, false), Counts { passed: 14, failed: 2, skipped: 2 });
        assert_eq!(sum(OUTPUT, false).line(), "14 passed, 2 failed, 2 skipped");
    }

    #[test]
    fn a_skip_that_failed_is_not_taken_off_again() {
        assert_eq!(sum(OUTPUT, true), Counts { passed: 15, failed: 2, skipped: 1 });
    }

    #[test]
    fn a_run_that_did_not_build_counts_as_failed() {
        let counts = libtest(Cmd::new("sh").args(["-c", "exit 101"])).unwrap();
        assert_eq!(counts, Counts { passed: 0, failed: 1, skipped: 0 });
    }

    #[test]
    fn a_green_run_without_a_test_is_an_error() {
        assert!(libtest(Cmd::new("true")).is_err());
    }
}
