//! HTTP: what anything may send to `jeprobe web`, and what a server may answer that names are fetched from.
#![forbid(unsafe_code)]

use std::ffi::OsString;
use std::io::{Read as _, Write as _};
use std::net::{Shutdown, TcpListener};
use std::sync::Arc;
use std::sync::mpsc::{self, Sender};
use std::thread;
use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use super::damage::rounds;
use crate::input;
use crate::jeprof::address::Width;
use crate::jeprof::options::Options;
use crate::jeprof::remote;
use crate::symbolize::{Sources, resolve};
use crate::web::app::App;
use crate::web::dataset::Dataset;
use crate::web::server::connection;

const PROFILE: &[u8] = b"--- symbol
0x401175 leaf
0x401213 user
---
--- heap
heap_v2/1
@ 0x401175 0x401214
  t*: 3: 3145728 [3: 3145728]
";

fn app() -> Arc<App> {
    let profile = input::read(PROFILE).expect("a profile");
    let symbols = resolve(&profile, &Sources::default());
    let app = App::new("mutated".into(), Vec::new());
    for at in 0..2 {
        app.push(Dataset::new(at, format!("profile {at}"), at as f64, &profile, &symbols));
    }
    Arc::new(app)
}

#[test]
fn damaged_requests_are_answered_or_end_the_connection() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().expect("a runtime");
    let app = app();
    // What is no whole request is ended from this side when its time is over.
    let answered = |request: &[u8], patience: Duration| {
        runtime.block_on(async {
            let (mut browser, server) = tokio::io::duplex(1 << 22);
            let asked = async {
                // The server may have ended the connection.
                let _unread = browser.write_all(request).await;
                let mut answer = Vec::new();
                let _not_ended = tokio::time::timeout(patience, browser.read_to_end(&mut answer)).await;
                let _ended = browser.shutdown().await;
                let _reset = browser.read_to_end(&mut answer).await;
                answer
            };
            tokio::join!(asked, connection(server, app.clone(), "secret".into(), 7000, Arc::default())).0
        })
    };
    for path in [
        "",
        "list.json",
        "profile.json?at=0&base=1",
        "graph.json?at=latest&focus=%5Eleaf&boxes=9&value=2",
        "timeline.svg",
        "source.json?at=1&function=0000000000401175",
    ] {
        let good = format!(
            "GET /secret/{path} HTTP/1.1\r\nHost: 127.0.0.1:7000\r\nOrigin: http://127.0.0.1:7000\r\n\
             Sec-Fetch-Site: same-origin\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
        );
        let answer = answered(good.as_bytes(), Duration::from_mins(1));
        assert!(answer.starts_with(b"HTTP/1.1 200 OK\r\n"), "{path}: {}", String::from_utf8_lossy(&answer));
        rounds(150, 0x5bb + path.len() as u64, good.as_bytes(), 0..good.len(), &mut |bytes| {
            let answer = answered(bytes, Duration::from_millis(5));
            assert!(answer.is_empty() || answer.starts_with(b"HTTP/1."), "{}", String::from_utf8_lossy(&answer));
        });
    }
}

/// A server that gives the bytes it is told next, whatever it is asked.
fn server() -> (OsString, Sender<Vec<u8>>) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = listener.local_addr().expect("an address").port();
    let (sender, replies) = mpsc::channel::<Vec<u8>>();
    thread::spawn(move || {
        let mut reply = Vec::new();
        for mut stream in listener.incoming().flatten() {
            reply = replies.try_iter().last().unwrap_or(reply);
            let _any = stream.read(&mut [0; 4096]);
            let _unread = stream.write_all(&reply);
            let _closed = stream.shutdown(Shutdown::Write);
        }
    });
    (format!("127.0.0.1:{port}/pprof/heap").into(), sender)
}

#[test]
fn damaged_replies_of_servers_are_errors_or_names() {
    let (name, replies) = server();
    let options = Options::default();
    for (seed, body) in [(0x6cc, "num_symbols: 1\n"), (0x7dd, "/opt/app\0--flag\0"), (0x8ee, "0x401175\t_ZN4leafEv\n")]
    {
        let good = format!(
            "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: {}\r\n\
             Connection: close\r\n\r\n{body}",
            body.len()
        );
        rounds(150, seed, good.as_bytes(), 0..good.len(), &mut |bytes| {
            replies.send(bytes.to_vec()).expect("the server lives");
            match seed {
                0x6cc => drop(remote::check_symbols(&name)),
                0x7dd => drop(remote::program_name(&name)),
                _ => {
                    let mut program = String::from("program");
                    drop(remote::fetch_names(&name, &[0x40_1175], Width::W16, &mut program, &options));
                }
            }
        });
    }
}
