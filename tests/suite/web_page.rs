//! `jeprobe web`: what the page shows and does in a browser, and what the server refuses.

use std::fmt::Write as _;
use std::io::{Read as _, Write as _};
use std::path::PathBuf;

use jeprobe_tests::browser::{self, Browser};
use jeprobe_tests::http;
use jeprobe_tests::truth::{self, Frames};
use jeprobe_tests::{Run, Target, TempDir, artefact, compile, skip};

/// Escape, Enter, arrows and Tab in the driver's protocol.
const ESCAPE: &str = "\u{e00c}";
const ENTER: &str = "\u{e007}";
const UP: &str = "\u{e013}";
const DOWN: &str = "\u{e015}";
const LEFT: &str = "\u{e012}";
const RIGHT: &str = "\u{e014}";
const TAB: &str = "\u{e004}";

/// A program that holds known amounts: every allocation is a sample, so the numbers are exact.
fn holders(arguments: &[&str]) -> Target {
    Run::preloaded(compile::program("holders.c", &[]))
        .args(arguments)
        .conf("prof:true,prof_active:true,lg_prof_sample:0")
        .spawn()
}

/// Three dumps of it, 4 MiB more each time.
fn series(directory: &TempDir) -> Vec<PathBuf> {
    let prefix = directory.join("run");
    let mut target = holders(&[prefix.to_str().expect("a UTF-8 path")]);
    for round in 0..3 {
        target.wait_for(&format!("ready {round}"));
        target.tell(if round < 2 { "on" } else { "end" });
    }
    target.finish().ok().discard();
    (0..3).map(|round| directory.join(format!("run.{round}.heap"))).collect()
}

/// A running server.
struct Page {
    server: Target,
    url: String,
    port: u16,
    token: String,
}

impl Page {
    fn serve(arguments: &[&str]) -> Page {
        let mut server = Run::new(artefact::command()).args(["web", "--no-open"]).args(arguments).spawn();
        let url = server.wait_for("http://127.0.0.1:");
        let rest = url.strip_prefix("http://127.0.0.1:").expect("the address");
        let (port, token) = rest.trim_end_matches('/').split_once('/').expect("port and token");
        let (port, token) = (port.parse().expect("a port"), token.to_owned());
        Page { server, url, port, token }
    }

    fn of_series(files: &[PathBuf], more: &[&str]) -> Page {
        let mut arguments = more.to_vec();
        arguments.extend(files.iter().map(|path| path.to_str().expect("a UTF-8 path")));
        Page::serve(&arguments)
    }

    /// A browser that shows it.
    fn opened(&self) -> Browser {
        let browser = Browser::start(1280, 800);
        browser.open(&self.url);
        drawn(&browser, "flame");
        browser
    }

    fn end(self) {
        self.server.signal(libc::SIGINT);
        self.server.finish().ok().discard();
    }
}

/// The first profiles of a series as a page, and a browser that shows it. The directory holds the whole series.
fn first_look(count: usize) -> (TempDir, Page, Browser) {
    let directory = TempDir::new("web");
    let page = Page::of_series(&series(&directory)[..count], &[]);
    let browser = page.opened();
    (directory, page, browser)
}

fn drawn(browser: &Browser, view: &str) {
    browser.wait(&format!("document.documentElement.dataset.drawn === '{view}'"));
}

#[test]
fn the_first_look_says_who_holds_the_heap_and_leads_to_the_source() {
    if let Some(why) = browser::missing() {
        skip!("{why}");
    }
    let (_profiles, page, browser) = first_look(1);
    // 128 + 64 + 64 blocks of 64 KiB, and what the C library took for its output.
    let total = browser.text("document.getElementById('total').innerText");
    assert!(total.starts_with("16.0 MiB"), "{total}");
    let holders = browser.text("document.querySelector('#side .rows').innerText");
    assert!(holders.contains("new_block"), "{holders}");
    assert_eq!(browser.text("getComputedStyle(document.getElementById('tab-timeline')).display"), "none");
    let frames = "document.querySelectorAll('.frame').length";
    let all: usize = browser.text(frames).parse().expect("a number");
    assert!(all > 5, "{all} frames");
    browser.screenshot("flame");

    // Zoom by a click, the address keeps it, back undoes it.
    browser.click("[aria-label^='keep_cache']");
    browser.wait("location.hash.includes('zoom=') && document.querySelector('.frame.chosen')");
    let side = browser.text("document.getElementById('side').innerText");
    assert!(side.contains("keep_cache") && side.contains("8.0 MiB"), "{side}");
    assert!(side.contains("main") && side.contains("new_block"), "callers and callees: {side}");
    let width = "document.querySelector(\"[aria-label^='keep_cache']\").offsetWidth";
    let zoomed: u32 = browser.text(width).parse().expect("a number");
    browser.screenshot("flame-zoomed");
    let address = browser.text("location.href");
    browser.back();
    browser.wait("!location.hash.includes('zoom=')");
    let whole: u32 = browser.text(width).parse().expect("a number");
    assert!(zoomed > whole, "{zoomed} pixels when zoomed, {whole} before");
    browser.open("about:blank");
    browser.open(&address);
    drawn(&browser, "flame");
    assert_eq!(browser.text("document.getElementById('chosen').innerText"), "keep_cache");

    // From a function to its source.
    browser.click("#to-source");
    drawn(&browser, "source");
    browser.wait("document.querySelector('table.code tr.hot')");
    let hot = browser.text("document.querySelector('table.code tr.hot').innerText");
    assert!(hot.contains("blocks[count++] = new_block();") && hot.contains("8.0 MiB"), "{hot}");
    browser.screenshot("source");
    browser.click("#code");
    browser.wait("document.querySelector('table.code tr.place')");
    let hot = browser.text("document.querySelector('table.code tr.hot').innerText");
    assert!(hot.contains("call") && hot.contains("new_block") && hot.contains("8.0 MiB"), "{hot}");
    browser.screenshot("code");
    assert_eq!(browser.log(), "");
    page.end();
}

#[test]
fn keys_search_table_and_graph_work() {
    if let Some(why) = browser::missing() {
        skip!("{why}");
    }
    let (_profiles, page, browser) = first_look(1);

    // Arrows walk from the root to its callee and back, Enter zooms, Escape goes back.
    browser.press(UP);
    browser.wait("document.activeElement.matches('.frame') && document.activeElement.ariaLevel === '2'");
    browser.press(ENTER);
    browser.wait("location.hash.includes('zoom=')");
    browser.press(ESCAPE);
    browser.wait("!location.hash.includes('zoom=')");
    browser.press(DOWN);
    browser.press("i");
    browser.wait("location.hash.includes('down=1')");
    browser.press("i");

    browser.press("/");
    browser.wait("document.activeElement.id === 'search'");
    browser.press("^keep_");
    browser.wait("document.querySelectorAll('.frame.hit').length >= 2");
    let found = browser.text("document.getElementById('found').innerText");
    assert!(found.starts_with("2 functions match: 12.0 MiB, 75"), "{found}");
    browser.screenshot("flame-search");
    browser.press(ENTER);

    browser.press("3");
    drawn(&browser, "table");
    let rows = browser.text(
        "[...document.querySelectorAll('table.functions tbody tr')].map((row) => row.cells[4].innerText).join(' ')",
    );
    assert!(rows == "keep_cache keep_sessions" || rows == "keep_sessions keep_cache", "{rows}");
    browser.press(ESCAPE);
    browser.wait("document.querySelectorAll('table.functions tbody tr').length > 3");
    browser.click("[data-sort='whole']");
    browser.wait("location.hash.includes('sort=whole-down')");
    let first = browser.text("document.querySelector('table.functions tbody tr').cells[2].innerText");
    assert!(first.starts_with("16.0 MiB"), "{first}");
    browser.click("[data-sort='whole']");
    browser.wait("document.querySelector('th[aria-sort=ascending]')");
    browser.screenshot("table");

    browser.press("2");
    drawn(&browser, "graph");
    browser.wait("document.querySelectorAll('.graph .node').length >= 4");
    let names =
        browser.text("[...document.querySelectorAll('.graph .node text')].map((text) => text.textContent).join(' ')");
    assert!(names.contains("keep_cache") && names.contains("8.0 MiB"), "{names}");
    // Nothing overlaps: boxes and labels of arrows, as the browser placed them.
    let overlaps = browser.run(
        "const rects = [...document.querySelectorAll('.graph .node rect, .graph .edge text')].map((it) => it.getBoundingClientRect());
         const names = [...document.querySelectorAll('.graph .node rect, .graph .edge text')].map((it) => it.parentNode.textContent.trim());
         const pairs = [];
         rects.forEach((a, i) => rects.slice(i + 1).forEach((b, j) => {
           if (a.right > b.left + 0.5 && b.right > a.left + 0.5 && a.bottom > b.top + 0.5 && b.bottom > a.top + 0.5) {
             pairs.push(`${names[i]} / ${names[i + 1 + j]}`);
           }
         }));
         return pairs.join('\\n');",
    );
    assert_eq!(overlaps.as_str(), Some(""), "{overlaps}");
    let outside = browser.run(
        "return [...document.querySelectorAll('.graph .node')].filter((node) => {
           const box = node.querySelector('rect').getBoundingClientRect();
           return [...node.querySelectorAll('text')].some((text) => {
             const at = text.getBoundingClientRect();
             return at.left < box.left - 1 || at.right > box.right + 1 || at.top < box.top - 2 || at.bottom > box.bottom + 2;
           });
         }).map((node) => node.textContent).join('\\n');",
    );
    assert_eq!(outside.as_str(), Some(""), "{outside}");
    let before = browser.text("document.querySelector('.graph svg').getAttribute('viewBox')");
    browser.click("#nearer");
    browser.wait(&format!("document.querySelector('.graph svg').getAttribute('viewBox') !== '{before}'"));
    browser.press("0");
    browser.click(".graph .node");
    browser.wait("document.querySelector('.graph .node.chosen') && location.hash.includes('fn=')");
    browser.screenshot("graph");

    walk_boxes(&browser);

    // Dark and light.
    let background = browser.text("getComputedStyle(document.body).backgroundColor");
    browser.press("d");
    browser.wait(&format!("getComputedStyle(document.body).backgroundColor !== '{background}'"));
    browser.screenshot("graph-dark");
    browser.press("1");
    drawn(&browser, "flame");
    browser.screenshot("flame-dark");
    assert_eq!(browser.log(), "");
    page.end();
}

/// Chooses a box by keys: Tab leads to one, arrows to callee, neighbour and caller, Enter chooses.
fn walk_boxes(browser: &Browser) {
    browser.press(ESCAPE);
    browser.wait("!location.hash.includes('fn=') && !document.querySelector('.graph .node.chosen')");
    assert_eq!(browser.text("document.querySelectorAll('.graph .node[tabindex=\"0\"]').length"), "1");
    browser.run("document.getElementById('boxes').focus()");
    browser.press(TAB);
    let focused = || browser.text("document.activeElement.getAttribute('aria-label') ?? ''");
    let first = focused();
    assert!(first.contains(", itself: ") && first.contains("with what it calls: 16.0 MiB"), "{first}");
    let mut way = vec![first];
    while !way.last().is_some_and(|label| label.starts_with("new_block,")) {
        browser.press(DOWN);
        let label = focused();
        assert!(!way.contains(&label), "no way down to the leaf: {way:?}, then {label}");
        way.push(label);
    }
    assert!(way.iter().any(|label| label.starts_with("main,")), "{way:?}");
    browser.press(UP);
    let caller = focused();
    assert!(caller.starts_with("keep_cache,"), "the largest caller: {caller}");
    browser.press(RIGHT);
    let beside = focused();
    browser.press(LEFT);
    assert!(beside != caller || focused() != caller, "boxes stand beside it: {beside}");
    browser.press(ENTER);
    browser.wait("document.activeElement.getAttribute('aria-pressed') === 'true' && location.hash.includes('fn=')");
    let is_seen = "const box = document.activeElement.getBoundingClientRect(); const room = document.querySelector('.graph svg').getBoundingClientRect(); return box.left >= room.left - 1 && box.right <= room.right + 1 && box.top >= room.top - 1 && box.bottom <= room.bottom + 1;";
    assert_eq!(browser.run(is_seen).as_bool(), Some(true), "the box is in view");
    browser.screenshot("graph-keys");
}

#[test]
fn a_series_has_differences_and_a_timeline() {
    if let Some(why) = browser::missing() {
        skip!("{why}");
    }
    let (profiles, page, browser) = first_look(3);
    // The newest first: two rounds more than the first.
    let total = browser.text("document.getElementById('total').innerText");
    assert!(total.starts_with("24.0 MiB"), "{total}");
    browser.press("5");
    drawn(&browser, "timeline");
    browser.wait("document.querySelectorAll('.chart .band').length > 0");
    let words = browser.text("document.querySelector('.chart svg').textContent");
    assert!(words.contains("run.0.heap") && words.contains("run.2.heap") && words.contains("new_block"), "{words}");
    browser.screenshot("timeline");

    browser.click("#compare");
    drawn(&browser, "flame");
    browser.wait("document.querySelector('.total.grew')");
    let total = browser.text("document.querySelector('.total').innerText");
    assert!(total.starts_with("+8.0 MiB") && total.contains("from 16.0 MiB to 24.0 MiB"), "{total}");
    let label = browser.text("document.querySelector(\"[aria-label^='grow_log']\").ariaLabel");
    assert!(label.contains("+8.0 MiB, from 4.0 MiB to 12.0 MiB"), "{label}");
    let label = browser.text("document.querySelector(\"[aria-label^='keep_cache']\").ariaLabel");
    assert!(label.contains("0 B, from 8.0 MiB to 8.0 MiB"), "{label}");
    browser.screenshot("difference");
    browser.press("2");
    drawn(&browser, "graph");
    let names = browser.text("document.querySelector('.graph svg').textContent");
    assert!(names.contains("grow_log") && !names.contains("keep_cache"), "{names}");
    assert_eq!(browser.log(), "");
    page.end();

    // The base of the command line is the difference at first.
    let files = profiles.files(".heap");
    let base = files[0].to_str().expect("a UTF-8 path");
    let page = Page::of_series(&files[2..], &["--base", base]);
    browser.open(&page.url);
    browser.wait("document.querySelector('.total.grew')?.innerText.startsWith('+8.0 MiB')");
    page.end();
}

/// A difference says what both sides rest on, its source what changed, and that the source was changed since.
#[test]
fn a_difference_tells_both_sides_and_the_lines_that_changed() {
    if let Some(why) = browser::missing() {
        skip!("{why}");
    }
    let directory = TempDir::new("web-difference");
    let source = directory.join("grow.c");
    let text = "#include <stdlib.h>\nvoid *volatile kept;\nint main(int count, char **arguments) {\n  \
                for (int at = 0; at < count; at++)\n    kept = malloc(4 << 20);\n  return 0;\n}\n";
    std::fs::write(&source, text).expect("a source");
    let program = directory.join("grow");
    Run::new("cc").args(["-g", "-O0", "-o"]).args([&program, &source]).finish().ok().discard();
    let file = |name: &str, interval: u32, arguments: &[&str]| {
        let prefix = directory.join(name);
        let conf = format!("prof:true,prof_final:true,lg_prof_sample:{interval},prof_prefix:{}", prefix.display());
        Run::preloaded(&program).args(arguments).conf(&conf).finish().ok().discard();
        let files = directory.files(".heap");
        let of = |path: &&PathBuf| path.file_name().is_some_and(|file| file.to_string_lossy().starts_with(name));
        files.iter().find(of).expect("a profile at the end").clone()
    };
    let (exact, sampled) = (file("exact", 0, &[]), file("sampled", 12, &["more", "more"]));
    let page = Page::of_series(&[sampled], &["--base", exact.to_str().expect("a UTF-8 path")]);
    let browser = page.opened();
    let summary = browser.text("document.getElementById('summary').innerText");
    assert!(summary.contains("one per 4.0 KiB; before: every allocation counted"), "{summary}");
    browser.press("4");
    drawn(&browser, "source");
    browser.wait("document.querySelector('table.code tr.hot')");
    let hot = browser.text("document.querySelector('table.code tr.hot').innerText");
    assert!(hot.starts_with("+8.0 MiB") && hot.contains("malloc(4 << 20)"), "{hot}");
    let remarks = "[...document.querySelectorAll('.remark')].map((remark) => remark.innerText).join()";
    assert_eq!(browser.text(remarks), "");
    let later = std::fs::File::options()
        .append(true)
        .open(&source)
        .and_then(|file| file.set_modified(std::time::SystemTime::now() + std::time::Duration::from_mins(1)));
    later.expect("a time");
    browser.open("about:blank");
    browser.open(&format!("{}#view=source", page.url));
    browser.wait("document.querySelector('.remark')");
    let said = browser.text(remarks);
    assert!(said.contains("grow.c is newer than the program"), "{said}");
    assert_eq!(browser.log(), "");
    page.end();
}

/// Profiles of another kind have their units on the page.
#[test]
fn times_are_no_bytes() {
    if let Some(why) = browser::missing() {
        skip!("{why}");
    }
    let directory = TempDir::new("web-contention");
    let path = directory.join("waits.prof");
    let body = "--- contention:\ncycles/second = 1000000000\nsampling period = 1\n3000000000 3 @ 0x401175 0x4011c2\n";
    std::fs::write(&path, body).expect("a profile");
    let page = Page::of_series(&[path], &[]);
    let browser = page.opened();
    let summary = browser.text("document.getElementById('summary').innerText");
    assert!(summary.starts_with("3.0 s time waited for locks") && !summary.contains("counted"), "{summary}");
    let values = "[...document.querySelectorAll('#value option')].map((option) => option.innerText).join()";
    assert_eq!(browser.text(values), "time waited for locks,waits for locks");
    browser.press("3");
    drawn(&browser, "table");
    let table = browser.text("document.querySelector('table.functions tbody').innerText");
    assert!(table.contains("3.0 s"), "{table}");
    assert_eq!(browser.log(), "");
    page.end();
}

/// Memory that was live before the page was opened and never sampled is said.
#[test]
fn memory_from_before_is_a_remark_of_the_page() {
    let mut target = Run::preloaded(truth::program(Frames::Omitted)).spawn();
    target.ready();
    truth::allocate(&mut target);
    let page = Page::serve(&["--pid", &target.pid().to_string()]);
    let (path, host) = (format!("/{}/profile.json?at=latest", page.token), format!("127.0.0.1:{}", page.port));
    let answer = http::get(page.port, &path, &host, "").expect("an answer");
    assert!(answer.status == 200 && answer.body.contains("so never sampled"), "{}", answer.body);
}

#[test]
fn a_process_is_watched_while_it_runs() {
    if let Some(why) = browser::missing() {
        skip!("{why}");
    }
    let mut target = holders(&[]);
    target.wait_for("ready 0");
    let pid = target.pid().to_string();
    let page = Page::serve(&["--pid", &pid]);
    let browser = page.opened();
    let total = browser.text("document.getElementById('total').innerText");
    assert!(total.starts_with("16.0 MiB"), "{total}");
    assert!(browser.text("document.getElementById('live').innerText").starts_with("live"));
    for round in 1..3 {
        target.tell("on");
        target.wait_for(&format!("ready {round}"));
    }
    browser.wait("document.getElementById('total').innerText.startsWith('24.0 MiB')");
    browser.screenshot("live");
    browser.press("5");
    drawn(&browser, "timeline");
    target.tell("end");
    target.finish().ok().discard();
    // The end is said on the page and on the terminal; what was read last stays.
    browser.wait("document.querySelector('.live.ended')");
    let said = "has ended; the page shows what was read last";
    assert!(browser.text("document.getElementById('live').innerText").contains(said));
    assert!(browser.text("document.getElementById('total').innerText").starts_with("24.0 MiB"));
    assert_eq!(browser.log(), "");
    page.server.signal(libc::SIGINT);
    let ended = page.server.finish().ok();
    assert!(ended.stderr.contains(said), "{ended}");
}

#[test]
fn narrow_frames_do_not_reach_over_their_neighbours() {
    if let Some(why) = browser::missing() {
        skip!("{why}");
    }
    let directory = TempDir::new("web-narrow");
    let mut names = "--- symbol\nbinary=unknown\n0x400000 main\n".to_owned();
    let mut stacks = "---\n--- heap\nheap_v2/0\n  t*: 200: 200000 [0: 0]\n".to_owned();
    for leaf in 1..=200 {
        let address = 0x40_0000 + 16 * leaf;
        let _infallible = writeln!(names, "{address:#x} leaf_{leaf}");
        let _infallible = writeln!(stacks, "@ {address:#x} 0x400001\n  t*: 1: 1000 [0: 0]");
    }
    let heap = directory.join("narrow.heap");
    std::fs::write(&heap, names + &stacks + "\nMAPPED_LIBRARIES:\n").expect("writable");
    let page = Page::of_series(&[heap], &[]);
    let browser = page.opened();
    let widest =
        "Math.max(...[...document.querySelectorAll('.frame[aria-level=\"3\"]')].map((frame) => frame.offsetWidth))";
    let widest: f64 = browser.text(widest).parse().expect("a number");
    let whole: f64 = browser.text("document.querySelector('.frame').offsetWidth").parse().expect("a number");
    assert!(widest >= 1.0 && widest <= whole / 200.0 + 1.0, "{widest} of {whole}");
    assert_eq!(browser.log(), "");
    page.end();
}

#[test]
fn strangers_are_refused() {
    let directory = TempDir::new("web");
    let page = Page::of_series(&series(&directory)[..1], &[]);
    let (port, token) = (page.port, page.token.as_str());
    let own = format!("127.0.0.1:{port}");
    let root = format!("/{token}/");
    let good = http::get(port, &root, &own, "").expect("an answer");
    assert_eq!(good.status, 200);
    assert!(good.header("content-security-policy").is_some_and(|policy| policy.starts_with("default-src 'none'")));
    assert_eq!(good.header("access-control-allow-origin"), None);
    let status = |path: &str, host: &str, more: &str| http::get(port, path, host, more).map(|answer| answer.status);
    assert_eq!(status(&root, &format!("localhost:{port}"), ""), Some(200));
    assert_eq!(status(&root, &own, &format!("Origin: http://{own}\r\nSec-Fetch-Site: same-origin\r\n")), Some(200));
    for host in ["evil.example", "127.0.0.1", "127.0.0.1:1", ""] {
        assert_eq!(status(&root, host, ""), Some(403), "host {host}");
    }
    for more in
        ["Origin: http://evil.example\r\n", "Origin: null\r\n", "Sec-Fetch-Site: cross-site\r\n", "Origin: \u{ff}\r\n"]
    {
        assert_eq!(status(&root, &own, more), Some(403), "{more}");
    }
    let wrong = format!("/{}0/", &token[..31]);
    let wrong = if wrong == root { format!("/{}1/", &token[..31]) } else { wrong };
    for path in ["/", "/list.json", wrong.as_str(), "//", "/../etc/passwd"] {
        assert_eq!(status(path, &own, ""), Some(403), "path {path}");
    }
    for path in [
        "../../etc/passwd",
        "%2e%2e/%2e%2e/etc/passwd",
        "js/../app.rs",
        "js/",
        "nothing",
        "source.json?at=latest&function=/etc/passwd",
    ] {
        assert_eq!(status(&format!("{root}{path}"), &own, ""), Some(404), "path {path}");
    }
    for (path, code) in [
        ("profile.json", 400),
        ("profile.json?at=99", 404),
        ("profile.json?at=-1", 404),
        ("profile.json?at=latest&base=x", 404),
        ("graph.json?at=latest&focus=(", 400),
        ("graph.json?at=latest&boxes=99999999999999999999&value=17", 200),
        ("source.json?at=latest", 400),
    ] {
        assert_eq!(status(&format!("{root}{path}"), &own, ""), Some(code), "{path}");
    }
    let posted =
        format!("POST {root}list.json HTTP/1.1\r\nHost: {own}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n");
    assert_eq!(http::send(port, posted.as_bytes()).map(|answer| answer.status), Some(405));
    let twice = format!("GET {root} HTTP/1.1\r\nHost: {own}\r\nHost: evil\r\nConnection: close\r\n\r\n");
    assert_eq!(http::send(port, twice.as_bytes()).map(|answer| answer.status), Some(400));

    // What is no HTTP, or too much of it, ends the connection and nothing else.
    let long = format!("GET {root}?{} HTTP/1.1\r\nHost: {own}\r\n\r\n", "a".repeat(100_000));
    for bytes in [&b"\0\0\0\0\r\n\r\n"[..], b"GET\r\n\r\n", long.as_bytes(), b"\xff\xfe GET / HTTP/9.9\r\n\r\n"] {
        let status = http::send(port, bytes).map(|answer| answer.status);
        assert!(status.is_none_or(|status| status >= 400), "{status:?}");
    }
    assert_eq!(status(&root, &own, ""), Some(200), "it still serves");
    let absolute = format!("GET http://evil.example{root} HTTP/1.1\r\nHost: {own}\r\nConnection: close\r\n\r\n");
    assert_eq!(http::send(port, absolute.as_bytes()).map(|answer| answer.status), Some(403));

    // Strangers that hold every connection make room.
    let connect = |_| std::net::TcpStream::connect(("127.0.0.1", port)).expect("a connection");
    let strangers: Vec<_> = (0..100).map(connect).collect();
    assert_eq!(status(&root, &own, ""), Some(200));
    // Who comes when every connection is the page's is told so, and served when there is room again.
    let known = |number| {
        let mut stream = connect(number);
        write!(stream, "GET {root} HTTP/1.1\r\nHost: {own}\r\n\r\n").expect("sent");
        let mut first = [0; 12];
        stream.read_exact(&mut first).expect("an answer");
        assert_eq!(&first, b"HTTP/1.1 200");
        stream
    };
    let idle: Vec<_> = (0..64).map(known).collect();
    drop(strangers);
    let crowded = http::get(port, &root, &own, "").expect("an answer");
    assert_eq!((crowded.status, crowded.header("retry-after")), (503, Some("10")));
    drop(idle);
    while status(&root, &own, "") != Some(200) {
        std::thread::yield_now();
    }
    page.end();
}

#[test]
fn what_cannot_be_served_is_said() {
    let run = |arguments: &[&str]| Run::new(artefact::command()).arg("web").args(arguments).finish();
    let none = run(&[]);
    assert_eq!(none.code(), 2, "{none}");
    let missing = run(&["/not/there.heap"]);
    assert!(missing.code() == 1 && missing.stderr.contains("cannot read /not/there.heap"), "{missing}");
    let both = run(&["--pid", "1", "a.heap"]);
    assert_eq!(both.code(), 2, "{both}");
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = listener.local_addr().expect("an address").port();
    let directory = TempDir::new("web");
    let file = series(&directory).remove(0);
    let taken = run(&["--no-open", "--port", &port.to_string(), file.to_str().expect("a UTF-8 path")]);
    assert!(taken.code() == 1 && taken.stderr.contains(&format!("cannot open port {port} on 127.0.0.1")), "{taken}");
}
