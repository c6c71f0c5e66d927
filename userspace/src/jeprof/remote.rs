//! Profiles and names from servers, over HTTP.
//!
//! ```text
//! GET  BASE/pprof/symbol      num_symbols: N
//! GET  BASE/pprof/cmdline     program name, ended by NUL
//! GET  BASE/SERVICE           the profile, kept in DIRECTORY/PROGRAM.TIME.HOST...
//! HEAD BASE/pprof/symbol      Location, if it is to be asked elsewhere
//! POST BASE/pprof/symbol      0xADDRESS+0xADDRESS...  ->  0xADDRESS NAME per line
//! ```
//!
//! Redirections are followed for names only. A reply of 400 and above is a failure. Several profiles are fetched at the
//! same time, one thread each.
#![forbid(unsafe_code)]

use std::env;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use rustc_hash::FxHashMap;
use ureq::Agent;

use crate::image::demangle::demangle;

use super::address::Width;
use super::options::Options;
use super::profile::symbolized::add_line;
use super::stop::{Result, Stop, reason};
use super::streams::say;
use super::temp;
use super::url::{Remote, encode};
use super::values::Kind;

const SYMBOL_PAGE: &str = "/pprof/symbol";
const NAME_PAGE: &str = "/pprof/cmdline";

/// 1 GiB: names of all functions of the largest programs are a few hundred megabytes.
const LONGEST_REPLY: u64 = 1 << 30;

/// Where a profile that was named on the command line lies.
#[derive(Clone, Debug)]
pub struct Fetched {
    pub path: PathBuf,
    /// What a server's service holds; `None` for local files.
    pub kind: Option<Kind>,
}

/// Whether a name is that of a server: whatever is no plain file here. Local files are announced.
pub fn is_remote(name: &OsStr) -> bool {
    if Path::new(name).is_file() {
        say(format_args!("Using local file {}.\n", name.display()));
        return false;
    }
    true
}

fn agent(limit: Option<Duration>) -> Agent {
    Agent::config_builder()
        .max_redirects(0)
        .max_redirects_will_error(false)
        .timeout_global(limit)
        .user_agent(concat!("jeprof/", env!("CARGO_PKG_VERSION")))
        .build()
        .into()
}

fn body(url: &str, limit: Option<Duration>) -> std::result::Result<Box<dyn Read>, String> {
    match agent(limit).get(url).call() {
        Ok(reply) => Ok(Box::new(reply.into_body().into_reader())),
        Err(error) => Err(error.to_string()),
    }
}

fn text(url: &str) -> std::result::Result<Vec<u8>, String> {
    let mut bytes = Vec::new();
    body(url, None)?.take(LONGEST_REPLY).read_to_end(&mut bytes).map_err(|error| reason(&error))?;
    Ok(bytes)
}

/// Why a name was taken for that of a server, when it does not look like one: a path that was misspelt, or that may not be
/// entered.
fn taken_for_server(name: &OsStr) -> String {
    let text = name.to_string_lossy();
    if text.contains(':') || text.contains("/pprof/") {
        return String::new();
    }
    let what = match fs::metadata(name) {
        Ok(meta) if meta.is_dir() => "is a directory".to_owned(),
        Ok(_) => "is no plain file".to_owned(),
        Err(error) => reason(&error),
    };
    format!("{text}: {what}; what is no plain file is taken for the name of a server\n")
}

/// Asks a server whether it knows names.
pub fn check_symbols(name: &OsStr) -> Result<()> {
    let url = Remote::parse(&name.to_string_lossy()).at(SYMBOL_PAGE);
    let reply = match text(&url) {
        Ok(reply) if !reply.is_empty() => reply,
        Ok(_) => return Err(Stop::error(format!("{url} doesn't exist\n"))),
        Err(why) => return Err(Stop::error(format!("{url} doesn't exist: {why}\n{}", taken_for_server(name)))),
    };
    let line = String::from_utf8_lossy(&reply).lines().next().unwrap_or_default().to_owned();
    let count = line.strip_prefix("num_symbols:").filter(|rest| rest.starts_with(char::is_whitespace)).map(str::trim);
    match count {
        Some(count) if !count.is_empty() && count.bytes().all(|byte| byte == b'0') => {
            Err(Stop::error("Stripped binary. No symbols available.\n"))
        }
        Some(count) if !count.is_empty() && count.bytes().all(|byte| byte.is_ascii_digit()) => Ok(()),
        _ => Err(Stop::error(format!("Failed to get the number of symbols from {url}\n"))),
    }
}

/// The name of the program a server runs.
pub fn program_name(name: &OsStr) -> Result<String> {
    let url = Remote::parse(&name.to_string_lossy()).at(NAME_PAGE);
    let failed = |why: &str| Stop::error(format!("Failed to get program name from {url}{why}\n"));
    let reply = text(&url).map_err(|why| failed(&format!(": {why}")))?;
    let first = reply.split(|&byte| byte == 0 || byte == b'\n').next().unwrap_or_default();
    if reply.is_empty() {
        return Err(failed(""));
    }
    Ok(String::from_utf8_lossy(first).replace('\r', ""))
}

/// Fetches what is remote. Local files stay where they are.
pub fn fetch_all(names: &[OsString], program: &str, time: u64, options: &Options) -> Result<Vec<Fetched>> {
    if let [name] = names {
        return Ok(vec![fetch(name, program, time, options, true)?]);
    }
    let mut planned = Vec::with_capacity(names.len());
    for name in names {
        planned.push(if is_remote(name) {
            let remote = Remote::parse(&name.to_string_lossy());
            Fetched { path: directory()?.join(remote.file_name(program, time)), kind: Some(remote.kind()) }
        } else {
            Fetched { path: PathBuf::from(name), kind: None }
        });
    }
    say(format_args!("Fetching {} profiles, Be patient...\n", names.len()));
    let mut results: Vec<Result<Fetched>> = Vec::new();
    thread::scope(|scope| {
        let mut running = Vec::new();
        for (name, plan) in names.iter().zip(&planned) {
            if plan.kind.is_none() {
                let _ = is_remote(name);
            } else {
                match thread::Builder::new().spawn_scoped(scope, move || fetch(name, program, time, options, false)) {
                    Ok(thread) => running.push(thread),
                    Err(error) => {
                        results.push(Err(Stop::error(format!("cannot start a thread that fetches: {error}\n"))));
                    }
                }
            }
        }
        for thread in running {
            results.push(thread.join().unwrap_or_else(|_| Err(Stop::error("a fetching thread ended early\n"))));
        }
    });
    results.into_iter().collect::<Result<Vec<_>>>()?;
    Ok(planned)
}

fn fetch(name: &OsStr, program: &str, time: u64, options: &Options, is_alone: bool) -> Result<Fetched> {
    if !is_remote(name) {
        return Ok(Fetched { path: PathBuf::from(name), kind: None });
    }
    let remote = Remote::parse(&name.to_string_lossy());
    let directory = directory()?;
    let file = remote.file_name(program, time);
    let (path, part) = (directory.join(&file), directory.join(format!(".tmp.{file}")));
    let url = remote.url(options.seconds);
    let limit = remote.is_timed().then(|| Duration::from_secs((options.seconds.max(0) as f64 * 1.01 + 60.0) as u64));
    if remote.is_gathered() {
        let seconds = options.seconds;
        say(format_args!("Gathering CPU profile from {url} for {seconds} seconds to\n  {}\n", path.display()));
        if is_alone {
            say(format_args!("Be patient...\n"));
        }
    } else {
        say(format_args!("Fetching {} profile from {url} to\n  {}\n", remote.service, path.display()));
    }
    let saved = body(&url, limit).and_then(|mut body| {
        let mut out = temp::part(&part).map_err(|error| format!("{}: {}", part.display(), reason(&error)))?;
        io::copy(&mut body, &mut out).map_err(|error| reason(&error))
    });
    if let Err(why) = saved {
        temp::remove(&part);
        return Err(Stop::error(format!("Failed to get profile: {url}: {why}\n{}", taken_for_server(name))));
    }
    fs::rename(&part, &path)
        .map_err(|error| Stop::error(format!("Unable to rename profile {}: {}\n", part.display(), reason(&error))))?;
    temp::forget(&part);
    say(format_args!("Wrote profile to {}\n", path.display()));
    Ok(Fetched { path, kind: Some(remote.kind()) })
}

/// Where fetched profiles are kept; made when it is not there.
fn directory() -> Result<PathBuf> {
    let named = env::var_os("JEPROF_TMPDIR").filter(|name| !name.is_empty() && name != "0");
    let directory = match (named, env::var_os("HOME")) {
        (Some(named), _) => PathBuf::from(named),
        (None, Some(home)) => PathBuf::from(home).join("jeprof"),
        (None, None) => return Err(Stop::error("no place to keep profiles: set JEPROF_TMPDIR or HOME\n")),
    };
    match fs::create_dir(&directory) {
        Ok(()) => Ok(directory),
        Err(_) if directory.is_dir() => Ok(directory),
        Err(error) => {
            let why = reason(&error);
            Err(Stop::die(format!("Unable to create profile directory {}: {why}\n", directory.display())))
        }
    }
}

/// Asks for the names of all addresses.
pub fn fetch_names(
    name: &OsStr,
    addresses: &[u64],
    width: Width,
    program: &mut String,
    options: &Options,
) -> Result<FxHashMap<u64, String>> {
    let texts: Vec<String> = addresses.iter().map(|&address| format!("0x{}", width.text(address))).collect();
    let mut url = redirected(Remote::parse(&name.to_string_lossy()).at(SYMBOL_PAGE));
    let filters: Vec<String> = [("retain", &options.retain), ("exclude", &options.exclude)]
        .into_iter()
        .filter(|(_, expression)| !expression.is_empty())
        .map(|(name, expression)| format!("{name}={}", encode(expression)))
        .collect();
    if !filters.is_empty() {
        url = format!("{url}?{}", filters.join("&"));
    }
    let mut reply = String::new();
    let sent = agent(None)
        .post(&url)
        .header("Content-Type", "application/x-www-form-urlencoded")
        .send(texts.join("+"))
        .map_err(|error| error.to_string())
        .and_then(|answer| {
            let mut bytes = Vec::new();
            let mut body = answer.into_body().into_reader().take(LONGEST_REPLY);
            body.read_to_end(&mut bytes).map_err(|error| reason(&error))?;
            reply = String::from_utf8_lossy(&bytes).into_owned();
            Ok(())
        });
    if let Err(why) = sent {
        say(format_args!("No names from {url}: {why}\n"));
    }
    let mut names = FxHashMap::default();
    for line in reply.lines() {
        if !add_line(&demangled(&line.replace('\r', "")), &mut names, program) {
            break;
        }
    }
    Ok(names)
}

fn redirected(url: String) -> String {
    let Ok(reply) = agent(None).head(&url).call() else { return url };
    let location = reply.headers().get("Location").and_then(|value| value.to_str().ok());
    location.map_or(url, ToOwned::to_owned)
}

/// Every linker name in a line made readable.
fn demangled(line: &str) -> String {
    let mut result = String::with_capacity(line.len());
    let mut rest = line;
    let in_name = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '$' | '.');
    while !rest.is_empty() {
        let length = rest.find(|c: char| !in_name(c)).unwrap_or(rest.len());
        let (name, after) = rest.split_at(length);
        if name.starts_with("_Z") || name.starts_with("_R") || name.starts_with("__Z") {
            result.push_str(&demangle(name));
        } else {
            result.push_str(name);
        }
        let other = after.find(in_name).unwrap_or(after.len());
        result.push_str(&after[..other]);
        rest = &after[other..];
    }
    result
}
