//! `jeprof` and the programs that show its pictures: which are started and how, what they are given, what is left behind.
//!
//! The viewers are scripts in a directory of the test. Each logs the words it was started with and keeps a copy of the file
//! it was given.

use std::fs;
use std::io::Write as _;
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use std::{env, thread};

use jeprobe_tests::oracle::{JEPROF, is_installed, profile_of, program};
use jeprobe_tests::target::find;
use jeprobe_tests::{Ended, Run, TempDir, artefact, skip};

const DEBIANS: &str = "/usr/lib/x86_64-linux-gnu/libjemalloc.so.2";

/// Logs, keeps, and then does what `BEHAVIOUR` says.
const VIEWER: &str = r#"#!/bin/sh
name=${0##*/}
for last; do :; done
if [ "$last" = --version ]; then [ -z "$OLD_GV" ]; exit; fi
printf '%s\n' "$name $*" >> "$SEEN/log"
cp "$last" "$SEEN/$name.copy"
if [ -n "$HANGS" ]; then echo "shown $last"; read -r line; fi
"#;

struct Desk {
    directory: TempDir,
    /// Where the profile is, the program, and the profile's name.
    profile: (PathBuf, String, &'static str),
}

impl Desk {
    fn new() -> Desk {
        let directory = TempDir::new("jeprof-viewers");
        fs::create_dir(directory.join("bin")).expect("made");
        for name in ["gv", "evince", "google-chrome", "kcachegrind"] {
            let path = directory.join("bin").join(name);
            fs::write(&path, VIEWER).expect("written");
            fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).expect("made executable");
        }
        let profile = (artefact::fixture("report"), "./leak".to_owned(), "hand.heap");
        Desk { directory, profile }
    }

    /// Over the profile of a program whose source is at hand.
    fn with_source() -> Desk {
        let name = program("report_sites.c", &["-no-pie", "-fno-omit-frame-pointer"]);
        let profile = profile_of(Path::new(&name), Path::new(DEBIANS), "lg_prof_sample:0");
        let desk = Desk::new();
        fs::copy(profile.join("p.heap"), desk.directory.join("p.heap")).expect("copied");
        Desk { profile: (desk.directory.path().to_owned(), name, "p.heap"), ..desk }
    }

    /// A jeprof over a small profile, with the viewers first in the path and no display for real ones.
    fn run(&self, program: impl AsRef<Path>, args: &[&str]) -> Run {
        let path = format!("{}:{}", self.directory.join("bin").display(), env::var("PATH").unwrap_or_default());
        Run::new(program)
            .dir(&self.profile.0)
            .env("PATH", path)
            .env("SEEN", self.directory.path())
            .env("DISPLAY", "")
            .env("WAYLAND_DISPLAY", "")
            .args(args)
            .args([&self.profile.1, self.profile.2])
    }

    /// What was started, without process numbers.
    fn log(&self) -> Vec<String> {
        let text = fs::read_to_string(self.directory.join("log")).unwrap_or_default();
        text.lines().map(nameless).collect()
    }

    fn copy(&self, viewer: &str) -> Vec<u8> {
        let path = self.directory.join(format!("{viewer}.copy"));
        fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
    }

    /// Files that viewers were given.
    fn given(&self) -> Vec<PathBuf> {
        let text = fs::read_to_string(self.directory.join("log")).unwrap_or_default();
        text.lines().filter_map(|line| line.rsplit(' ').next()).map(PathBuf::from).collect()
    }
}

/// `/tmp/jeprof123.0.ps` with `N` for the process.
fn nameless(line: &str) -> String {
    let Some((before, after)) = line.split_once("/tmp/jeprof") else { return line.to_owned() };
    format!("{before}/tmp/jeprofN{}", after.trim_start_matches(|c: char| c.is_ascii_digit()))
}

/// Lines of stderr that a jeprof wrote itself.
fn own_words(ended: &Ended) -> Vec<String> {
    let own = ["Loading web page", "Dropping nodes", "gv ", "Writing callgrind", "Starting 'kcachegrind", "Could not"];
    ended
        .stderr
        .lines()
        .map(|line| line.trim_start_matches("(jeprof) "))
        .filter(|line| own.iter().any(|own| line.starts_with(own)))
        .map(nameless)
        .collect()
}

/// Waits until it is so.
#[track_caller]
fn eventually(what: &str, is_so: impl Fn() -> bool) {
    let deadline = Instant::now() + Duration::from_mins(1);
    while !is_so() {
        assert!(Instant::now() < deadline, "never: {what}");
        thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn pictures_go_to_the_viewers_that_the_original_starts() {
    if !is_installed() || find("dot").is_none() {
        skip!("no perl jeprof, or no dot for it");
    }
    for (args, viewer, begins) in [
        (&["--gv"][..], "gv", "%!PS-Adobe"),
        (&["--gv", "--scale=-3"], "gv", "%!PS-Adobe"),
        (&["--evince", "--show_bytes"], "evince", "%PDF-"),
        (&["--web", "--focus=big"], "google-chrome", "<?xml"),
    ] {
        for old in ["", "1"] {
            let (ours, theirs) = (Desk::new(), Desk::new());
            let got = ours.run(artefact::jeprof(), args).env("OLD_GV", old).finish();
            let wanted = theirs.run(JEPROF, args).env("OLD_GV", old).finish();
            assert_eq!(ours.log(), theirs.log(), "{args:?} {got}");
            assert_eq!(own_words(&got), own_words(&wanted), "{args:?}");
            assert_eq!((got.code(), &got.stdout), (wanted.code(), &wanted.stdout), "{args:?}");
            let copy = ours.copy(viewer);
            assert!(copy.starts_with(begins.as_bytes()), "{args:?}: {}", String::from_utf8_lossy(&copy[..20]));
            // A browser has some seconds to read it.
            eventually("the file is removed", || ours.given().iter().all(|path| !path.exists()));
        }
    }
}

#[test]
fn commands_start_viewers_and_their_files_stay_until_the_end() {
    if !is_installed() || find("dot").is_none() || !Path::new(DEBIANS).exists() {
        skip!("no perl jeprof, no dot for it, or no libjemalloc2");
    }
    let commands = "gv\nweb main -keep\nevince site_\nweblist ^main\ncallgrind\nquit\n";
    let run = |program: &Path| {
        let desk = Desk::with_source();
        let ended = desk.run(program, &["--interactive", "--show_bytes"]).input(commands).finish().ok();
        // Those in the background may start later.
        eventually("five viewers", || desk.log().len() == 5);
        let mut log = desk.log();
        log.sort();
        (desk, ended, log)
    };
    let (ours, got, log) = run(&artefact::jeprof());
    let (_theirs, wanted, their_log) = run(JEPROF.as_ref());
    assert_eq!(log, their_log);
    assert_eq!(got.stdout, wanted.stdout);
    assert_eq!(own_words(&got), own_words(&wanted));
    assert!(ours.given().iter().all(|path| !path.exists()), "{:?}", ours.given());
}

/// A page without its markup, line by line.
fn text_of(page: &str) -> Vec<String> {
    let body = page.split_once("<body").map_or(page, |(_, body)| body);
    let (mut text, mut is_inside) = (String::new(), true);
    for c in body.chars() {
        match c {
            '<' => is_inside = true,
            '>' if is_inside => is_inside = false,
            _ if is_inside => {}
            _ => text.push(c),
        }
    }
    let text = text.replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&");
    let words = |line: &str| line.split_whitespace().collect::<Vec<_>>().join(" ");
    text.lines().map(words).filter(|line| !line.is_empty()).collect()
}

#[test]
fn a_listing_in_the_browser_says_what_the_originals_says() {
    if !is_installed() || !Path::new(DEBIANS).exists() {
        skip!("no perl jeprof, or no libjemalloc2");
    }
    let run = |program: &Path| {
        let desk = Desk::with_source();
        desk.run(program, &["--interactive", "--show_bytes"]).input("weblist ^(main|site_)\n").finish().ok().discard();
        text_of(&String::from_utf8(desk.copy("google-chrome")).expect("UTF-8"))
    };
    let (ours, theirs) = (run(&artefact::jeprof()), run(JEPROF.as_ref()));
    assert!(ours.len() > 20, "{ours:#?}");
    assert_eq!(ours, theirs);
    // Nothing matches: no page.
    let desk = Desk::new();
    desk.run(artefact::jeprof(), &["--interactive"]).input("weblist nosuch\n").finish().ok().discard();
    assert_eq!(desk.log(), [""; 0]);
}

#[test]
fn a_viewer_that_is_not_there_is_told() {
    for (args, message) in [(&["--gv"], "Could not run gv.\n"), (&["--evince"], "Could not run evince.\n")] {
        let desk = Desk::new();
        let ended = desk.run(artefact::jeprof(), args).env("PATH", desk.directory.path()).finish();
        assert_eq!((ended.code(), ended.stdout.as_str()), (0, ""), "{ended}");
        assert!(ended.stderr.contains(message), "{ended}");
    }
}

#[test]
fn signals_leave_no_temporary_file() {
    for (signal, code) in [(libc::SIGTERM, None), (libc::SIGHUP, None), (libc::SIGINT, Some(1))] {
        let desk = Desk::new();
        // The browser has ended, and the file is kept until the end of the session.
        let mut target = desk.run(artefact::jeprof(), &["--interactive"]).spawn();
        target.tell("web");
        eventually("a browser was started", || desk.log().len() == 1);
        target.tell("top1");
        target.wait_for_text("leaf");
        let given = desk.given();
        assert!(given[0].exists(), "{given:?}");
        target.signal(signal);
        // Its input is still open: nothing but the signal ends it.
        eventually("the file is removed", || !given[0].exists());
        let ended = target.finish();
        assert_eq!((ended.status.code(), ended.signal()), (code, code.is_none().then_some(signal)), "{ended}");
    }
}

#[test]
fn an_interrupt_is_the_viewers_while_one_is_waited_for() {
    let desk = Desk::new();
    let mut target = desk.run(artefact::jeprof(), &["--gv"]).env("HANGS", "1").spawn();
    let shown = target.wait_for("shown ");
    let path = Path::new(shown.trim_start_matches("shown "));
    target.signal(libc::SIGINT);
    assert!(path.exists());
    // It reads its end of input, and so ends the run.
    let ended = target.finish();
    assert_eq!(ended.code(), 0, "{ended}");
    assert!(!path.exists());
}

#[test]
fn an_interrupt_while_a_profile_arrives_leaves_no_part_of_it() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let port = listener.local_addr().expect("an address").port();
    thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.expect("a connection");
            let mut reader = std::io::BufReader::new(stream.try_clone().expect("a second handle"));
            let mut first = String::new();
            std::io::BufRead::read_line(&mut reader, &mut first).expect("a request");
            let answer = if first.contains("symbol") {
                "HTTP/1.1 200 OK\r\nContent-Length: 15\r\nConnection: close\r\n\r\nnum_symbols: 1\n"
            } else if first.contains("cmdline") {
                "HTTP/1.1 200 OK\r\nContent-Length: 4\r\nConnection: close\r\n\r\nprog"
            } else {
                "HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\nheap_v2/1\n"
            };
            stream.write_all(answer.as_bytes()).expect("sent");
            if answer.contains("1000") {
                // The rest never comes.
                thread::spawn(move || reader.lines_until_closed());
            }
        }
    });
    let directory = TempDir::new("jeprof-part");
    let kept = directory.join("kept");
    let target = Run::new(artefact::jeprof())
        .env("JEPROF_TMPDIR", &kept)
        .args(["--text", &format!("http://127.0.0.1:{port}/pprof/heap")])
        .spawn();
    let files = || fs::read_dir(&kept).map_or(0, Iterator::count);
    eventually("a part is there", || files() == 1);
    target.signal(libc::SIGINT);
    let ended = target.finish();
    assert_eq!(ended.code(), 1, "{ended}");
    assert_eq!(files(), 0);
}

trait UntilClosed {
    fn lines_until_closed(self);
}

impl<R: std::io::BufRead> UntilClosed for R {
    fn lines_until_closed(mut self) {
        let mut rest = Vec::new();
        let _closed = self.read_to_end(&mut rest);
    }
}

#[test]
fn pictures_on_stdout_are_files_of_their_kind() {
    if !is_installed() || find("dot").is_none() || find("ps2pdf").is_none() {
        skip!("no perl jeprof, or no dot and ps2pdf for it");
    }
    let desk = Desk::new();
    for (mode, begins) in [("--ps", "%!PS-Adobe"), ("--pdf", "%PDF-"), ("--svg", "<?xml"), ("--gif", "GIF89a")] {
        let got = desk.run(artefact::jeprof(), &[mode]).finish();
        let wanted = desk.run(JEPROF, &[mode]).finish();
        assert_eq!(got.code(), wanted.code(), "{mode} {got}");
        assert!(got.stdout.starts_with(begins) && wanted.stdout.starts_with(begins), "{mode}");
        assert_eq!(own_words(&got), own_words(&wanted), "{mode}");
        // Nothing to draw.
        let none = |program: &Path| desk.run(program, &[mode, "--focus=nosuch"]).finish();
        let (got, wanted) = (none(&artefact::jeprof()), none(JEPROF.as_ref()));
        assert_eq!((got.code(), got.stdout.as_str()), (1, ""), "{mode}");
        assert_eq!((got.code(), got.stderr.lines().last()), (wanted.code(), wanted.stderr.lines().last()), "{mode}");
    }
    // A GIF has its size in its head: that of the drawing in SVG, at 96 pixels to the inch.
    let svg = desk.run(artefact::jeprof(), &["--svg"]).finish().ok().stdout;
    let view: Vec<f64> = svg
        .split_once("viewBox=\"")
        .and_then(|(_, rest)| rest.split('"').next())
        .expect("a size")
        .split(' ')
        .map(|number| number.parse().expect("a number"))
        .collect();
    let path = desk.directory.join("picture.gif");
    let command = format!("'{}' --gif ./leak hand.heap > '{}'", artefact::jeprof().display(), path.display());
    Run::new("/bin/sh").dir(artefact::fixture("report")).args(["-c", &command]).finish().ok().discard();
    let bytes = fs::read(&path).expect("a picture");
    let side = |at: usize| f64::from(u16::from_le_bytes([bytes[at], bytes[at + 1]]));
    assert_eq!((side(6), side(8)), ((view[2] * 4.0 / 3.0).ceil(), (view[3] * 4.0 / 3.0).ceil()));
}
