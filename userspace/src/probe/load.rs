//! The kernel object: checked, configured, loaded. Knows maps and programs by name; attaches nothing.
#![forbid(unsafe_code)]

use std::collections::HashSet;
use std::os::fd::{AsFd as _, BorrowedFd};

use aya::maps::{Array, HashMap, MapData, PerCpuArray, RingBuf};
use aya::programs::{Program, ProgramError};
use aya::{Ebpf, EbpfError, EbpfLoader};
use jeprobe_abi::abi::ABI_VERSION;
use jeprobe_abi::config::Config;
use jeprobe_abi::drops::{DROP_REASONS, Reason};
use jeprobe_abi::keys::Site;
use object::{Object as _, ObjectSection as _, ObjectSymbol as _};
use thiserror::Error;

/// Built by `cargo xtask build-ebpf`; without it this crate does not compile.
static OBJECT: &[u8] =
    aya::include_bytes_aligned!(concat!(env!("CARGO_MANIFEST_DIR"), "/../ebpf/prebuilt/jeprobe-ebpf.o"));

#[derive(Debug, Error)]
#[non_exhaustive]
pub enum LoadError {
    #[error("the kernel object has records of version {found}, this loader reads version {}", ABI_VERSION)]
    Version { found: u32 },

    #[error("the kernel object is damaged: it has no {name}")]
    Missing { name: &'static str },

    #[error("cannot load the kernel object")]
    Object(#[source] Box<EbpfError>),

    #[error("the kernel refused the program {name}")]
    Program { name: &'static str, source: Box<ProgramError> },

    #[error("cannot use the kernel map {name}")]
    Map { name: &'static str, source: Box<aya::maps::MapError> },
}

impl LoadError {
    pub fn hint(&self) -> Option<String> {
        match self {
            LoadError::Version { .. } | LoadError::Missing { .. } => {
                Some("rebuild the kernel object and the loader together: cargo xtask build-ebpf".into())
            }
            LoadError::Object(_) | LoadError::Program { .. } => Some(
                "run as root, or with CAP_BPF and CAP_PERFMON; without eBPF: jeprobe attach --mode inprocess".into(),
            ),
            LoadError::Map { .. } => None,
        }
    }
}

/// The loaded object.
pub(super) struct Kernel {
    bpf: Ebpf,
    loaded: HashSet<&'static str>,
    events: RingBuf<MapData>,
    drops: PerCpuArray<MapData, u64>,
    processes: HashMap<MapData, u32, u32>,
    sites: Array<MapData, [u8; size_of::<Site>()]>,
}

impl Kernel {
    /// Makes the maps and loads the settings; programs follow when they are needed. `ring_bytes` is a power of two and a
    /// multiple of the page size.
    pub(super) fn load(config: &Config, ring_bytes: u32) -> Result<Kernel, LoadError> {
        check_version()?;
        let settings = encode_config(config);
        let mut bpf = EbpfLoader::new()
            .override_global("JEPROBE_CONFIG", &settings[..], true)
            .map_max_entries("EVENTS", ring_bytes)
            .load(OBJECT)
            .map_err(|source| LoadError::Object(Box::new(source)))?;
        let mut take = |name| bpf.take_map(name).ok_or(LoadError::Missing { name });
        let map = |name| move |source| LoadError::Map { name, source: Box::new(source) };
        Ok(Kernel {
            events: RingBuf::try_from(take("EVENTS")?).map_err(map("EVENTS"))?,
            drops: PerCpuArray::try_from(take("DROPS")?).map_err(map("DROPS"))?,
            processes: HashMap::try_from(take("PROCESSES")?).map_err(map("PROCESSES"))?,
            sites: Array::try_from(take("SITES")?).map_err(map("SITES"))?,
            bpf,
            loaded: HashSet::new(),
        })
    }

    /// Descriptor of a program, loaded at its first use.
    pub(super) fn program(&mut self, name: &'static str) -> Result<BorrowedFd<'_>, LoadError> {
        let refused = |source| LoadError::Program { name, source: Box::new(source) };
        let program = self.bpf.program_mut(name).ok_or(LoadError::Missing { name })?;
        let first = self.loaded.insert(name);
        match program {
            Program::UProbe(program) => {
                if first {
                    program.load().map_err(refused)?;
                }
                Ok(program.fd().map_err(refused)?.as_fd())
            }
            Program::TracePoint(program) => {
                if first {
                    program.load().map_err(refused)?;
                }
                Ok(program.fd().map_err(refused)?.as_fd())
            }
            _ => Err(LoadError::Missing { name }),
        }
    }

    pub(super) fn events(&mut self) -> &mut RingBuf<MapData> {
        &mut self.events
    }

    pub(super) fn events_fd(&self) -> BorrowedFd<'_> {
        self.events.as_fd()
    }

    /// Losses by reason, all CPUs together.
    pub(super) fn drops(&self) -> [u64; DROP_REASONS] {
        let mut sums = [0; DROP_REASONS];
        for reason in Reason::ALL {
            // A reason cannot be missing: the map has DROP_REASONS entries by its definition.
            if let Ok(values) = self.drops.get(&(*reason as u32), 0) {
                sums[*reason as usize] = values.iter().sum();
            }
        }
        sums
    }

    /// Reports exec, exit and fork of this process from now on.
    pub(super) fn follow(&mut self, tgid: u32) -> Result<(), LoadError> {
        const IF_ABSENT: u64 = 1;
        match self.processes.insert(tgid, 0, IF_ABSENT) {
            Ok(()) => Ok(()),
            // A hit was first.
            Err(aya::maps::MapError::SyscallError(error)) if error.io_error.raw_os_error() == Some(libc::EEXIST) => {
                Ok(())
            }
            Err(source) => Err(LoadError::Map { name: "PROCESSES", source: Box::new(source) }),
        }
    }

    /// Stores argument places under an attach cookie.
    pub(super) fn set_site(&mut self, cookie: u32, site: &Site) -> Result<(), LoadError> {
        self.sites
            .set(cookie, encode_site(site), 0)
            .map_err(|source| LoadError::Map { name: "SITES", source: Box::new(source) })
    }
}

fn check_version() -> Result<(), LoadError> {
    const NAME: &str = "JEPROBE_ABI_VERSION";
    let missing = LoadError::Missing { name: NAME };
    let Ok(elf) = object::File::parse(OBJECT) else { return Err(missing) };
    let version = elf.symbols().find(|symbol| symbol.name() == Ok(NAME)).and_then(|symbol| {
        let section = elf.section_by_index(symbol.section_index()?).ok()?;
        let bytes = section.data_range(section.address() + symbol.address(), 4).ok()??;
        Some(u32::from_le_bytes(bytes.try_into().ok()?))
    });
    match version {
        Some(ABI_VERSION) => Ok(()),
        Some(found) => Err(LoadError::Version { found }),
        None => Err(missing),
    }
}

/// The bytes of a `Config` as the kernel programs see them.
fn encode_config(config: &Config) -> Vec<u8> {
    let Config { tgid, stacks, fork_pid_offset, fork_flags_offset, wakeup_bytes, pidns_dev, pidns_ino } = *config;
    let mut bytes = Vec::with_capacity(size_of::<Config>());
    for word in [tgid, stacks, fork_pid_offset, fork_flags_offset] {
        bytes.extend_from_slice(&word.to_ne_bytes());
    }
    for word in [wakeup_bytes, pidns_dev, pidns_ino] {
        bytes.extend_from_slice(&word.to_ne_bytes());
    }
    bytes
}

/// The bytes of a `Site` as the kernel programs see them.
fn encode_site(site: &Site) -> [u8; size_of::<Site>()] {
    let mut bytes = [0; size_of::<Site>()];
    for (slot, arg) in bytes.chunks_exact_mut(size_of::<Site>() / site.args.len()).zip(&site.args) {
        slot[..8].copy_from_slice(&arg.value.to_ne_bytes());
        for (word, value) in slot[8..].chunks_exact_mut(4).zip([arg.kind, arg.register, arg.bits, arg.signed]) {
            word.copy_from_slice(&value.to_ne_bytes());
        }
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::{OBJECT, check_version, encode_config, encode_site};
    use jeprobe_abi::config::Config;
    use jeprobe_abi::keys::{ARG_MEMORY, Arg, Site};
    use object::{Object as _, ObjectSymbol as _};

    #[test]
    fn the_embedded_object_is_of_this_version_and_has_every_program() {
        check_version().expect("same version");
        let elf = object::File::parse(OBJECT).expect("an ELF file");
        let names: Vec<&str> = elf.symbols().filter_map(|symbol| symbol.name().ok()).collect();
        for program in [
            "jeprobe_alloc",
            "jeprobe_free",
            "jeprobe_context",
            "jeprobe_dump",
            "jeprobe_mallctl",
            "foreign_alloc",
            "foreign_free",
            "process_exec",
            "process_exit",
            "process_fork",
        ] {
            assert!(names.contains(&program), "{program}");
        }
    }

    #[test]
    fn settings_keep_their_order() {
        let config = Config { tgid: 0x0102_0304, pidns_ino: 0x0a0b, ..Config::DEFAULT };
        let bytes = encode_config(&config);
        assert_eq!(bytes.len(), size_of::<Config>());
        assert_eq!(bytes[..4], [4, 3, 2, 1]);
        assert_eq!(bytes[8..16], [8, 0, 0, 0, 32, 0, 0, 0]);
        assert_eq!(bytes[32..], [0x0b, 0x0a, 0, 0, 0, 0, 0, 0]);
    }

    #[test]
    fn argument_places_keep_their_order() {
        let mut site = Site::default();
        site.args[1] = Arg { value: -2, kind: ARG_MEMORY, register: 32, bits: 64, signed: 1 };
        let bytes = encode_site(&site);
        assert_eq!(bytes[..24], [0; 24]);
        assert_eq!(bytes[24..32], (-2_i64).to_ne_bytes());
        assert_eq!(bytes[32..48], [3, 0, 0, 0, 32, 0, 0, 0, 64, 0, 0, 0, 1, 0, 0, 0]);
    }
}
