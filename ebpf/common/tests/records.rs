//! Bytes of every record that crosses a boundary, against a checked-in file: a layout that moved is a visible diff.
//!
//! Each field gets a value of its own, the record is copied to bytes and back, and the bytes are compared with
//! `records.txt`. After an intended change: raise `ABI_VERSION`, then `JEPROBE_BLESS=1 cargo test -p jeprobe-abi`.

use std::fmt::Write as _;
use std::path::Path;
use std::{env, fs};

use jeprobe_abi::config::Config;
use jeprobe_abi::event::{AllocEvent, ContextEvent, DumpEvent, FreeEvent, Header, LifecycleEvent, MallctlEvent};
use jeprobe_abi::keys::{Arg, Site, StackKey};
use jeprobe_abi::root::{Apart, Context, Counts, Live, Root, Segment, Tctx, Thread};

/// Types of integers and arrays of them without padding: `layout.rs` asserts their sizes.
///
/// # Safety
/// S1: every byte of a value is initialised. S2: any bytes are a value.
unsafe trait Plain: Copy {}

macro_rules! plain {
    ($($name:ident)*) => {$(
        // SAFETY: S1 and S2 by the fields: integers and arrays of integers, without padding.
        unsafe impl Plain for $name {}
    )*};
}

plain!(Header AllocEvent FreeEvent ContextEvent DumpEvent MallctlEvent LifecycleEvent Config StackKey Arg Site);
plain!(Root Segment Counts Context Tctx Apart Live Thread);

fn bytes_of<T: Plain>(value: &T) -> Vec<u8> {
    // SAFETY: the value is `size_of::<T>()` bytes, all initialised by S1 of `Plain`.
    unsafe { std::slice::from_raw_parts(std::ptr::from_ref(value).cast::<u8>(), size_of::<T>()) }.to_vec()
}

fn value_of<T: Plain>(bytes: &[u8]) -> T {
    assert_eq!(bytes.len(), size_of::<T>());
    // SAFETY: as many bytes as the value has, and any bytes are one by S2 of `Plain`.
    unsafe { std::ptr::read_unaligned(bytes.as_ptr().cast()) }
}

/// A value whose `n`th field is `n`, or holds `n` in every element.
macro_rules! numbered {
    ($name:ident: $($field:ident $([$($array:tt)*])?),*) => {{
        let mut value: $name = value_of(&[0; size_of::<$name>()]);
        let mut n = 0_u8;
        $(
            n += 1;
            numbered!(@set value.$field, n $(, [$($array)*])?);
        )*
        assert!(n > 0);
        value
    }};
    (@set $place:expr, $n:ident) => { $place = $n.into() };
    (@set $place:expr, $n:ident, [each]) => { $place.fill($n.into()) };
    (@set $place:expr, $n:ident, [= $value:expr]) => { $place = $value };
}

fn record<T: Plain>(text: &mut String, name: &str, value: &T) {
    let bytes = bytes_of(value);
    assert_eq!(bytes_of(&value_of::<T>(&bytes)), bytes, "{name}");
    let _ = writeln!(text, "{name}: {} bytes", bytes.len());
    for (row, line) in bytes.chunks(32).enumerate() {
        let _ = write!(text, "{:4}", row * 32);
        for word in line.chunks(8) {
            let _ = write!(text, " ");
            for byte in word {
                let _ = write!(text, "{byte:02x}");
            }
        }
        text.push('\n');
    }
}

#[test]
fn bytes_are_as_recorded() {
    let header = numbered!(Header: kind, len, tgid, tid, time_ns);
    let counts = numbered!(Counts: objects, bytes, weight_objects8, weight_bytes);
    let arg = numbered!(Arg: value, kind, register, bits, signed);
    let mut text = String::new();
    record(&mut text, "Header", &header);
    record(
        &mut text,
        "AllocEvent",
        &numbered!(AllocEvent: header[= header], ptr, usable_bytes, weight_bytes, requested_bytes, stack, stack_kind, _pad),
    );
    record(&mut text, "FreeEvent", &numbered!(FreeEvent: header[= header], ptr, usable_bytes));
    record(
        &mut text,
        "ContextEvent",
        &numbered!(ContextEvent: header[= header], stack, stack_kind, depth, frames[each], packed_words),
    );
    record(&mut text, "DumpEvent", &numbered!(DumpEvent: header[= header], sequence, reason, path[each]));
    record(&mut text, "MallctlEvent", &numbered!(MallctlEvent: header[= header], name[each], new_value, new_len));
    record(&mut text, "LifecycleEvent", &numbered!(LifecycleEvent: header[= header], other, _pad));
    record(
        &mut text,
        "Config",
        &numbered!(Config: tgid, stacks, fork_pid_offset, fork_flags_offset, wakeup_bytes, pidns_dev, pidns_ino),
    );
    record(&mut text, "StackKey", &numbered!(StackKey: stack, tgid, kind_generation));
    record(&mut text, "Arg", &arg);
    record(&mut text, "Site", &numbered!(Site: args[= [arg; 3]]));
    record(
        &mut text,
        "Root",
        &numbered!(Root: magic, abi_version, root_size, segment_size, context_size, tctx_size, live_size, thread_size,
            state, pid, epoch, prof_active, dump_request, dump_served, lg_sample, opt_prof, opt_accum, max_frames, _pad,
            start_ns, samples, frees, dumps, dump_failures, exited_allocated_bytes, exited_deallocated_bytes,
            drops[each], contexts, tctxs, lives, threads, allocated_bytes, active_bytes, resident_bytes, mapped_bytes,
            text_start, text_end),
    );
    record(&mut text, "Segment", &numbered!(Segment: next, kind, _pad, used_bytes, capacity_bytes));
    record(&mut text, "Counts", &counts);
    record(&mut text, "Context", &numbered!(Context: hash, tctxs, depth, words, flags, _pad));
    record(&mut text, "Tctx", &numbered!(Tctx: context, next, thread, apart, kept[= counts]));
    record(&mut text, "Apart", &numbered!(Apart: freed[= counts], cumulative[= counts]));
    record(
        &mut text,
        "Live",
        &numbered!(Live: ptr, usable_bytes, requested_bytes, weight_bytes, tctx, time_ns, next, state, epoch),
    );
    record(
        &mut text,
        "Thread",
        &numbered!(Thread: uid, tid, alive, _pad, name[each], samples, frees, allocated_bytes, deallocated_bytes, kept,
            freed),
    );

    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/records.txt");
    if env::var("JEPROBE_BLESS").is_ok_and(|value| value == "1") {
        fs::write(&path, &text).expect("the fixture can be written");
    }
    let recorded = fs::read_to_string(&path).expect("the fixture is there");
    assert!(recorded == text, "layouts moved; now:\n{text}");
}
