//! Images made by the C compiler, damaged in their headers, symbols, debug information and code; and files of the cache.
#![forbid(unsafe_code)]

use std::path::Path;

use super::damage::rounds;
use crate::image::oracle::{C, Workshop};
use crate::image::{Cache, Image};

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

/// A file of the cache gives right answers, whatever became of it; one whose checksum is right gives any.
#[test]
fn damaged_answers_of_former_runs_are_passed_over() {
    let workshop = Workshop::new("kept");
    let program = workshop.build("cc", ("kept.c", C), &["-O2", "-g"], "good");
    let folder = workshop.path("cache");
    let open = || Image::open(&program).expect("an ELF file").with_cache(Cache::at(folder.clone()));
    let text = open().text().expect("a text section");
    let addresses: Vec<u64> = (text.address..text.address + text.size).step_by(23).collect();
    let ask = |image: &Image| {
        let mut all = Vec::new();
        image.answers(&addresses, |answer| all.push(format!("{answer:?}")));
        all
    };
    let expected = ask(&open().with_cache(None));
    assert_eq!(ask(&open()), expected);
    let file = std::fs::read_dir(&folder).expect("a directory").flatten().next().expect("a file").path();
    let good = std::fs::read(&file).expect("a file");
    let replace = |bytes: &[u8]| {
        // The one before may still be mapped.
        let _none_at_times = std::fs::remove_file(&file);
        std::fs::write(&file, bytes).expect("a file");
    };
    replace(&good);
    assert_eq!(ask(&open()), expected);
    rounds(100, 0xcafe, &good, 0..good.len(), &mut |bytes| {
        replace(bytes);
        assert_eq!(ask(&open()), expected);
    });
    // Magic, version, checksum of what follows.
    let (sum, body) = (12..16, 16);
    rounds(300, 0xface, &good, body..good.len(), &mut |bytes| {
        let mut bytes = bytes.to_vec();
        if let Some(rest) = bytes.get(body..) {
            let right = crc32fast::hash(rest).to_le_bytes();
            bytes[sum.clone()].copy_from_slice(&right);
        }
        replace(&bytes);
        let _any = ask(&open());
    });
}
