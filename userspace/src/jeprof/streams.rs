//! The streams of the command: results go through one buffered writer, words through `say`.
//!
//! `Output` is stdout, or the file of a redirected interactive command. Words are written at once and unbuffered, so
//! that they keep their order among themselves; a stderr that cannot be written is not worth an error.
#![forbid(unsafe_code)]

use std::fmt::Arguments;
use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::Path;

/// A line, or part of one, on stderr.
pub fn say(text: Arguments<'_>) {
    let _nobody_listens = io::stderr().write_all(text.to_string().as_bytes());
}

/// Where results go.
pub struct Output {
    writer: BufWriter<Box<dyn Write>>,
}

impl Output {
    pub fn stdout() -> Output {
        Output { writer: BufWriter::with_capacity(64 * 1024, Box::new(io::stdout())) }
    }

    pub fn file(path: &Path) -> io::Result<Output> {
        Ok(Output { writer: BufWriter::new(Box::new(File::create(path)?)) })
    }
}

impl Write for Output {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.writer.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.writer.flush()
    }
}
