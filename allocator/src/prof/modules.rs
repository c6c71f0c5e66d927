//! The code that is mapped in the process: address ranges, unwind tables, build-ids.
//!
//! Modules are found in `maps.rs`, never through the dynamic linker, whose lock may be held by the very thread
//! that allocates. Unwind tables are read from private read-only mappings of the files, so that a `dlclose` cannot take
//! them away during a walk; of a file that is gone or was replaced, they are copied from memory.
//!
//! A [`Snapshot`] is immutable. [`read`] makes a new one, taking over what it already knows from the last. It allocates
//! (through the crate's Rust allocator), so the sampler calls it outside of walks and rarely; see `backtrace.rs`.
//! A module that replaces another one at the very same address with the same inode and offset is not noticed.
#![forbid(unsafe_code)]

extern crate alloc;

use alloc::boxed::Box;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::ffi::CStr;
use core::ops::{ControlFlow, Deref, Range};

use framehop::{ExplicitModuleSectionInfo, Module, MustNotAllocateDuringUnwind, Unwinder, UnwinderNative};

use super::elf::{self, Elf, UnwindTables};
use super::maps::{self, Mapping};
use crate::sys;
use crate::sys::file::{FileMap, file_id};

/// Bytes copied of the head of a file in memory: holds the program headers of any file that a linker makes.
const HEAD_BYTES: usize = 4096;
/// Largest unwind table copied from memory.
const MAX_COPY_BYTES: u64 = 64 << 20;

/// All executable mappings at one time, by address.
pub(crate) struct Snapshot {
    pub(crate) unwinder: UnwinderNative<Section, MustNotAllocateDuringUnwind>,
    pub(crate) modules: Vec<ModuleInfo>,
    /// Number of this set of modules, from 1.
    pub(crate) generation: u64,
}

/// One executable mapping.
pub(crate) struct ModuleInfo {
    pub(crate) range: Range<u64>,
    offset: u64,
    inode: u64,
    /// As in the mappings.
    pub(crate) path: Box<[u8]>,
    pub(crate) build_id: Vec<u8>,
    /// The file's tables, where they are mapped.
    mapped: Option<Arc<Source>>,
    /// `None`: code without unwind tables (generated at run time), or they could not be read.
    unwind: Option<Module<Section>>,
}

/// A part of a file's bytes, kept alive by sharing.
#[derive(Clone)]
pub(crate) struct Section {
    source: Arc<Source>,
    range: Range<usize>,
}

enum Source {
    File(FileMap),
    Copy(Vec<u8>),
}

impl Deref for Section {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        let bytes = match &*self.source {
            Source::File(map) => map.bytes(),
            Source::Copy(bytes) => bytes,
        };
        bytes.get(self.range.clone()).unwrap_or(&[])
    }
}

impl Snapshot {
    /// Takes the pages of the unwind tables out of the process's memory until they are read again.
    pub(crate) fn let_go(&self) {
        for source in self.modules.iter().filter_map(|module| module.mapped.as_deref()) {
            if let Source::File(map) = source {
                map.let_go();
            }
        }
    }

    /// The module that holds a code address.
    pub(crate) fn find(&self, pc: u64) -> Option<&ModuleInfo> {
        let after = self.modules.partition_point(|module| module.range.start <= pc);
        self.modules.get(after.checked_sub(1)?).filter(|module| module.range.contains(&pc))
    }
}

/// Looks at the mappings. `None` when they cannot be read, or are those of `last`.
pub(crate) fn read(last: Option<&Snapshot>) -> Option<Snapshot> {
    let mut buf = alloc::vec![0; maps::LINE_BYTES];
    let mut modules = Vec::new();
    let mut changed = false;
    // Start and inode of the mapping of the file's beginning, which precedes its code.
    let mut head = (0, 0);
    let done = maps::each(&mut buf, |mapping| {
        if mapping.offset == 0 && mapping.inode != 0 {
            head = (mapping.start, mapping.inode);
        }
        if mapping.executable && mapping.path != b"[vsyscall]" {
            if let Some(known) = last.and_then(|last| last.find(mapping.start)).filter(|known| known.is(mapping)) {
                modules.push(known.duplicate());
            } else {
                changed = true;
                let head = if head.1 == mapping.inode { head.0 } else { mapping.start };
                modules.push(ModuleInfo::new(mapping, head));
            }
        }
        ControlFlow::Continue(())
    });
    changed |= last.is_none_or(|last| last.modules.len() != modules.len());
    if done.is_err() || !changed {
        return None;
    }
    let mut unwinder = UnwinderNative::new();
    for module in modules.iter().filter_map(|module| module.unwind.as_ref()) {
        unwinder.add_module(module.clone());
    }
    let generation = last.map_or(0, |last| last.generation) + 1;
    Some(Snapshot { unwinder, modules, generation })
}

impl ModuleInfo {
    fn new(mapping: &Mapping<'_>, head: u64) -> ModuleInfo {
        let mut info = ModuleInfo {
            range: mapping.start..mapping.end,
            offset: mapping.offset,
            inode: mapping.inode,
            path: mapping.path.into(),
            build_id: Vec::new(),
            mapped: None,
            unwind: None,
        };
        if mapping.path == b"[vdso]" {
            info.load_from_memory(mapping, mapping.start);
        } else if mapping.inode != 0 && info.load_from_file(mapping).is_none() {
            info.load_from_memory(mapping, head);
        }
        info
    }

    /// True when the code can be walked by unwind tables.
    pub(crate) fn has_tables(&self) -> bool {
        self.unwind.is_some()
    }

    fn is(&self, mapping: &Mapping<'_>) -> bool {
        self.range == (mapping.start..mapping.end) && self.offset == mapping.offset && self.inode == mapping.inode
    }

    fn duplicate(&self) -> ModuleInfo {
        ModuleInfo {
            range: self.range.clone(),
            offset: self.offset,
            inode: self.inode,
            path: self.path.clone(),
            build_id: self.build_id.clone(),
            mapped: self.mapped.clone(),
            unwind: self.unwind.clone(),
        }
    }

    /// Tables from the file; `None` when the file is not the one that is mapped, or has none.
    fn load_from_file(&mut self, mapping: &Mapping<'_>) -> Option<()> {
        let mut path = mapping.path.to_vec();
        path.push(0);
        let fd = sys::open_read(CStr::from_bytes_with_nul(&path).ok()?).ok()?;
        let id = file_id(fd);
        let whole = match id {
            Ok(id) if id.regular && id.inode == mapping.inode => FileMap::new(fd, 0, id.size_bytes as usize),
            _ => None,
        };
        let result = whole.and_then(|whole| self.load_from_image(mapping, fd, whole.bytes()));
        sys::close(fd);
        result
    }

    fn load_from_image(&mut self, mapping: &Mapping<'_>, fd: i32, file: &[u8]) -> Option<()> {
        let page = sys::page_size() as u64;
        let elf = Elf::parse(file)?;
        let bias = elf.bias(mapping.start, mapping.offset, page)?;
        for note in elf.notes() {
            let bytes = slice(file, note.offset, note.file_bytes);
            if let Some(id) = bytes.and_then(elf::build_id) {
                self.build_id = id.to_vec();
            }
        }
        let header = elf.unwind_header();
        let tables = match header {
            Some(header) => elf.unwind_tables(slice(file, header.offset, header.file_bytes)?)?,
            None => UnwindTables { header: (0, 0), frames: elf.eh_frame_section()? },
        };
        let load = elf.load_of(tables.frames.0)?;
        let frames_offset = tables.frames.0 - load.vaddr + load.offset;
        let frames_bytes = tables.frames.1 - tables.frames.0;
        let (header_offset, header_bytes) = header.map_or((frames_offset, 0), |h| (h.offset, h.file_bytes));
        // One mapping over both tables; the rest of the file is let go.
        let first = header_offset.min(frames_offset) & !(page - 1);
        let last = (header_offset + header_bytes).max(frames_offset.checked_add(frames_bytes)?);
        if last > file.len() as u64 {
            return None;
        }
        let source = Arc::new(Source::File(FileMap::new(fd, first, (last - first) as usize)?));
        let part = |offset: u64, bytes: u64| Section {
            source: Arc::clone(&source),
            range: (offset - first) as usize..(offset - first + bytes) as usize,
        };
        let frames = part(frames_offset, frames_bytes);
        self.mapped = Some(Arc::clone(&source));
        self.set_unwind(mapping, &elf, bias, &tables, header.map(|h| part(h.offset, h.file_bytes)), frames);
        Some(())
    }

    /// Tables from the process's own memory, where the file's beginning is mapped at `head`. The copies are made by the
    /// kernel, so that memory which is unmapped meanwhile costs the tables and not the process.
    fn load_from_memory(&mut self, mapping: &Mapping<'_>, head: u64) -> Option<()> {
        let page = sys::page_size() as u64;
        let bytes = copy(head, HEAD_BYTES as u64)?;
        let elf = Elf::parse(&bytes)?;
        let bias = elf.bias(mapping.start, mapping.offset, page)?;
        for note in elf.notes().filter(|note| note.file_bytes < HEAD_BYTES as u64) {
            let bytes = copy(note.vaddr.wrapping_add(bias), note.file_bytes);
            if let Some(id) = bytes.as_deref().and_then(elf::build_id) {
                self.build_id = id.to_vec();
            }
        }
        let header = elf.unwind_header()?;
        let header_bytes = copy(header.vaddr.wrapping_add(bias), header.file_bytes)?;
        let tables = elf.unwind_tables(&header_bytes)?;
        let frames_bytes = copy(tables.frames.0.wrapping_add(bias), tables.frames.1 - tables.frames.0)?;
        let whole = |bytes: Vec<u8>| {
            let range = 0..bytes.len();
            Section { source: Arc::new(Source::Copy(bytes)), range }
        };
        self.set_unwind(mapping, &elf, bias, &tables, Some(whole(header_bytes)), whole(frames_bytes));
        Some(())
    }

    /// Without a header, framehop makes an index of its own.
    fn set_unwind(
        &mut self,
        mapping: &Mapping<'_>,
        elf: &Elf<'_>,
        bias: u64,
        tables: &UnwindTables,
        header: Option<Section>,
        frames: Section,
    ) {
        let base_svma = elf.base(sys::page_size() as u64);
        let sections = ExplicitModuleSectionInfo {
            base_svma,
            eh_frame_svma: Some(tables.frames.0..tables.frames.1),
            eh_frame: Some(frames),
            eh_frame_hdr_svma: header.as_ref().map(|_| tables.header.0..tables.header.1),
            eh_frame_hdr: header,
            text_svma: None,
            text: None,
            stubs_svma: None,
            stub_helper_svma: None,
            got_svma: None,
            unwind_info: None,
            debug_frame: None,
            text_segment_svma: None,
            text_segment: None,
        };
        let range = mapping.start..mapping.end;
        self.unwind = Some(Module::new(String::new(), range, base_svma.wrapping_add(bias), sections));
    }
}

fn slice(bytes: &[u8], offset: u64, len: u64) -> Option<&[u8]> {
    bytes.get(offset as usize..offset.checked_add(len)? as usize)
}

/// Copy of own memory, whole or `None`.
fn copy(addr: u64, bytes: u64) -> Option<Vec<u8>> {
    if bytes > MAX_COPY_BYTES {
        return None;
    }
    let mut copy = alloc::vec![0; bytes as usize];
    let got = sys::copy_memory_of(sys::getpid(), addr as usize, &mut copy);
    (got == copy.len()).then_some(copy)
}
