//! One run of one case under one peer, measured from outside by the program `measure` (`tests/bench/measure.c`).
#![forbid(unsafe_code)]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};

use super::build::folder;
use super::peers::Peer;
use super::workloads::{Case, Kind, sources};
use crate::build_alloc::target_dir;
use crate::cmd::find_program;

/// What a run cost, children included.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Cost {
    /// ns
    pub(crate) wall: f64,
    /// ns of CPU, user and system.
    pub(crate) cpu: f64,
    /// KiB resident, the most at one time in the largest process.
    pub(crate) peak: f64,
    pub(crate) minor_faults: f64,
}

/// How runs are made.
pub(crate) struct Runner {
    bin: PathBuf,
    scratch: PathBuf,
    /// Factor on the operations of the own programs.
    scale: f64,
}

/// How long anything that must happen at once may take.
const SOON: Duration = Duration::from_secs(20);

impl Runner {
    pub(crate) fn new(bin: PathBuf, scale: f64) -> Result<Runner> {
        let scratch = folder().join(format!("run-{}", std::process::id()));
        fs::create_dir_all(&scratch).with_context(|| format!("cannot create {}", scratch.display()))?;
        Ok(Runner { bin, scratch, scale })
    }

    /// True when this peer can run the case: `jeprobe attach` needs a program that waits for it.
    pub(crate) fn can_run(case: &Case, peer: &Peer) -> bool {
        !peer.attached || matches!(case.workload.kind, Kind::Own { .. })
    }

    pub(crate) fn run(&self, case: &Case, peer: &Peer) -> Result<Cost> {
        let cost = match case.workload.kind {
            Kind::Own { program, ops, variant } => {
                let ops = case.ops(ops, self.scale);
                let args = [case.threads.to_string(), ops.to_string(), variant.to_owned()];
                let mut command = vec![self.bin.join(program).into_os_string().into_string().unwrap_or_default()];
                command.extend(args);
                if peer.attached { self.attached(peer, &command) } else { self.plain(peer, &command, &[]) }
            }
            Kind::Real { program, args, env } => {
                let sources = format!("{}/", sources().display());
                let args = args.iter().map(|arg| arg.replace("@/", &sources));
                let command: Vec<String> = std::iter::once(program.to_owned()).chain(args).collect();
                self.plain(peer, &command, env)
            }
            Kind::Redis { requests } => self.redis(peer, (requests as f64 * self.scale) as u64),
        };
        cost.with_context(|| format!("{} under {}", case.name(), peer.name))
    }

    /// Runs one program of `tests/bench` under a peer and returns what it prints.
    pub(crate) fn output(&self, peer: &Peer, program: &str, args: &[String]) -> Result<String> {
        let mut command = Command::new(self.bin.join(program));
        command.args(args).env("MALLOC_CONF", &peer.conf);
        if let Some(library) = &peer.library {
            command.env("LD_PRELOAD", library);
        }
        let output = command.output().with_context(|| format!("cannot start {program}"))?;
        if !output.status.success() {
            bail!(
                "{program} under {}: {}: {}",
                peer.name,
                output.status,
                String::from_utf8_lossy(&output.stderr).trim()
            );
        }
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }

    fn measure(&self, peer: &Peer, options: &[&Path], command: &[String]) -> Command {
        let mut measure = Command::new(self.bin.join("measure"));
        measure.args(options).arg(self.result()).args(command);
        measure.env("MALLOC_CONF", &peer.conf).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
        if let Some(library) = &peer.library {
            measure.env("BENCH_PRELOAD", library);
        }
        measure.current_dir(&self.scratch);
        measure
    }

    fn result(&self) -> PathBuf {
        self.scratch.join("cost")
    }

    fn plain(&self, peer: &Peer, command: &[String], env: &[(&str, &str)]) -> Result<Cost> {
        let mut measure = self.measure(peer, &[], command);
        measure.envs(env.iter().copied());
        self.finish(measure.spawn().context("cannot start measure")?)
    }

    /// Waits for `measure` and reads what it wrote.
    fn finish(&self, measure: Child) -> Result<Cost> {
        let output = measure.wait_with_output().context("cannot wait for measure")?;
        let words = String::from_utf8_lossy(&output.stderr).trim().to_owned();
        if !output.status.success() {
            bail!("not measured: {words}");
        }
        let text = fs::read_to_string(self.result()).context("measure wrote no result")?;
        let _ = fs::remove_file(self.result());
        let (cost, status) = parse_cost(&text).with_context(|| format!("measure wrote `{}`", text.trim()))?;
        if status != 0 {
            bail!("the program ended with status {status}: {words}");
        }
        Ok(cost)
    }

    /// The server runs under the peer, the load comes from outside; time is that of the load.
    fn redis(&self, peer: &Peer, requests: u64) -> Result<Cost> {
        let socket = self.scratch.join("redis.socket");
        let socket = socket.to_str().context("path of the scratch folder is not text")?;
        let server = ["redis-server", "--port", "0", "--unixsocket", socket, "--save", "", "--appendonly", "no"];
        let measure = self.measure(peer, &[], &server.map(str::to_owned)).spawn().context("cannot start measure")?;
        let loaded = Self::load_redis(socket, requests);
        let stopped = client("redis-cli", socket, &["shutdown", "nosave"]);
        let cost = self.finish(measure);
        let wall = loaded?;
        stopped?;
        Ok(Cost { wall, ..cost? })
    }

    fn load_redis(socket: &str, requests: u64) -> Result<f64> {
        until("redis-server answers", || client("redis-cli", socket, &["ping"]).is_ok())?;
        let count = requests.to_string();
        let started = Instant::now();
        // Lists of small items that grow and shrink, and values of a kilobyte: as many frees as allocations.
        client(
            "redis-benchmark",
            socket,
            &["-q", "-r", "100000", "-n", &count, "-P", "16", "-d", "1000", "-t", "set,get"],
        )?;
        client(
            "redis-benchmark",
            socket,
            &["-q", "-r", "100000", "-n", &count, "-P", "16", "-t", "lpush,lpop,hset,zadd"],
        )?;
        Ok(started.elapsed().as_secs_f64() * 1e9)
    }

    /// The program waits at its gate until `jeprobe attach` says that it is there; time starts then.
    fn attached(&self, peer: &Peer, command: &[String]) -> Result<Cost> {
        let loader = target_dir().join("dist/jeprobe");
        let (gate, ready, pid) =
            (self.scratch.join("gate"), self.scratch.join("ready"), self.scratch.join("ready.pid"));
        for file in [&gate, &ready, &pid] {
            let _ = fs::remove_file(file);
        }
        let made = Command::new("mkfifo").arg(&gate).status().context("cannot start mkfifo")?;
        if !made.success() {
            bail!("mkfifo {}: {made}", gate.display());
        }
        let options = [Path::new("-g"), &gate, Path::new("-r"), &ready];
        let measure = self.measure(peer, &options, command).spawn().context("cannot start measure")?;
        let library = peer.library.as_deref().context("nothing to attach to")?;
        let attached = self.attach(&loader, library, &pid);
        // Without a word the program would wait for ever.
        let opened = fs::write(&ready, "").context("cannot write to the scratch folder");
        let cost = self.finish(measure);
        let mut attach = attached?;
        opened?;
        // It ends by itself when its target has ended.
        let _ = attach.wait();
        cost
    }

    fn attach(&self, loader: &Path, library: &Path, pid: &Path) -> Result<Child> {
        until("measure started the program", || fs::read_to_string(pid).is_ok_and(|text| text.ends_with('\n')))?;
        let pid = fs::read_to_string(pid).context("cannot read the program's pid")?;
        // Asleep with the library mapped: at the gate.
        until("the program waits at its gate", || {
            let read = |file: &str| fs::read_to_string(format!("/proc/{}/{file}", pid.trim())).unwrap_or_default();
            read("maps").contains(&*library.to_string_lossy()) && read("stat").contains(") S ")
        })?;
        let words = self.scratch.join("attach.words");
        let file = fs::File::create(&words).with_context(|| format!("cannot create {}", words.display()))?;
        let attach = Command::new(loader)
            .args(["attach", "--pid", pid.trim(), "--output"])
            .arg(self.scratch.join("attached.heap"))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(file)
            .spawn()
            .with_context(|| format!("cannot start {}", loader.display()))?;
        until("jeprobe attached", || fs::read_to_string(&words).is_ok_and(|text| text.contains("sampling: ")))
            .with_context(|| fs::read_to_string(&words).unwrap_or_default())?;
        Ok(attach)
    }
}

impl Drop for Runner {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.scratch);
    }
}

/// Runs a redis client on a socket to its end.
fn client(program: &str, socket: &str, args: &[&str]) -> Result<()> {
    let program = find_program(program).with_context(|| format!("no {program}: cargo xtask deps"))?;
    let output = Command::new(&program)
        .args(["-s", socket])
        .args(args)
        .stdin(Stdio::null())
        .output()
        .with_context(|| format!("cannot start {}", program.display()))?;
    if !output.status.success() {
        bail!("{}: {}: {}", program.display(), output.status, String::from_utf8_lossy(&output.stderr).trim());
    }
    Ok(())
}

fn until(what: &str, mut condition: impl FnMut() -> bool) -> Result<()> {
    let started = Instant::now();
    while !condition() {
        if started.elapsed() > SOON {
            bail!("waited {} s in vain until {what}", SOON.as_secs());
        }
        sleep(Duration::from_millis(2));
    }
    Ok(())
}

/// The line of `measure`: wall ns, user us, system us, peak KiB, minor faults, status.
fn parse_cost(text: &str) -> Option<(Cost, i64)> {
    let numbers: Vec<f64> = text.split_whitespace().map(str::parse).collect::<Result<_, _>>().ok()?;
    let [wall, user, system, peak, minor_faults, status] = numbers[..] else { return None };
    Some((Cost { wall, cpu: (user + system) * 1e3, peak, minor_faults }, status as i64))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_line_of_measure_is_read() {
        let (cost, status) = parse_cost("1500000 1000 200 4096 33 139\n").unwrap();
        assert_eq!(cost, Cost { wall: 1.5e6, cpu: 1.2e6, peak: 4096.0, minor_faults: 33.0 });
        assert_eq!(status, 139);
        assert!(parse_cost("").is_none() && parse_cost("1 2 3").is_none() && parse_cost("a b c d e f").is_none());
    }
}
