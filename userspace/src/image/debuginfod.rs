//! Debug files from servers, by build-id, over the protocol of elfutils' debuginfod.
//!
//! ```text
//! GET URL/buildid/HEX/debuginfo      the file that `.build-id/xx/rest.debug` would be
//! ```
//!
//! What was fetched is kept where elfutils' client, gdb and others keep it, so that each finds the other's files:
//!
//! | in the cache | holds |
//! |---|---|
//! | `HEX/debuginfo` | the file; empty: no server had it, which is believed for `cache_miss_s` seconds (600) from its time |
//! | `cache_miss_s` | a number in place of 600 |
//!
//! The cache is `$DEBUGINFOD_CACHE_PATH`, else `~/.debuginfod_client_cache` where that exists, else `debuginfod_client` in
//! `$XDG_CACHE_HOME` or `~/.cache`. Of the other variables `DEBUGINFOD_URLS`, `_TIMEOUT`, `_MAXTIME` and `_MAXSIZE` count.
//!
//! A file from a server is taken only when it is an ELF file with the build-id that was asked for. One fetch at a time; each
//! file is asked for once in a run.
#![forbid(unsafe_code)]

use std::collections::{HashMap, HashSet};
use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use ureq::Agent;

use super::elf::{Elf, hex};
use crate::progress::Working;

/// What a server calls a debug file, and its name in the cache.
const NAME: &str = "debuginfo";
/// Seconds without an answer, or for 100 KiB, before a server is given up: elfutils' own default.
const TIMEOUT: Duration = Duration::from_secs(90);
const CONNECT: Duration = Duration::from_secs(10);
/// A server that sends less than this in the time of `TIMEOUT` is given up.
const LEAST_BYTES: u64 = 100 << 10;
/// Debug files of the largest programs are a few gigabytes.
const MOST_BYTES: u64 = 8 << 30;
/// Seconds for which a file that no server had is not asked for again.
const MISS: Duration = Duration::from_mins(10);

/// Servers and the cache of what they gave.
#[derive(Debug)]
pub struct Debuginfod {
    urls: Vec<String>,
    cache: PathBuf,
    timeout: Duration,
    longest: Option<Duration>,
    most_bytes: u64,
    /// Build-ids that were asked for in this run, and their files.
    known: Mutex<HashMap<String, Option<PathBuf>>>,
    failures: Mutex<Vec<String>>,
    /// Servers that could not be reached, which are not asked again in this run.
    down: Mutex<HashSet<String>>,
}

/// How one server answered.
enum Reply {
    Found,
    Missing,
    /// Not at all, and why.
    Unreachable(String),
}

impl Debuginfod {
    /// The servers given, else those of the environment; `None` when there are none, or no place for a cache.
    pub fn new(given: &[String], variable: impl Fn(&str) -> Option<OsString>) -> Option<Debuginfod> {
        let text = |name: &str| variable(name).map(|value| value.to_string_lossy().into_owned()).unwrap_or_default();
        let of_environment = text("DEBUGINFOD_URLS");
        let list = if given.is_empty() { of_environment.split_whitespace().collect() } else { words(given) };
        // `ima:…` says how files are verified, and is no server.
        let urls: Vec<String> = list
            .into_iter()
            .filter(|url| url.contains("://"))
            .map(|url| {
                let bare = url.trim_end_matches('/');
                if bare.ends_with("/buildid") { bare.to_owned() } else { format!("{bare}/buildid") }
            })
            .collect();
        let number = |name: &str| text(name).trim().parse::<u64>().ok().filter(|number| *number > 0);
        (!urls.is_empty()).then_some(Debuginfod {
            urls,
            cache: cache_path(&variable)?,
            timeout: number("DEBUGINFOD_TIMEOUT").map_or(TIMEOUT, Duration::from_secs),
            longest: number("DEBUGINFOD_MAXTIME").map(Duration::from_secs),
            most_bytes: number("DEBUGINFOD_MAXSIZE").unwrap_or(MOST_BYTES),
            known: Mutex::default(),
            failures: Mutex::default(),
            down: Mutex::default(),
        })
    }

    /// What went wrong so far, besides files that no server has.
    pub fn failures(&self) -> Vec<String> {
        self.failures.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The debug file of a build-id: from the cache, or else from the first server that has it.
    pub fn debug_file(&self, build_id: &[u8]) -> Option<PathBuf> {
        if build_id.len() < 2 {
            return None;
        }
        // Held while a file is transferred: another thread may be about to ask for the same one.
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let id = hex(build_id);
        if let Some(found) = known.get(&id) {
            return found.clone();
        }
        let found = self.fetch(&id, build_id);
        known.insert(id, found.clone());
        found
    }

    fn fetch(&self, id: &str, build_id: &[u8]) -> Option<PathBuf> {
        let check = |path: &Path| match Elf::open(path) {
            Ok(elf) if elf.build_id == build_id => Ok(()),
            Ok(_) => Err("the server sent the debug file of another build".to_owned()),
            Err(_) => Err("the server sent something else than a debug file".to_owned()),
        };
        let folder = self.cache.join(id);
        let path = folder.join(NAME);
        match fs::metadata(&path) {
            Ok(meta) if meta.len() > 0 => return check(&path).is_ok().then_some(path),
            Ok(meta) => {
                let age = meta.modified().ok().and_then(|time| SystemTime::now().duration_since(time).ok());
                if age.is_some_and(|age| age < self.miss()) {
                    return None;
                }
                let _gone_already = fs::remove_file(&path);
            }
            Err(_) => {}
        }
        let mut failed = false;
        let mut fail = |text: String| {
            failed = true;
            let mut failures = self.failures.lock().unwrap_or_else(PoisonError::into_inner);
            if !failures.contains(&text) {
                failures.push(text);
            }
        };
        if let Err(error) = fs::DirBuilder::new().recursive(true).mode(0o700).create(&folder) {
            fail(format!("no debuginfod: cannot make the cache {}: {error}", folder.display()));
            return None;
        }
        let part = folder.join(format!("{NAME}.{}.part", std::process::id()));
        let mut down = self.down.lock().unwrap_or_else(PoisonError::into_inner);
        let mut is_complete = true;
        for url in &self.urls {
            if down.contains(url) {
                is_complete = false;
                continue;
            }
            let full = format!("{url}/{id}/{NAME}");
            let reply = self.transfer(&full, &part).and_then(|reply| match reply {
                Reply::Found => check(&part).map(|()| Reply::Found),
                other => Ok(other),
            });
            match reply {
                Ok(Reply::Found) => match fs::rename(&part, &path) {
                    Ok(()) => return Some(path),
                    Err(error) => fail(format!("cannot keep {}: {error}", path.display())),
                },
                Ok(Reply::Missing) => {}
                Ok(Reply::Unreachable(error)) => {
                    fail(format!("debuginfod: {full}: {error}"));
                    down.insert(url.clone());
                }
                Err(error) => fail(format!("debuginfod: {full}: {error}")),
            }
            let _not_there = fs::remove_file(&part);
        }
        if !failed && is_complete {
            // Remembers that no server has it; without the file it is asked for again, no more.
            let _unremembered = File::options().write(true).create_new(true).open(&path);
        }
        None
    }

    fn miss(&self) -> Duration {
        let text = fs::read_to_string(self.cache.join("cache_miss_s")).unwrap_or_default();
        text.trim().parse().map_or(MISS, Duration::from_secs)
    }

    fn transfer(&self, url: &str, to: &Path) -> Result<Reply, String> {
        let agent: Agent = Agent::config_builder()
            .http_status_as_error(false)
            .timeout_connect(Some(CONNECT.min(self.timeout)))
            .timeout_recv_response(Some(self.timeout))
            .timeout_per_read(Some(self.timeout))
            .timeout_global(self.longest)
            .user_agent(concat!("jeprobe/", env!("CARGO_PKG_VERSION")))
            .build()
            .into();
        let began = Instant::now();
        let reply = match agent.get(url).call() {
            Ok(reply) => reply,
            Err(error) => return Ok(Reply::Unreachable(error.to_string())),
        };
        match reply.status().as_u16() {
            200 => {}
            404 => return Ok(Reply::Missing),
            status => return Err(format!("the server answered {status}")),
        }
        let header = |name: &str| reply.headers().get(name)?.to_str().ok()?.trim().parse::<u64>().ok();
        let total = header("content-length").or_else(|| header("x-debuginfod-size"));
        let too_large =
            |bytes: u64| format!("{bytes} bytes are more than {}; raise DEBUGINFOD_MAXSIZE", self.most_bytes);
        if let Some(total) = total.filter(|total| *total > self.most_bytes) {
            return Err(too_large(total));
        }
        let mut file = File::create(to).map_err(|error| format!("cannot write {}: {error}", to.display()))?;
        let mut body = reply.into_body().into_reader();
        let (mut buffer, mut received) = (vec![0; 1 << 16], 0);
        let working = Working::on(format!("fetching {url}"), total.unwrap_or(0));
        loop {
            let count = match body.read(&mut buffer) {
                Ok(count) => count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => return Err(format!("broke off after {received} bytes: {error}")),
            };
            if count == 0 {
                break;
            }
            received += count as u64;
            if received > self.most_bytes {
                return Err(too_large(received));
            }
            let elapsed = began.elapsed();
            if elapsed > self.timeout && received * self.timeout.as_secs() < LEAST_BYTES * elapsed.as_secs() {
                return Err(format!("gave up after {received} bytes in {} s: too slow", elapsed.as_secs()));
            }
            working.done(received);
            file.write_all(&buffer[..count]).map_err(|error| format!("cannot write {}: {error}", to.display()))?;
        }
        if total.is_some_and(|total| total != received) {
            return Err(format!("broke off after {received} bytes"));
        }
        if received == 0 {
            return Err("the server sent an empty file".to_owned());
        }
        Ok(Reply::Found)
    }
}

fn words(given: &[String]) -> Vec<&str> {
    given.iter().flat_map(|list| list.split_whitespace()).collect()
}

fn cache_path(variable: impl Fn(&str) -> Option<OsString>) -> Option<PathBuf> {
    let set = |name: &str| variable(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let home = set("HOME");
    let old = home.as_ref().map(|home| home.join(".debuginfod_client_cache")).filter(|path| path.exists());
    let in_cache = || {
        let base = set("XDG_CACHE_HOME").or_else(|| Some(home.as_ref()?.join(".cache")))?;
        Some(base.join("debuginfod_client"))
    };
    set("DEBUGINFOD_CACHE_PATH").or(old).or_else(in_cache)
}

#[cfg(test)]
mod tests {
    use super::{Debuginfod, cache_path};
    use std::ffi::OsString;
    use std::path::PathBuf;

    #[test]
    fn servers_and_cache_come_from_the_environment() {
        let with = |pairs: &'static [(&str, &str)]| {
            move |name: &str| pairs.iter().find(|(known, _)| *known == name).map(|(_, value)| OsString::from(value))
        };
        assert!(Debuginfod::new(&[], with(&[("HOME", "/nowhere")])).is_none());
        let urls = &[
            ("HOME", "/nowhere"),
            ("DEBUGINFOD_URLS", "ima:enforcing http://a/ https://b/x "),
            ("DEBUGINFOD_TIMEOUT", "7"),
        ];
        let servers = Debuginfod::new(&[], with(urls)).expect("two servers");
        assert_eq!(servers.urls, ["http://a/buildid", "https://b/x/buildid"]);
        assert_eq!(servers.timeout.as_secs(), 7);
        let given = Debuginfod::new(&["http://c/buildid/".to_owned()], with(urls)).expect("a server");
        assert_eq!(given.urls, ["http://c/buildid"]);
        assert_eq!(cache_path(with(&[("HOME", "/h")])), Some(PathBuf::from("/h/.cache/debuginfod_client")));
        assert_eq!(cache_path(with(&[("HOME", "/h"), ("XDG_CACHE_HOME", "/x")])), Some("/x/debuginfod_client".into()));
        assert_eq!(cache_path(with(&[("HOME", "/h"), ("DEBUGINFOD_CACHE_PATH", "/d")])), Some("/d".into()));
        assert_eq!(cache_path(with(&[])), None);
    }
}
