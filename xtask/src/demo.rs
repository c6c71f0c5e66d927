//! The main job, shown: start a leaking program with the library preloaded, attach to it by pid, print who leaks, write
//! the profile and the flame graph.
//!
//! The program is `tests/programs/leak_demo.c`. The demo fails when the function that leaks is not the first row.
#![forbid(unsafe_code)]

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use anyhow::{Context as _, Result, bail};

use crate::build_alloc::{self, target_dir};
use crate::cmd::{Cmd, root};
use crate::dist;

const LEAKING: &str = "audit_log_append";
const DURATION: &str = "5s";

pub(crate) fn run() -> Result<()> {
    let library = root().join(build_alloc::run()?).join("libjeprobe.so");
    let command = dist::run()?.join("jeprobe");
    let target = root().join(target_dir());
    let folder = target.join("demo");
    fs::create_dir_all(&folder).with_context(|| format!("cannot make {}", folder.display()))?;
    let program = folder.join("leak_demo");
    Cmd::new(std::env::var_os("CC").unwrap_or_else(|| "cc".into()))
        .args(["-O2", "-g", "-pthread", "-o"])
        .arg(&program)
        .arg("tests/programs/leak_demo.c")
        .run()?;

    let server = Server::start(&program, &library)?;
    let (profile, graph) = (folder.join("demo.heap"), folder.join("demo.svg"));
    let (output, success) = Cmd::new(command)
        .args(["attach", "--pid", &server.0.id().to_string(), "--duration", DURATION, "-o"])
        .arg(&profile)
        .arg("--flamegraph")
        .arg(&graph)
        .tee()?;
    drop(server);
    if !success {
        bail!("`jeprobe attach` failed");
    }
    for file in [&profile, &graph] {
        let bytes = fs::metadata(file).with_context(|| format!("attach wrote no {}", file.display()))?.len();
        println!("{} ({bytes} bytes)", file.display());
    }
    match first_row(&output) {
        Some(LEAKING) => {
            println!("{LEAKING} leaks, and is on top");
            Ok(())
        }
        Some(other) => bail!("`{other}` is on top, the program leaks in `{LEAKING}`"),
        None => bail!("attach printed no table"),
    }
}

/// Function of the table's first row: five numbers, three of them shares, then the name.
fn first_row(report: &str) -> Option<&str> {
    report.lines().find_map(|line| {
        let columns: Vec<&str> = line.split_whitespace().collect();
        let [flat, flat_share, sum_share, cum, cum_share, name, ..] = columns[..] else { return None };
        let number = |text: &str| text.trim_end_matches('%').parse::<f64>().is_ok();
        let shares = [flat_share, sum_share, cum_share];
        let is_row = shares.iter().all(|share| share.ends_with('%') && number(share)) && number(flat) && number(cum);
        is_row.then_some(name)
    })
}

/// The leaking program; ended with this value.
struct Server(Child);

impl Server {
    fn start(program: &Path, library: &Path) -> Result<Self> {
        eprintln!("$ LD_PRELOAD={} {}", library.display(), program.display());
        let mut child = Command::new(program)
            .env("LD_PRELOAD", library)
            .stdout(Stdio::piped())
            .spawn()
            .with_context(|| format!("cannot start {}", program.display()))?;
        let stdout = child.stdout.take();
        let server = Self(child);
        let mut line = String::new();
        BufReader::new(stdout.context("the program's stdout was not piped")?)
            .read_line(&mut line)
            .context("cannot read from the program")?;
        if line != "ready\n" {
            bail!("the program said {line:?} instead of `ready`");
        }
        Ok(server)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[cfg(test)]
mod tests {
    use super::first_row;

    #[test]
    fn the_first_row_is_found_below_the_words() {
        let report = "attaching to pid 12: 4 probes\nTotal: 42.1 MiB\n    40.0  95.0%  95.0%     40.0  95.0% audit_log_append\n     2.1   5.0% 100.0%      2.1   5.0% cache_put\n";
        assert_eq!(first_row(report), Some("audit_log_append"));
        assert_eq!(first_row("Total: 0.0 MiB\na b% c% d e% f\n"), None);
    }
}
