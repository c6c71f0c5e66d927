//! The server: HTTP/1.1 on the loopback address, answers from [`App`].
//!
//! Every request is checked by `guard` before anything else. Only GET and HEAD, no bodies; heads of at most 16 KiB that come
//! within ten seconds; a bounded number of connections, of which one that has not shown the token makes room for the next;
//! answers are made off the network's thread.
#![forbid(unsafe_code)]

use std::collections::VecDeque;
use std::convert::Infallible;
use std::future::Future;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use std::{io, pin::pin};

use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::header::{CONTENT_TYPE, HOST, ORIGIN};
use hyper::http::uri::Authority;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, Response};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::TcpListener;
use tokio::sync::Semaphore;
use tokio::task::AbortHandle;

use super::app::{Answer, App};
use super::guard::{self, Asker, HEADERS};

const HEAD_MOST: usize = 16 << 10;
const HEAD_WITHIN: Duration = Duration::from_secs(10);
const CONNECTIONS: usize = 64;
/// As many more are told that there is no room; beyond that they are closed.
const TURN_AWAY_WITHIN: Duration = Duration::from_secs(1);
/// A refused accept (too many open files) is tried again after this.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// A connection that is open.
struct Guest {
    /// Has shown the token. Only a hint to the one that accepts, so `Relaxed`: nothing is published with it.
    is_known: Arc<AtomicBool>,
    task: AbortHandle,
}

/// Ends the oldest connection that has not shown the token, so that strangers cannot keep the page's own ones out.
fn make_room(guests: &mut VecDeque<Guest>) -> bool {
    let stranger = guests.iter().position(|guest| !guest.is_known.load(Ordering::Relaxed));
    let guest = stranger.and_then(|at| guests.remove(at));
    guest.as_ref().inspect(|guest| guest.task.abort()).is_some()
}

/// A port and the token that requests must know.
#[derive(Debug)]
pub struct Server {
    listener: TcpListener,
    port: u16,
    token: String,
}

impl Server {
    /// Takes a port of 127.0.0.1; any when `port` is 0.
    pub async fn bind(port: u16) -> io::Result<Server> {
        let listener = TcpListener::bind(SocketAddr::from((Ipv4Addr::LOCALHOST, port))).await?;
        let port = listener.local_addr()?.port();
        Ok(Server { listener, port, token: guard::token()? })
    }

    /// The page's address.
    pub fn url(&self) -> String {
        format!("http://127.0.0.1:{}/{}/", self.port, self.token)
    }

    /// Serves until `stop` is ready.
    pub async fn serve(self, app: Arc<App>, stop: impl Future<Output = ()>) {
        let (port, token): (u16, Arc<str>) = (self.port, self.token.into());
        let room = Arc::new(Semaphore::new(CONNECTIONS));
        let turned_away = Arc::new(Semaphore::new(CONNECTIONS));
        let mut stop = pin!(stop);
        let mut guests = VecDeque::new();
        loop {
            let accepted = tokio::select! {
                () = &mut stop => return,
                accepted = self.listener.accept() => accepted,
            };
            let Ok((stream, _)) = accepted else {
                tokio::time::sleep(ACCEPT_PAUSE).await;
                continue;
            };
            guests.retain(|guest: &Guest| !guest.task.is_finished());
            let mut permit = room.clone().try_acquire_owned().ok();
            if permit.is_none() && make_room(&mut guests) {
                permit = room.clone().acquire_owned().await.ok();
            }
            let Some(permit) = permit else {
                if let Ok(permit) = turned_away.clone().try_acquire_owned() {
                    tokio::spawn(async move {
                        turn_away(stream).await;
                        drop(permit);
                    });
                }
                continue;
            };
            let (app, token) = (app.clone(), token.clone());
            let is_known = Arc::<AtomicBool>::default();
            let known = is_known.clone();
            let task = tokio::spawn(async move {
                connection(stream, app, token, port, known).await;
                drop(permit);
            });
            guests.push_back(Guest { is_known, task: task.abort_handle() });
        }
    }
}

/// Answers the requests of one connection until its end. A browser that goes away in the middle is no event. `is_known`: set
/// when it shows the token.
pub async fn connection(
    stream: impl AsyncRead + AsyncWrite + Unpin,
    app: Arc<App>,
    token: Arc<str>,
    port: u16,
    is_known: Arc<AtomicBool>,
) {
    let service = service_fn(|request| answer(request, app.clone(), token.clone(), port, is_known.clone()));
    let mut http = http1::Builder::new();
    http.max_buf_size(HEAD_MOST).timer(TokioTimer::new()).header_read_timeout(HEAD_WITHIN);
    let _ended = http.serve_connection(TokioIo::new(stream), service).await;
}

/// Says that there is no room, to one that has asked or asks within a second.
async fn turn_away(mut stream: impl AsyncRead + AsyncWrite + Unpin) {
    let words = format!("{CONNECTIONS} connections are open, and no more are taken; try again in {HEAD_WITHIN:?}\n");
    let head = format!(
        "HTTP/1.1 503 Service Unavailable\r\ncontent-type: text/plain; charset=utf-8\r\nretry-after: {}\r\n\
         content-length: {}\r\nconnection: close\r\n\r\n",
        HEAD_WITHIN.as_secs(),
        words.len()
    );
    let said = async {
        // What is not read when the connection is closed would have the answer thrown away.
        let mut asked = vec![0; HEAD_MOST];
        let _gone = stream.read(&mut asked).await;
        let _gone = stream.write_all((head + &words).as_bytes()).await;
        let _gone = stream.shutdown().await;
    };
    let _too_slow = tokio::time::timeout(TURN_AWAY_WITHIN, said).await;
}

async fn answer(
    request: Request<Incoming>,
    app: Arc<App>,
    token: Arc<str>,
    port: u16,
    is_known: Arc<AtomicBool>,
) -> Result<Response<Full<Bytes>>, Infallible> {
    let header = |name| request.headers().get(name).and_then(|value| value.to_str().ok());
    let asker = Asker {
        // A header that is there but no text must not pass for one that is not there.
        host: header(HOST),
        authority: request.uri().authority().map(Authority::as_str),
        origin: request.headers().get(ORIGIN).map(|value| value.to_str().unwrap_or("?")),
        fetch_site: request.headers().get("sec-fetch-site").map(|value| value.to_str().unwrap_or("?")),
    };
    if request.headers().get_all(HOST).iter().count() > 1 {
        return Ok(respond(Answer::error(400, "the request has two hosts"), true));
    }
    if let Some(why) = guard::refuse(&asker, port) {
        return Ok(respond(Answer::error(403, why), true));
    }
    let Some(path) = guard::behind_token(request.uri().path(), &token) else {
        return Ok(respond(
            Answer::error(403, "the address lacks the token; open the one that jeprobe web printed"),
            true,
        ));
    };
    is_known.store(true, Ordering::Relaxed);
    if request.method() != Method::GET && request.method() != Method::HEAD {
        return Ok(respond(Answer::error(405, "only GET"), true));
    }
    let with_body = request.method() == Method::GET;
    let (path, query) = (path.to_owned(), request.uri().query().unwrap_or_default().to_owned());
    let made = tokio::task::spawn_blocking(move || app.answer(&path, &query)).await;
    Ok(respond(made.unwrap_or_else(|_| Answer::error(500, "the answer was not made")), with_body))
}

fn respond(answer: Answer, with_body: bool) -> Response<Full<Bytes>> {
    let body = if with_body { Bytes::from(answer.body) } else { Bytes::new() };
    let mut response = Response::builder().status(answer.status).header(CONTENT_TYPE, answer.kind);
    for (name, value) in HEADERS {
        response = response.header(name, value);
    }
    // All parts are constants of this program.
    response.body(Full::new(body)).unwrap_or_default()
}
