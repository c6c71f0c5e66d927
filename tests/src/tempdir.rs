//! One directory per test, below the system's temporary directory. Removed when the test passes; kept, and its path
//! printed, when the test panics.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::{env, fs, process, thread};

static NEXT: AtomicU32 = AtomicU32::new(0);

#[derive(Debug)]
pub struct TempDir {
    path: PathBuf,
}

impl TempDir {
    pub fn new(name: &str) -> Self {
        // Relaxed: only the number's uniqueness matters.
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let path = env::temp_dir().join(format!("jeprobe-test-{}-{number}-{name}", process::id()));
        fs::create_dir_all(&path).unwrap_or_else(|e| panic!("cannot create {}: {e}", path.display()));
        Self { path }
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    pub fn join(&self, name: impl AsRef<Path>) -> PathBuf {
        self.path.join(name)
    }

    /// Files whose name ends in `suffix`, sorted.
    pub fn files(&self, suffix: &str) -> Vec<PathBuf> {
        let mut found: Vec<PathBuf> = fs::read_dir(&self.path)
            .unwrap_or_else(|e| panic!("cannot list {}: {e}", self.path.display()))
            .map(|entry| entry.expect("a readable directory entry").path())
            .filter(|path| path.file_name().is_some_and(|name| name.to_string_lossy().ends_with(suffix)))
            .collect();
        found.sort();
        found
    }
}

impl Drop for TempDir {
    fn drop(&mut self) {
        if thread::panicking() {
            eprintln!("kept: {}", self.path.display());
        } else {
            let _ = fs::remove_dir_all(&self.path);
        }
    }
}
