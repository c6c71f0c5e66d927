//! What a browser, or anything else, sends to `jeprobe web`.
//!
//! `%TOKEN` stands for the token, so that answers behind it are reached.

#![no_main]

use std::sync::{Arc, LazyLock};

use jeprobe::input;
use jeprobe::symbolize::{Sources, resolve};
use jeprobe::web::app::App;
use jeprobe::web::dataset::Dataset;
use jeprobe::web::server::connection;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::runtime::{Builder, Runtime};

const PROFILE: &[u8] = include_bytes!("../../../tests/fixtures/jeprof/sym.prof");
const TOKEN: &str = "0123456789abcdef0123456789abcdef";

static APP: LazyLock<Arc<App>> = LazyLock::new(|| {
    let app = App::new("fuzzed".into(), Vec::new());
    let profile = input::read(PROFILE).expect("a profile");
    let symbols = resolve(&profile, &Sources::default());
    for at in 0..2 {
        app.push(Dataset::new(at, format!("profile {at}"), at as f64, &profile, &symbols));
    }
    Arc::new(app)
});
/// Its time passes at once where everything waits for it: what is no whole request costs none.
static RUNTIME: LazyLock<Runtime> =
    LazyLock::new(|| Builder::new_current_thread().enable_time().start_paused(true).build().expect("a runtime"));

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let request = replaced(bytes);
    RUNTIME.block_on(async {
        let (mut browser, server) = tokio::io::duplex(1 << 22);
        let sent = async {
            let _may_be_closed = browser.write_all(&request).await;
            // A connection whose other end is closed is not answered; one that asks for nothing more ends by itself.
            let mut answer = Vec::new();
            let _any = browser.read_to_end(&mut answer).await;
            assert!(answer.is_empty() || answer.starts_with(b"HTTP/1."), "{}", String::from_utf8_lossy(&answer));
        };
        tokio::join!(sent, connection(server, APP.clone(), TOKEN.into(), 7000));
    });
});

fn replaced(bytes: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(bytes.len() + TOKEN.len());
    let mut rest = bytes;
    while let [first, after @ ..] = rest {
        match rest.strip_prefix(b"%TOKEN") {
            Some(after) => {
                out.extend_from_slice(TOKEN.as_bytes());
                rest = after;
            }
            None => {
                out.push(*first);
                rest = after;
            }
        }
    }
    out
}
