//! Debug files from servers: `jeprobe report --debuginfod` against a server on the loopback address that behaves, has nothing,
//! lies, is slow, or is not there.

use std::collections::HashMap;
use std::fs;
use std::io::{BufRead as _, BufReader, Write as _};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use jeprobe_tests::{Ended, Run, artefact, skip};

use super::report_names::{DEBIANS, Recorded, text, tool};

/// What a path is answered with.
#[derive(Clone)]
enum Answer {
    File(Vec<u8>),
    Status(&'static str),
    /// Says that much follows and sends a little of it.
    Stalls,
}

struct Server {
    url: String,
    asked: Arc<Mutex<Vec<String>>>,
}

impl Server {
    /// Other paths are answered with 404.
    fn start(answers: HashMap<String, Answer>) -> Server {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let url = format!("http://{}", listener.local_addr().expect("an address"));
        let asked = Arc::new(Mutex::new(Vec::new()));
        let log = asked.clone();
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let (answers, log) = (answers.clone(), log.clone());
                thread::spawn(move || serve(stream, &answers, &log));
            }
        });
        Server { url, asked }
    }

    fn asked(&self) -> usize {
        self.asked.lock().unwrap_or_else(PoisonError::into_inner).len()
    }
}

fn serve(mut stream: TcpStream, answers: &HashMap<String, Answer>, log: &Mutex<Vec<String>>) {
    let mut reader = BufReader::new(stream.try_clone().expect("a second handle"));
    let mut first = String::new();
    reader.read_line(&mut first).expect("a request");
    let mut line = String::new();
    while reader.read_line(&mut line).is_ok_and(|count| count > 2) {
        line.clear();
    }
    let path = first.split(' ').nth(1).unwrap_or_default().to_owned();
    log.lock().unwrap_or_else(PoisonError::into_inner).push(path.clone());
    let send = |stream: &mut TcpStream, status: &str, length: usize, body: &[u8]| {
        let head = format!("HTTP/1.1 {status}\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n");
        // The client may have gone.
        let _ = stream.write_all(head.as_bytes()).and_then(|()| stream.write_all(body));
    };
    match answers.get(&path) {
        Some(Answer::File(bytes)) => send(&mut stream, "200 OK", bytes.len(), bytes),
        Some(Answer::Status(status)) => send(&mut stream, status, 0, b""),
        Some(Answer::Stalls) => {
            send(&mut stream, "200 OK", 1 << 20, b"\x7fELF");
            thread::sleep(Duration::from_secs(20));
        }
        None => send(&mut stream, "404 Not Found", 0, b""),
    }
}

/// A stripped program, its debug file's bytes and where servers have it.
fn stripped() -> (Recorded, Vec<u8>, String) {
    let recorded = Recorded::new("report_sites.c", &["-O1", "-fno-omit-frame-pointer"]);
    let debug = recorded.directory.join("whole.debug");
    tool("objcopy", &["--only-keep-debug", text(&recorded.program), text(&debug)]);
    tool("objcopy", &["--strip-all", text(&recorded.program)]);
    let bytes = fs::read(&debug).expect("a debug file");
    fs::remove_file(&debug).expect("removed");
    let path = format!("/buildid/{}/debuginfo", recorded.build_id);
    (recorded, bytes, path)
}

fn report(recorded: &Recorded, servers: &str, variables: &[(&str, &str)]) -> Ended {
    let mut run = Run::new(artefact::command())
        .dir(recorded.directory.path())
        .env("DEBUGINFOD_CACHE_PATH", recorded.directory.join("cache"))
        .env("DEBUGINFOD_URLS", servers);
    for (name, value) in variables {
        run = run.env(name, value);
    }
    run.args(["report", "--show_bytes", "--lines", text(&recorded.program), "p.heap"]).finish().ok()
}

fn is_named(ended: &Ended) -> bool {
    ended.stdout.contains("site_small") && ended.stdout.contains("report_sites.c:")
}

fn kept(recorded: &Recorded) -> std::path::PathBuf {
    recorded.directory.join("cache").join(&recorded.build_id).join("debuginfo")
}

#[test]
fn a_stripped_program_is_named_by_a_server() {
    if !Path::new(DEBIANS).exists() {
        skip!("no libjemalloc2");
    }
    let (recorded, bytes, path) = stripped();
    let server = Server::start(HashMap::from([(path, Answer::File(bytes.clone()))]));
    let nothing = report(&recorded, "", &[]);
    assert!(!is_named(&nothing) && nothing.stdout.contains("a program+0x"), "{nothing}");
    assert_eq!(server.asked(), 0);
    // The first has nothing, the second is asked then.
    let empty = Server::start(HashMap::new());
    let named = report(&recorded, &format!("{} {}/", empty.url, server.url), &[]);
    assert!(is_named(&named), "{named}");
    assert_eq!(fs::read(kept(&recorded)).expect("kept for other tools"), bytes);
    let of_program = |server: &Server| {
        let asked = server.asked.lock().unwrap_or_else(PoisonError::into_inner);
        asked.iter().filter(|path| path.contains(&recorded.build_id)).count()
    };
    assert_eq!((of_program(&empty), of_program(&server)), (1, 1));
    // From the cache, also when no server is there.
    let again = report(&recorded, "http://127.0.0.1:9", &[]);
    assert_eq!(again.stdout, named.stdout, "{again}");
    assert_eq!((of_program(&empty), of_program(&server)), (1, 1));
}

#[test]
fn what_no_server_has_is_not_asked_for_again() {
    if !Path::new(DEBIANS).exists() {
        skip!("no libjemalloc2");
    }
    let (recorded, bytes, path) = stripped();
    let empty = Server::start(HashMap::new());
    assert!(!is_named(&report(&recorded, &empty.url, &[])));
    assert_eq!(fs::metadata(kept(&recorded)).expect("remembered").len(), 0);
    let asked = empty.asked();
    assert!(!is_named(&report(&recorded, &empty.url, &[])));
    assert_eq!(empty.asked(), asked);
    // It is believed for as long as the cache says.
    fs::write(recorded.directory.join("cache/cache_miss_s"), "0\n").expect("written");
    let server = Server::start(HashMap::from([(path, Answer::File(bytes))]));
    assert!(is_named(&report(&recorded, &server.url, &[])));
}

#[test]
fn a_server_that_fails_is_named_and_the_report_goes_on() {
    if !Path::new(DEBIANS).exists() {
        skip!("no libjemalloc2");
    }
    let (recorded, bytes, path) = stripped();
    let other = fs::read(artefact::command()).expect("an ELF file");
    let (whole, none) = (Answer::File(bytes), &[][..]);
    for (answer, variables, words) in [
        (Answer::File(other), none, "the server sent the debug file of another build"),
        (Answer::File(b"<html>".to_vec()), none, "the server sent something else than a debug file"),
        (Answer::Status("503 Service Unavailable"), none, "the server answered 503"),
        (whole.clone(), &[("DEBUGINFOD_MAXSIZE", "1000")], "raise DEBUGINFOD_MAXSIZE"),
        (Answer::Stalls, &[("DEBUGINFOD_TIMEOUT", "1")], "broke off after 4 bytes"),
    ] {
        let server = Server::start(HashMap::from([(path.clone(), answer)]));
        let ended = report(&recorded, &server.url, variables);
        assert!(!is_named(&ended) && ended.stdout.contains("a program+0x"), "{words}: {ended}");
        let warning = format!("jeprobe: warning: debuginfod: {}{path}: {words}", server.url);
        assert!(ended.stderr.contains(&warning) || ended.stderr.contains(words), "{words}: {ended}");
        assert!(!kept(&recorded).exists(), "{words}: a failure is not remembered as an answer");
    }
    let nobody = report(&recorded, "http://127.0.0.1:9", &[]);
    assert!(nobody.stderr.contains("jeprobe: warning: debuginfod: http://127.0.0.1:9/buildid/"), "{nobody}");
    assert_eq!(nobody.stderr.matches("debuginfod: ").count(), 1, "asked once in a run: {nobody}");
}
