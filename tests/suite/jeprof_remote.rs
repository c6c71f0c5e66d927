//! `jeprof` against a server: which requests it makes, what it keeps, what it says; beside the original where that is
//! installed.

use std::fs;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

use jeprobe_tests::oracle::{JEPROF, is_installed};
use jeprobe_tests::target::find;
use jeprobe_tests::{Ended, Run, TempDir, artefact, skip};

/// Answers like a program that serves profiles, until the test process ends.
struct Server {
    port: u16,
    requests: Arc<Mutex<Vec<String>>>,
}

const NAMES: [(u64, &str); 5] = [
    (0x40_1175, "_ZN4leafEv"),
    (0x40_11c1, "small_user(int)"),
    (0x40_1213, "big_user(int)"),
    (0x40_127f, "main"),
    (0x40_1289, "main"),
];

impl Server {
    fn start(symbols: &'static str, redirects: bool) -> Server {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let port = listener.local_addr().expect("an address").port();
        let requests = Arc::new(Mutex::new(Vec::new()));
        let log = Arc::clone(&requests);
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let log = Arc::clone(&log);
                thread::spawn(move || serve(stream, &log, symbols, redirects));
            }
        });
        Server { port, requests }
    }

    fn take_requests(&self) -> Vec<String> {
        std::mem::take(&mut *self.requests.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

fn serve(mut stream: TcpStream, log: &Mutex<Vec<String>>, symbols: &str, redirects: bool) {
    let mut reader = BufReader::new(stream.try_clone().expect("a second handle"));
    let mut first = String::new();
    let mut length = 0;
    reader.read_line(&mut first).expect("a request");
    loop {
        let mut line = String::new();
        if reader.read_line(&mut line).expect("a header") == 0 || line.trim().is_empty() {
            break;
        }
        if let Some(value) = line.to_ascii_lowercase().strip_prefix("content-length:") {
            length = value.trim().parse().expect("a length");
        }
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body).expect("a body");
    let body = String::from_utf8(body).expect("text");
    let mut words = first.split_whitespace();
    let (method, path) = (words.next().unwrap_or_default().to_owned(), words.next().unwrap_or_default().to_owned());
    let entry = if body.is_empty() { format!("{method} {path}") } else { format!("{method} {path} {body}") };
    log.lock().unwrap_or_else(PoisonError::into_inner).push(entry);
    let page = path.split('?').next().unwrap_or_default();
    let mut extra = String::new();
    let answer = match (method.as_str(), page) {
        ("HEAD", "/pprof/symbol") if redirects => {
            let host = stream.local_addr().expect("an address");
            extra = format!("Location: http://{host}/other/symbol\r\n");
            Some(Vec::new())
        }
        ("POST", "/pprof/symbol" | "/other/symbol") => Some(names(&body).into_bytes()),
        (_, "/pprof/symbol") => Some(symbols.as_bytes().to_vec()),
        (_, "/pprof/cmdline") => Some(b"/opt/app/bin/server\0--flag\0".to_vec()),
        (_, "/pprof/heap") => Some(fs::read(artefact::fixture("report").join("hand.heap")).expect("a profile")),
        _ => None,
    };
    let (status, answer) = match answer {
        Some(answer) => ("200 OK", answer),
        None => ("404 Not Found", b"no such page\n".to_vec()),
    };
    let head = format!("HTTP/1.1 {status}\r\n{extra}Content-Length: {}\r\nConnection: close\r\n\r\n", answer.len());
    let _ = stream.write_all(head.as_bytes());
    if method != "HEAD" {
        let _ = stream.write_all(&answer);
    }
}

fn names(body: &str) -> String {
    let name = |text: &str| {
        let address = u64::from_str_radix(text.trim_start_matches("0x"), 16).ok()?;
        Some(format!("{text}\t{}\n", NAMES.iter().find(|(known, _)| *known == address)?.1))
    };
    body.split('+').filter_map(name).collect()
}

/// Runs a jeprof with a directory of its own for what it fetches.
fn run(program: &std::path::Path, args: &[&str]) -> (Ended, TempDir) {
    let directory = TempDir::new("jeprof-remote");
    let ended =
        Run::new(program).dir(directory.path()).env("JEPROF_TMPDIR", directory.join("kept")).args(args).finish();
    (ended, directory)
}

/// stderr without port, time and directory.
fn plain(text: &str, directory: &TempDir) -> String {
    let text = text.replace(directory.path().to_str().expect("UTF-8"), "DIR");
    let mut result = String::new();
    let mut digits = String::new();
    for c in text.chars().chain(['\n']) {
        if c.is_ascii_digit() {
            digits.push(c);
            continue;
        }
        result.push_str(if digits.len() > 3 { "N" } else { &digits });
        digits.clear();
        result.push(c);
    }
    result
}

#[test]
fn requests_and_results_are_the_originals() {
    if !is_installed() || find("curl").is_none() {
        skip!("no perl jeprof, or no curl for it");
    }
    let server = Server::start("num_symbols: 1\n", false);
    let url = format!("http://127.0.0.1:{}/pprof/heap", server.port);
    for options in [
        &["--text", "--show_bytes"][..],
        &["--raw"],
        &["--text", "--retain=leaf|x y", "--exclude=main"],
        &["--collapsed"],
    ] {
        let mut args = options.to_vec();
        args.push(&url);
        let (theirs, their_directory) = run(JEPROF.as_ref(), &args);
        let their_requests = server.take_requests();
        let (ours, our_directory) = run(&artefact::jeprof(), &args);
        let sorted = |text: &str| {
            let mut lines: Vec<String> = text.lines().map(ToOwned::to_owned).collect();
            if options[0] != "--text" {
                lines.sort();
            }
            lines
        };
        assert_eq!(sorted(&ours.stdout), sorted(&theirs.stdout), "{options:?}");
        assert_eq!(ours.code(), theirs.code(), "{options:?}");
        assert_eq!(plain(&ours.stderr, &our_directory), plain(&theirs.stderr, &their_directory), "{options:?}");
        assert_eq!(server.take_requests(), their_requests, "{options:?}");
        let kept: Vec<_> = fs::read_dir(our_directory.join("kept")).expect("a directory").flatten().collect();
        assert_eq!(kept.len(), 1, "no half-written file is left");
        let name = kept[0].file_name().into_string().expect("UTF-8");
        assert!(name.starts_with("server.") && name.ends_with(".127.0.0.1.pprof.heap"), "{name}");
    }
}

#[test]
fn names_are_asked_where_the_server_sends_them() {
    let server = Server::start("num_symbols: 1\n", true);
    let url = format!("http://127.0.0.1:{}/pprof/heap", server.port);
    let (ended, _directory) = run(&artefact::jeprof(), &["--text", "--show_bytes", &url]);
    let ended = ended.ok();
    assert!(ended.stdout.contains(" leaf\n") && ended.stdout.contains(" small_user\n"), "{}", ended.stdout);
    let requests = server.take_requests();
    assert!(
        requests.last().is_some_and(|last| last.starts_with("POST /other/symbol 0x0000000000401175+")),
        "{requests:?}"
    );
}

#[test]
fn several_servers_are_asked_at_once() {
    let servers = [Server::start("num_symbols: 1\n", false), Server::start("num_symbols: 1\n", false)];
    let url = |at: usize| format!("localhost:{}/pprof/heap", servers[at].port);
    let other = format!("127.0.0.1:{}/pprof/heap", servers[1].port);
    let (ended, _directory) = run(&artefact::jeprof(), &["--text", "--show_bytes", &url(0), &other]);
    let ended = ended.ok();
    assert!(ended.stdout.starts_with("Total: 17772183 B\n"), "{}", ended.stdout);
    assert!(ended.stderr.contains("Fetching 2 profiles, Be patient...\n"), "{}", ended.stderr);
    assert_eq!(ended.stderr.matches("Wrote profile to ").count(), 2, "{}", ended.stderr);
    for server in &servers {
        assert!(server.take_requests().contains(&"GET /pprof/heap".to_owned()));
    }
}

#[test]
fn servers_that_fail_are_named() {
    let stripped = Server::start("num_symbols: 0\n", false);
    let strange = Server::start("hello\n", false);
    let good = Server::start("num_symbols: 1\n", false);
    for (port, service, message) in [
        (stripped.port, "/pprof/heap", "Stripped binary. No symbols available.\n"),
        (strange.port, "/pprof/heap", "Failed to get the number of symbols from http://127.0.0.1:"),
        (good.port, "/pprof/growth", "Failed to get profile: http://127.0.0.1:"),
        (1, "/pprof/heap", "/pprof/symbol doesn't exist"),
    ] {
        let url = format!("http://127.0.0.1:{port}{service}");
        let (ended, _directory) = run(&artefact::jeprof(), &["--text", &url]);
        assert_eq!((ended.code(), ended.stdout.as_str()), (1, ""), "{ended}");
        assert!(ended.stderr.contains(message), "{}", ended.stderr);
    }
}
