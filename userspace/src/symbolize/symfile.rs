//! Symbol files of other tools, for programs that were stripped before they were installed: Breakpad's text and GSYM, which
//! blazesym reads.
//!
//! | format | looked for in each directory of debug files | is the program's when | addresses |
//! |---|---|---|---|
//! | Breakpad | `NAME/ID/NAME.sym`, as symbol servers lay them out | `ID` is made of the build-id | from where the file begins in memory |
//! | GSYM | `NAME.gsym` | it carries the build-id | svmas |
#![forbid(unsafe_code)]

use std::ffi::OsStr;
use std::fmt::Write as _;
use std::fs::File;
use std::io::Read as _;
use std::path::{Path, PathBuf};

use blazesym::symbolize::source::{Breakpad, Gsym, GsymFile, Source};
use blazesym::symbolize::{CodeInfo, Input, Sym, Symbolized, Symbolizer};

use crate::image::Call;

/// `GSYM` as the first word of a file, little-endian.
const GSYM_MAGIC: u32 = 0x4753_594d;
/// Bytes of a GSYM header up to and with its identifier.
const GSYM_HEADER: usize = 48;

/// A symbol file of one program.
#[derive(Debug)]
pub(super) enum SymFile {
    Breakpad(PathBuf),
    Gsym(PathBuf),
}

impl SymFile {
    /// The symbol file of a program called `name`.
    pub(super) fn find(name: &OsStr, build_id: &[u8], directories: &[PathBuf]) -> Option<SymFile> {
        if build_id.is_empty() {
            return None;
        }
        let with = |extension: &str| {
            let mut file = name.to_owned();
            file.push(extension);
            file
        };
        directories.iter().find_map(|directory| {
            let breakpad = directory.join(name).join(breakpad_id(build_id)).join(with(".sym"));
            if breakpad.is_file() {
                return Some(SymFile::Breakpad(breakpad));
            }
            let gsym = directory.join(with(".gsym"));
            (gsym_id(&gsym)? == build_id).then_some(SymFile::Gsym(gsym))
        })
    }

    /// True when it counts from where the file begins in memory.
    pub(super) fn is_relative(&self) -> bool {
        matches!(self, SymFile::Breakpad(_))
    }

    /// Functions at each address, innermost inlined call first. `Err` says why the file cannot be read.
    pub(super) fn calls(&self, addresses: &[u64]) -> Result<Vec<Vec<Call>>, String> {
        let symbolizer = Symbolizer::builder().enable_demangling(false).enable_auto_reload(false).build();
        let (path, answers) = match self {
            SymFile::Breakpad(path) => {
                let source = Source::Breakpad(Breakpad::new(path));
                (path, symbolizer.symbolize(&source, Input::FileOffset(addresses)))
            }
            SymFile::Gsym(path) => {
                let source = Source::Gsym(Gsym::File(GsymFile::new(path)));
                (path, symbolizer.symbolize(&source, Input::VirtOffset(addresses)))
            }
        };
        let answers = answers.map_err(|error| format!("cannot read {}: {error:#}", path.display()))?;
        let calls = answers.iter().map(|answer| match answer {
            Symbolized::Sym(symbol) => calls(symbol),
            Symbolized::Unknown(_) => Vec::new(),
        });
        Ok(calls.collect())
    }
}

fn calls(symbol: &Sym<'_>) -> Vec<Call> {
    let call = |name: &str, info: Option<&CodeInfo<'_>>, is_inlined| Call {
        name: name.into(),
        is_linkage: true,
        symbol: None,
        file: info.map(|info| info.to_path().display().to_string().into()),
        line: info.and_then(|info| info.line).unwrap_or(0),
        start: symbol.addr,
        is_inlined,
    };
    let inlined = symbol.inlined.iter().rev().map(|inlined| call(&inlined.name, inlined.code_info.as_ref(), true));
    inlined.chain([call(&symbol.name, symbol.code_info.as_deref(), false)]).collect()
}

/// The identifier of a build-id in symbol stores: its first 16 bytes as a GUID, whose first three numbers are little-endian,
/// and an age of 0.
fn breakpad_id(build_id: &[u8]) -> String {
    const ORDER: [usize; 16] = [3, 2, 1, 0, 5, 4, 7, 6, 8, 9, 10, 11, 12, 13, 14, 15];
    let mut text = ORDER.iter().fold(String::new(), |mut text, at| {
        let _infallible = write!(text, "{:02X}", build_id.get(*at).copied().unwrap_or(0));
        text
    });
    text.push('0');
    text
}

/// The identifier that a GSYM file carries.
fn gsym_id(path: &Path) -> Option<Vec<u8>> {
    let mut header = [0; GSYM_HEADER];
    File::open(path)
        .ok()
        .filter(|file| file.metadata().is_ok_and(|meta| meta.is_file()))?
        .read_exact(&mut header)
        .ok()?;
    let magic = u32::from_le_bytes([header[0], header[1], header[2], header[3]]);
    let length = usize::from(header[7]);
    (magic == GSYM_MAGIC).then(|| header.get(28..28 + length).map(<[u8]>::to_vec))?
}

#[cfg(test)]
mod tests {
    use super::{SymFile, breakpad_id};
    use std::ffi::OsStr;
    use std::fs;

    const ID: [u8; 20] = [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20];

    #[test]
    fn a_symbol_store_is_searched_by_build_id() {
        assert_eq!(breakpad_id(&ID), "0403020106050807090A0B0C0D0E0F100");
        let store = std::env::temp_dir().join(format!("jeprobe-symfile-{}", std::process::id()));
        let folder = store.join("prog").join(breakpad_id(&ID));
        fs::create_dir_all(&folder).expect("made");
        let text = format!(
            "MODULE Linux x86_64 {} prog\nFILE 0 /src/a.c\nFUNC 1000 20 0 work(int)\n1000 10 7 0\n1010 10 8 0\n",
            breakpad_id(&ID)
        );
        fs::write(folder.join("prog.sym"), text).expect("written");
        let find = |name: &str, id: &[u8]| SymFile::find(OsStr::new(name), id, std::slice::from_ref(&store));
        assert!(find("prog", &ID[1..]).is_none() && find("other", &ID).is_none() && find("prog", &[]).is_none());
        let calls = find("prog", &ID).expect("its file").calls(&[0x1014, 0x2000]).expect("readable");
        let found = (&*calls[0][0].name, calls[0][0].file.as_deref(), calls[0][0].line);
        assert_eq!(found, ("work(int)", Some("/src/a.c"), 8));
        assert!(calls[1].is_empty());
        fs::remove_dir_all(&store).expect("removed");
    }
}
