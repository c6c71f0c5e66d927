//! Split debug information: units whose functions lie in another file (`-gsplit-dwarf`).
//!
//! | file | where |
//! |---|---|
//! | `PROGRAM.dwp`, all units in one | beside the file with the debug information |
//! | `NAME.dwo`, one unit each | where the unit says it was compiled; else beside the program |
//!
//! A unit is taken only when it carries the number that the program's part has for it: objects are often compiled again.
#![forbid(unsafe_code)]

use std::convert::Infallible;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use gimli::{DwarfPackage, DwoId, EndianSlice, LittleEndian, SectionId};

use super::super::debugfile::is_there;
use super::super::elf::Elf;
use super::super::witness::Witness;
use super::sections::Sections;
use super::slice::{Dwarf, Slice, Unit};

/// With those that are not read: an index must not lead out of them.
const SECTIONS: &[SectionId] = &[
    SectionId::DebugAbbrev,
    SectionId::DebugCuIndex,
    SectionId::DebugInfo,
    SectionId::DebugLine,
    SectionId::DebugLoc,
    SectionId::DebugLocLists,
    SectionId::DebugMacinfo,
    SectionId::DebugMacro,
    SectionId::DebugRngLists,
    SectionId::DebugStr,
    SectionId::DebugStrOffsets,
    SectionId::DebugTuIndex,
    SectionId::DebugTypes,
];

/// Files with parts of one program's units, opened when they are needed.
#[derive(Debug, Default)]
pub(super) struct Splits {
    /// Notes which files are looked for.
    witness: Option<Arc<Witness>>,
    package: OnceLock<Option<Sections>>,
    /// By unit number.
    files: OnceLock<Vec<OnceLock<Option<Sections>>>>,
}

impl Splits {
    pub(super) fn with_witness(self, witness: Arc<Witness>) -> Splits {
        Splits { witness: Some(witness), ..self }
    }

    /// The other part of unit `number` of `count`, of the debug information in the file at `path`.
    pub(super) fn find<'d>(
        &'d self,
        path: &Path,
        whole: &Dwarf<'d>,
        skeleton: &Unit<'d>,
        (number, count): (u32, usize),
    ) -> Option<(Dwarf<'d>, Unit<'d>)> {
        let id = skeleton.dwo_id?;
        let package = self.package.get_or_init(|| {
            let mut name = path.as_os_str().to_owned();
            name.push(".dwp");
            self.open(&[PathBuf::from(name), path.with_extension("dwp")])
        });
        if let Some(found) = package.as_ref().and_then(|sections| in_package(sections, whole, skeleton, id)) {
            return Some(found);
        }
        let files = self.files.get_or_init(|| (0..count).map(|_| OnceLock::new()).collect());
        let sections =
            files.get(number as usize)?.get_or_init(|| self.open(&candidates(path, whole, skeleton))).as_ref()?;
        let load = |id: SectionId| -> Result<Slice<'d>, Infallible> { Ok(slice(sections, id)) };
        let Ok(mut dwarf) = gimli::Dwarf::load(load);
        dwarf.make_dwo(whole);
        unit_of(dwarf, skeleton, id)
    }

    fn open(&self, paths: &[PathBuf]) -> Option<Sections> {
        let has = |path: &&PathBuf| {
            if let Some(witness) = &self.witness {
                witness.saw(path);
            }
            is_there(path)
        };
        let path = paths.iter().find(has)?;
        let elf = Arc::new(Elf::open(path).ok()?);
        Some(Sections::open(elf, SECTIONS.iter().filter_map(|id| id.dwo_name())))
    }
}

fn slice(sections: &Sections, id: SectionId) -> Slice<'_> {
    match id.dwo_name().filter(|_| SECTIONS.contains(&id)) {
        Some(name) => sections.slice(name),
        None => EndianSlice::new(&[], LittleEndian),
    }
}

/// Where the unit's own file may be.
fn candidates(path: &Path, whole: &Dwarf<'_>, skeleton: &Unit<'_>) -> Vec<PathBuf> {
    let name = skeleton.dwo_name().ok().flatten().and_then(|name| whole.attr_string(skeleton, name).ok());
    let Some(name) = name else { return Vec::new() };
    let name = Path::new(OsStr::from_bytes(name.slice()));
    let folder = skeleton.comp_dir.map(|folder| Path::new(OsStr::from_bytes(folder.slice())));
    let compiled = folder.map_or_else(|| name.to_owned(), |folder| folder.join(name));
    let beside = path.parent().zip(name.file_name()).map(|(folder, name)| folder.join(name));
    [compiled].into_iter().chain(beside).collect()
}

fn in_package<'d>(
    sections: &'d Sections,
    whole: &Dwarf<'d>,
    skeleton: &Unit<'d>,
    id: DwoId,
) -> Option<(Dwarf<'d>, Unit<'d>)> {
    let load = |id: SectionId| -> gimli::Result<Slice<'d>> { Ok(slice(sections, id)) };
    let package = DwarfPackage::load(load, EndianSlice::new(&[], LittleEndian)).ok()?;
    unit_of(package.find_cu(id, whole).ok()??, skeleton, id)
}

/// The unit with a number.
fn unit_of<'d>(dwarf: Dwarf<'d>, skeleton: &Unit<'d>, id: DwoId) -> Option<(Dwarf<'d>, Unit<'d>)> {
    let mut headers = dwarf.units();
    while let Ok(Some(header)) = headers.next() {
        let Ok(mut unit) = dwarf.unit(header) else { continue };
        if unit.dwo_id == Some(id) {
            unit.copy_relocated_attributes(skeleton);
            return Some((dwarf, unit));
        }
    }
    None
}
