//! Requests as bytes, for what a well-behaved client does not send: foreign hosts, broken paths, torn heads.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

/// An answer.
#[derive(Clone, Debug)]
pub struct Answer {
    pub status: u16,
    /// Names in lower case.
    pub headers: Vec<(String, String)>,
    pub body: String,
}

impl Answer {
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }
}

/// Sends bytes to a port of 127.0.0.1 and reads the answer; `None` when the server closes without one.
pub fn send(port: u16, request: &[u8]) -> Option<Answer> {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).expect("the server listens");
    stream.set_read_timeout(Some(Duration::from_mins(1))).expect("a time limit");
    // A server that refuses early may close before all is sent.
    let _closed_early = stream.write_all(request);
    let mut bytes = Vec::new();
    let mut buffer = [0; 8 * 1024];
    loop {
        match stream.read(&mut buffer) {
            Ok(0) | Err(_) => break,
            Ok(count) => bytes.extend_from_slice(&buffer[..count]),
        }
        if is_complete(&bytes) {
            break;
        }
    }
    parse(&bytes)
}

/// A GET with further header lines; the connection closes after it.
pub fn get(port: u16, path: &str, host: &str, more: &str) -> Option<Answer> {
    send(port, format!("GET {path} HTTP/1.1\r\nHost: {host}\r\n{more}Connection: close\r\n\r\n").as_bytes())
}

fn split(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let at = bytes.windows(4).position(|window| window == b"\r\n\r\n")?;
    Some((&bytes[..at], &bytes[at + 4..]))
}

/// A server that keeps the connection open says how long the body is.
fn is_complete(bytes: &[u8]) -> bool {
    let Some((_, body)) = split(bytes) else { return false };
    let length = parse(bytes).and_then(|answer| answer.header("content-length")?.parse::<usize>().ok());
    length.is_some_and(|length| body.len() >= length)
}

fn parse(bytes: &[u8]) -> Option<Answer> {
    let (head, body) = split(bytes)?;
    let head = String::from_utf8_lossy(head).into_owned();
    let mut lines = head.split("\r\n");
    let status = lines.next()?.split(' ').nth(1)?.parse().ok()?;
    let headers = lines
        .filter_map(|line| line.split_once(':'))
        .map(|(name, value)| (name.to_ascii_lowercase(), value.trim().to_owned()))
        .collect();
    Some(Answer { status, headers, body: String::from_utf8_lossy(body).into_owned() })
}
