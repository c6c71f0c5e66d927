//! What a server answers that profiles and names are fetched from: head and body, as bytes.

#![no_main]

use std::ffi::OsString;
use std::io::{Read as _, Write as _};
use std::net::{Shutdown, TcpListener};
use std::sync::{LazyLock, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use jeprobe::jeprof::address::Width;
use jeprobe::jeprof::options::Options;
use jeprobe::jeprof::remote;

static REPLY: Mutex<Vec<u8>> = Mutex::new(Vec::new());

static NAME: LazyLock<OsString> = LazyLock::new(|| {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = listener.local_addr().expect("an address").port();
    thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            let _bounded = stream.set_read_timeout(Some(Duration::from_secs(1)));
            // A request is small: one piece.
            let _any = stream.read(&mut [0; 4096]);
            let reply = REPLY.lock().unwrap_or_else(PoisonError::into_inner).clone();
            let _may_be_closed = stream.write_all(&reply);
            let _may_be_closed = stream.shutdown(Shutdown::Both);
        }
    });
    format!("127.0.0.1:{port}/pprof/heap").into()
});

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    *REPLY.lock().unwrap_or_else(PoisonError::into_inner) = bytes.to_vec();
    match bytes.len() % 3 {
        0 => drop(remote::check_symbols(&NAME)),
        1 => drop(remote::program_name(&NAME)),
        _ => {
            let mut program = String::from("program");
            drop(remote::fetch_names(&NAME, &[0x40_1175], Width::W16, &mut program, &Options::default()));
        }
    }
});
