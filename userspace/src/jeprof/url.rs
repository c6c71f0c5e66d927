//! Names of servers and of what they offer.
//!
//! ```text
//! [http[s]://]HOST[:PORT][/PREFIX][/pprof/SERVICE[?QUERY]]
//! ```
#![forbid(unsafe_code)]

use std::fmt::Write as _;

use super::values::Kind;

pub const PROFILE: &str = "/pprof/profile";
const HEAP: &str = "/pprof/heap";
const GROWTH: &str = "/pprof/growth";
const CONTENTION: &str = "/pprof/contention";
const PMUPROFILE: &str = "/pprof/pmuprofile";
const CENSUS: &str = "/pprof/censusprofile";

/// Services whose name ends there, and those that may have a query.
const PLAIN: [&str; 4] = [HEAP, PROFILE, GROWTH, CONTENTION];
const WITH_QUERY: [&str; 4] = [PMUPROFILE, "/pprof/wall", "/pprof/filteredprofile", CENSUS];

/// A server and a service.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Remote {
    pub host: String,
    /// Without the service and without a slash at its end.
    pub base: String,
    pub service: String,
}

impl Remote {
    pub fn parse(name: &str) -> Remote {
        let scheme = ["https://", "http://"].into_iter().find(|scheme| name.starts_with(scheme));
        let rest = &name[scheme.map_or(0, str::len)..];
        let (rest, service) = split_service(rest);
        let host_and_port = rest.split('/').next().unwrap_or_default();
        let host = host_and_port.split(':').next().unwrap_or_default();
        Remote {
            host: host.to_owned(),
            base: format!("{}{rest}", scheme.unwrap_or("http://")),
            service: if matches!(service, "" | "/") { PROFILE } else { service }.to_owned(),
        }
    }

    pub fn at(&self, page: &str) -> String {
        format!("{}{page}", self.base)
    }

    /// Whether the service takes its time to sample.
    pub fn is_timed(&self) -> bool {
        self.service.contains(PROFILE) || self.service.contains(PMUPROFILE)
    }

    /// Whether it is announced as gathering, not as fetching.
    pub fn is_gathered(&self) -> bool {
        self.is_timed() || self.service.contains(CENSUS)
    }

    /// The request that fetches the profile.
    pub fn url(&self, seconds: i64) -> String {
        let url = self.at(&self.service);
        match (self.is_timed(), self.service.contains('?')) {
            (false, _) => url,
            (true, true) => format!("{url}&seconds={seconds}"),
            (true, false) => format!("{url}?seconds={seconds}"),
        }
    }

    pub fn kind(&self) -> Kind {
        let has = |name| self.service.contains(name);
        match () {
            () if self.is_timed() => Kind::Cpu,
            () if has(HEAP) => Kind::Heap,
            () if has(GROWTH) => Kind::Growth,
            () if has(CONTENTION) => Kind::Contention,
            () => Kind::Unknown,
        }
    }

    /// Name of the file that a profile is kept in.
    pub fn file_name(&self, program: &str, time: u64) -> String {
        let program = program.rsplit('/').next().unwrap_or_default();
        let kind = if self.is_timed() { String::new() } else { self.service.replace('/', ".") };
        format!("{program}.{time}.{}{kind}", self.host)
    }
}

/// The service at the end of a name; the earliest one that reaches its end.
fn split_service(text: &str) -> (&str, &str) {
    // The host has at least one sign.
    let first = text.char_indices().nth(1).map_or(text.len(), |(at, _)| at);
    for (at, _) in text.match_indices("/pprof/").filter(|(at, _)| *at >= first) {
        let (before, service) = text.split_at(at);
        let is_plain = PLAIN.contains(&service);
        let is_query = WITH_QUERY
            .iter()
            .any(|name| service.strip_prefix(name).is_some_and(|rest| rest.is_empty() || rest.starts_with('?')));
        if is_plain || is_query {
            return (before, service);
        }
    }
    match text.strip_suffix('/') {
        Some(before) if !before.is_empty() => (before, "/"),
        _ => (text, ""),
    }
}

/// Percent-encoding of a query's value.
pub fn encode(text: &str) -> String {
    let mut encoded = String::new();
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || b"-_.!~*'()".contains(&byte) {
            encoded.push(byte as char);
        } else {
            let _ = write!(encoded, "%{byte:02x}");
        }
    }
    encoded
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn servers_and_services() {
        let heap = Remote::parse("http://h:80/pprof/heap");
        assert_eq!((heap.host.as_str(), heap.base.as_str(), heap.service.as_str()), ("h", "http://h:80", HEAP));
        assert_eq!(heap.url(30), "http://h:80/pprof/heap");
        assert_eq!(heap.file_name("/opt/server", 7), "server.7.h.pprof.heap");
        let bare = Remote::parse("h:80/");
        assert_eq!(bare.url(5), "http://h:80/pprof/profile?seconds=5");
        assert_eq!(bare.file_name("p", 7), "p.7.h");
        let prefixed = Remote::parse("https://h/a/b/pprof/pmuprofile?event=x");
        assert_eq!(prefixed.base, "https://h/a/b");
        assert_eq!(prefixed.url(1), "https://h/a/b/pprof/pmuprofile?event=x&seconds=1");
        assert_eq!(Remote::parse("h/pprof/heap?x").service, PROFILE);
        assert_eq!(Remote::parse("h/pprof/wall?x=1").kind(), Kind::Unknown);
    }

    #[test]
    fn query_values() {
        assert_eq!(encode("a b|c::d(e)"), "a%20b%7cc%3a%3ad(e)");
    }
}
