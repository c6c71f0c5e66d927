//! A report as JSON, for programs. Written piece by piece: memory does not grow with the stacks.
//!
//! ```text
//! { "schema": "jeprobe-report", "version": 1, "producer": "jeprobe 0.1.0",
//!   "subject": "a.heap", "value": "inuse_space", "unit": "bytes", "has_base": false,
//!   "process": { "pid": 12, "program": "/bin/x" },               null where unknown
//!   "sample_interval_bytes": 524288,                             0 = every object is counted
//!   "estimates": [ { "value": "inuse_space", "samples": 90, "standard_error": …, "finest_interval_bytes": …, "coarsest_interval_bytes": … } ],
//!   "columns": [ "inuse_space", "inuse_objects", "alloc_space", "alloc_objects" ],
//!   "totals": { "inuse_space": …, "inuse_objects": …, "alloc_space": …, "alloc_objects": … },
//!                                                                of another kind: two, such as "delay" and "contentions"
//!   "losses": [ { "reason": "ring-full", "count": 3, "meaning": …, "remedy": … } ],
//!   "notes": [ … ], "counters": { "samples": 13 }, "configuration": { … },
//!   "alloc_since": "attach",                                     "start" where the allocated are counted from the process's start
//!   "addresses": { "all": 40, "unnamed": 2 },
//!   "mappings": [ { "start": "0x…", "end": "0x…", "offset": "0x…", "path": …, "build_id": "…", "deleted": false } ],
//!   "rows": [ { "name": …, "flat": …, "cumulative": … } ],       the chosen value, sorted; what a row is: "granularity"
//!   "stacks": [ { "frames": [ids, leaf first], "numbers": [as in "columns"], "base": [the same, with a base only] } ],
//!   "frames": [ { "name", "full_name", "file", "line", "address": "0x…", "module", "inlined", "named" } ] }
//! ```
//!
//! The members stand in this order. The README says the same to its readers. Numbers of bytes and objects are unbiased estimates with their fraction; sums of `stacks` are `totals` unless focus or
//! ignore left stacks out. `version` grows when a member changes its meaning or goes; members may be added without.
#![forbid(unsafe_code)]

use std::io::{self, Write};

use serde_json::{Value as Json, json};

use super::select::{Granularity, Numbers, Options, Selection, Value};
use super::speedscope::comma;
use super::table::Table;
use super::view::Frame;
use crate::image::debugfile::hex;
use crate::model::{Kind, Profile};

/// Version of the schema above.
pub const VERSION: u32 = 1;

/// Writes the report; `subject` names what was profiled.
pub fn write(selection: &Selection<'_>, options: &Options, subject: &str, mut out: impl Write) -> io::Result<()> {
    let profile = selection.profile();
    let (all, unnamed) = selection.symbols().counts();
    let kind = profile.kind();
    let values = Value::of_kind(kind);
    let head = json!({
        "schema": "jeprobe-report",
        "version": VERSION,
        "producer": concat!("jeprobe ", env!("CARGO_PKG_VERSION")),
        "subject": subject,
        "value": options.value.name_in(kind),
        "unit": options.unit(),
        "has_base": selection.has_base(),
        "process": { "pid": profile.pid(), "program": profile.program().map(|path| path.to_string_lossy()) },
        "sample_interval_bytes": profile.interval().0,
        "estimates": estimates(profile),
        "columns": values.iter().map(|value| value.name_in(kind)).collect::<Vec<_>>(),
        "totals": named(selection.totals(), kind),
        "losses": losses(profile),
        "notes": profile.notes(),
        "counters": profile.counters().iter().map(|(name, count)| (name.clone(), json!(count))).collect::<serde_json::Map<_, _>>(),
        "configuration": profile.configuration().iter().map(|(key, value)| (key.clone(), json!(value))).collect::<serde_json::Map<_, _>>(),
        "alloc_since": if profile.allocated_since().is_some() { "attach" } else { "start" },
        "addresses": { "all": all, "unnamed": unnamed },
        "mappings": mappings(profile),
        "granularity": match options.granularity {
            Granularity::Functions => "function",
            Granularity::Lines => "line",
            Granularity::Files => "file",
            Granularity::Addresses => "address",
        },
    });
    let head = head.to_string();
    writeln!(out, "{},", head.strip_suffix('}').unwrap_or(&head))?;
    write!(out, "\"rows\":[")?;
    let table = Table::new(selection, options);
    for (place, row) in table.rows.iter().take(options.limit.unwrap_or(usize::MAX)).enumerate() {
        let row = json!({ "name": row.name, "flat": row.flat, "cumulative": row.cumulative });
        write!(out, "{}\n{row}", comma(place))?;
    }
    drop(table);
    write!(out, "],\n\"stacks\":[")?;
    let mut place = 0;
    let frames = selection.walk(options, |stack, _| {
        let mut entry = json!({ "frames": stack.frames, "numbers": stack.numbers[..values.len()] });
        if selection.has_base() {
            entry["base"] = json!(selection.base_of(stack.id)[..values.len()]);
        }
        let written = write!(out, "{}\n{entry}", comma(place));
        place += 1;
        written
    })?;
    write!(out, "],\n\"frames\":[")?;
    for (place, frame) in frames.iter().enumerate() {
        write!(out, "{}\n{}", comma(place), frame_entry(frame, profile))?;
    }
    writeln!(out, "]}}")
}

fn named(numbers: Numbers, kind: &Kind) -> Json {
    Value::of_kind(kind).iter().map(|value| (value.name_in(kind), json!(numbers[*value as usize]))).collect()
}

/// What the totals of bytes rest on; of other kinds there are none.
fn estimates(profile: &Profile) -> Vec<Json> {
    let of = |value: Value| {
        let basis = profile.basis(value.is_cumulative());
        json!({
            "value": value.name(),
            "samples": basis.samples,
            "standard_error": basis.variance.sqrt(),
            "finest_interval_bytes": basis.finest.0,
            "coarsest_interval_bytes": basis.coarsest.0,
        })
    };
    let amounts = [Value::InuseSpace, Value::AllocSpace];
    amounts.into_iter().filter(|_| *profile.kind() == Kind::Heap).map(of).collect()
}

fn losses(profile: &Profile) -> Vec<Json> {
    profile
        .losses()
        .map(|(reason, count)| {
            json!({ "reason": reason.name(), "count": count, "meaning": reason.meaning(), "remedy": reason.remedy() })
        })
        .collect()
}

fn mappings(profile: &Profile) -> Vec<Json> {
    profile
        .mappings()
        .iter()
        .map(|mapping| {
            json!({
                "start": format!("{:#x}", mapping.start),
                "end": format!("{:#x}", mapping.end),
                "offset": format!("{:#x}", mapping.offset),
                "path": mapping.path.to_string_lossy(),
                "build_id": hex(&mapping.build_id),
                "deleted": mapping.deleted,
            })
        })
        .collect()
}

fn frame_entry(frame: &Frame, profile: &Profile) -> Json {
    json!({
        "name": frame.name,
        "full_name": frame.full,
        "file": frame.file,
        "line": frame.line,
        "address": format!("{:#x}", frame.address),
        "module": profile.mappings().find(frame.address).map_or_else(String::new, |mapping| mapping.path.to_string_lossy().into_owned()),
        "inlined": frame.is_inlined,
        "named": frame.is_named,
    })
}
