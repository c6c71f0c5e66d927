//! Images made by the C compiler, damaged in their headers, symbols, debug information and code.
#![forbid(unsafe_code)]

use std::path::Path;

use super::damage::rounds;
use crate::image::Image;
use crate::image::oracle::{C, Workshop};

/// Everything that an image can be asked.
fn ask(path: &Path, addresses: &[u64]) {
    let Ok(image) = Image::open(path) else { return };
    let _any = (image.text(), image.svma(0x1000), image.symbols().len(), image.dynamic_symbols().len());
    for address in addresses {
        let _any = (image.lookup(*address), image.frames(*address));
    }
    if let Some(text) = image.text() {
        let _any = image.disassemble(text.address, text.address.saturating_add(0x100));
    }
}

#[test]
fn damaged_images_give_errors_or_answers() {
    let workshop = Workshop::new("damaged");
    for (seed, flags) in
        [(0x5eed, &["-O2", "-gdwarf-5"][..]), (0xfeed, &["-O2", "-gdwarf-4"]), (0xbead, &["-g", "-gz"])]
    {
        let path = workshop.build("cc", ("damaged.c", C), flags, "good");
        let good = std::fs::read(&path).expect("a program");
        let image = Image::open(&path).expect("an ELF file");
        let text = image.text().expect("a text section");
        let addresses: Vec<u64> = (text.address..text.address + text.size).step_by(101).collect();
        let damaged = workshop.path("bad");
        let mut parse = |bytes: &[u8]| {
            // A new file each time: the one before may still be mapped.
            let _none_at_first = std::fs::remove_file(&damaged);
            std::fs::write(&damaged, bytes).expect("a file");
            ask(&damaged, &addresses);
        };
        rounds(40, seed, &good, 0..64, &mut parse);
        rounds(60, seed + 1, &good, 0..good.len(), &mut parse);
        let headers = good.len() - 40 * 64..good.len();
        rounds(60, seed + 2, &good, headers, &mut parse);
        for name in image.debug_regions() {
            rounds(10, seed + 3, &good, name, &mut parse);
        }
    }
}
