//! Every map, with its cost in kernel memory, and the settings that the loader writes before loading.
//!
//! | map | entries | memory | who writes |
//! |---|---|---|---|
//! | `EVENTS` | 4 MiB unless the loader says otherwise | as said | all programs; the loader consumes |
//! | `DROPS` | one u64 per reason and CPU | 128 B a CPU | `drops.rs` |
//! | `SENT` | 65,536 | about 5 MiB | `stack.rs` |
//! | `PROCESSES` | 8,192 | about 0.6 MiB | `filter.rs`, `lifecycle.rs`, the loader |
//! | `SITES` | 64 | 8 KiB | the loader |

use aya_ebpf::macros::map;
use aya_ebpf::maps::{Array, LruHashMap, PerCpuArray, RingBuf};
use jeprobe_abi::abi::ABI_VERSION;
use jeprobe_abi::config::Config;
use jeprobe_abi::drops::DROP_REASONS;
use jeprobe_abi::keys::{Site, StackKey};

/// Version of the records in this object; the loader compares it with its own before it loads anything.
#[unsafe(no_mangle)]
#[used]
static JEPROBE_ABI_VERSION: u32 = ABI_VERSION;

/// Settings; read-only for the programs, written by the loader before the object is loaded.
#[unsafe(no_mangle)]
static JEPROBE_CONFIG: Config = Config::DEFAULT;

/// The settings as the loader wrote them. The volatile read keeps the compiler from using the value above.
#[inline(always)]
pub(crate) fn config() -> Config {
    // SAFETY: the static is valid for reads and never written while programs run.
    unsafe { core::ptr::read_volatile(&raw const JEPROBE_CONFIG) }
}

/// Records of `jeprobe_abi::event`.
#[map]
pub(crate) static EVENTS: RingBuf = RingBuf::with_byte_size(4 << 20, 0);

/// Losses by `jeprobe_abi::drops::Reason`.
#[map]
pub(crate) static DROPS: PerCpuArray<u64> = PerCpuArray::with_max_entries(DROP_REASONS as u32, 0);

/// Stacks whose frames the loader already has. Least recently used ones fall out and are sent again.
#[map]
pub(crate) static SENT: LruHashMap<StackKey, u8> = LruHashMap::with_max_entries(65_536, 0);

/// Processes that hit a probe or that the loader named: tgid → generation, raised by exec and exit so that addresses
/// of an earlier image are not taken for known stacks.
#[map]
pub(crate) static PROCESSES: LruHashMap<u32, u32> = LruHashMap::with_max_entries(8_192, 0);

/// Argument places of probes whose notes do not use the `SysV` order, by attach cookie.
#[map]
pub(crate) static SITES: Array<Site> = Array::with_max_entries(jeprobe_abi::keys::MAX_SITES, 0);
