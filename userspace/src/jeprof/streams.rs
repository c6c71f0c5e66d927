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
    is_file: bool,
}

/// 16 KiB: every page of it is a new one, which takes as long as writing three of them.
const OUTPUT_BYTES: usize = 16 << 10;

impl Output {
    pub fn stdout() -> Output {
        Output { writer: BufWriter::with_capacity(OUTPUT_BYTES, Box::new(io::stdout())), is_file: false }
    }

    /// A new file, or the end of one that there is.
    pub fn file(path: &Path, appends: bool) -> io::Result<Output> {
        let mut options = File::options();
        let file = options.create(true).write(true).append(appends).truncate(!appends).open(path)?;
        Ok(Output { writer: BufWriter::new(Box::new(file)), is_file: true })
    }

    /// Whether results were sent to a file.
    pub fn is_file(&self) -> bool {
        self.is_file
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
