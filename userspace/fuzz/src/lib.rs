//! What the fuzz targets share: places for inputs that are read from files.

use std::fs;
use std::path::{Path, PathBuf};
use std::process;

use jeprobe::image::Image;

/// A file in memory with these bytes, a new one each time: the one before may still be mapped. `name` is the target's.
#[must_use]
pub fn file(name: &str, bytes: &[u8]) -> PathBuf {
    let path = PathBuf::from(format!("/dev/shm/jeprobe-fuzz-{name}-{}", process::id()));
    let _none_at_first = fs::remove_file(&path);
    fs::write(&path, bytes).expect("/dev/shm is writable");
    path
}

/// Asks an image all that it can be asked, at some addresses.
pub fn ask(path: &Path, addresses: &[u64]) {
    let Ok(image) = Image::open(path) else { return };
    let _any = (image.text(), image.svma(0x1000), image.symbols().len(), image.dynamic_symbols().len());
    for &address in addresses {
        let _any = (image.lookup(address), image.frames(address));
    }
    if let Some(text) = image.text() {
        let _any = image.disassemble(text.address, text.address.saturating_add(0x100));
    }
}
