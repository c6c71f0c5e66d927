//! speedscope's JSON (`https://www.speedscope.app/file-format-schema.json`): one sampled profile for each value.
//!
//! Each sample is a distinct stack of names, root first; weights are whole numbers that sum up to `endValue`. The profile that
//! is shown first is the chosen value. Negative weights, which the format does not know, are left out.
#![forbid(unsafe_code)]

use std::io::{self, Write};

use serde_json::json;

use super::callgrind::values;
use super::paths::Paths;
use super::select::{Options, Selection, Value};
use super::whole::Whole;
use crate::model::Kind;

/// Writes the file; `subject` names what was profiled.
pub fn write(selection: &Selection<'_>, options: &Options, subject: &str, mut out: impl Write) -> io::Result<()> {
    let paths = Paths::new(selection, options);
    let values = values(selection);
    let active = values.iter().position(|value| *value == options.value).unwrap_or(0);
    write!(
        out,
        r#"{{"$schema":"https://www.speedscope.app/file-format-schema.json","exporter":"jeprobe","name":{},"activeProfileIndex":{active},"shared":{{"frames":["#,
        json!(subject)
    )?;
    for (place, (name, frame)) in paths.names.iter().zip(&paths.examples).enumerate() {
        let mut entry = json!({ "name": name });
        if !frame.file.is_empty() {
            entry["file"] = json!(frame.file);
            entry["line"] = json!(frame.line);
        }
        write!(out, "{}{entry}", comma(place))?;
    }
    write!(out, "]}},\"profiles\":[")?;
    for (place, value) in values.iter().enumerate() {
        write!(out, "{}", comma(place))?;
        one(&paths, *value, &options.kind, &mut out)?;
    }
    writeln!(out, "]}}")
}

fn one(paths: &Paths, value: Value, kind: &Kind, out: &mut impl Write) -> io::Result<()> {
    // Its units are these, and some of seconds.
    let unit = match value.unit_in(kind).as_str() {
        "bytes" => "bytes",
        "nanoseconds" => "nanoseconds",
        _ => "none",
    };
    let shown = || {
        let mut whole = Whole::default();
        paths
            .list
            .iter()
            .map(move |path| (path, whole.next(path.numbers[value as usize].max(0.0))))
            .filter(|(_, weight)| *weight > 0)
    };
    let total = shown().fold(0_i128, |sum, (_, weight)| sum.saturating_add(weight));
    write!(
        out,
        r#"{{"type":"sampled","name":{},"unit":"{unit}","startValue":0,"endValue":{total},"samples":["#,
        json!(value.name_in(kind))
    )?;
    for (place, (path, _)) in shown().enumerate() {
        write!(out, "{}{}", comma(place), json!(path.frames))?;
    }
    write!(out, "],\"weights\":[")?;
    for (place, (_, weight)) in shown().enumerate() {
        write!(out, "{}{weight}", comma(place))?;
    }
    write!(out, "]}}")
}

/// What stands before the element at `place` of a list.
pub(super) fn comma(place: usize) -> &'static str {
    if place == 0 { "" } else { "," }
}
