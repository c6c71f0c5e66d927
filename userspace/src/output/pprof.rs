//! pprof's protobuf, gzipped: read by `go tool pprof`, Grafana, Polar Signals and others.
//!
//! | message | holds |
//! |---|---|
//! | sample types | in-use and, where counted, allocated objects and space; the chosen value is the default |
//! | samples | one for each stack and known thread, in whole numbers that sum up to the totals, cut at the point; of a difference two for each stack, what was before as negative ones |
//! | labels | `thread` (name), `thread_id` (number in the profile, as text), what else is known of the origin, such as `process` |
//! | mappings | executable files with build-id, the main program first |
//! | locations | the address of a call, with a line for each function inlined there, innermost first |
//! | comments | sampling, losses, notes |
//!
//! Frames without a name are functions called `module+0xoffset`. Samples are encoded as they are walked; what stays in
//! memory grows with the distinct addresses.
#![forbid(unsafe_code)]

use std::collections::HashMap;
use std::io::{self, Write};

use flate2::Compression;
use flate2::write::GzEncoder;
use prost::Message as _;
use prost::encoding::{WireType, encode_key};

use super::parts::Parts;
use super::select::{Numbers, Options, Selection, Value};
use super::view::Frame;
use super::whole::Whole;
use crate::image::debugfile::hex;
use crate::model::{Kind, Mapping, Profile, Thread, ThreadUid};
use crate::proto::pprof as proto;

/// By which `go tool pprof` knows samples of what is subtracted: key and text.
const BASE_LABEL: [&str; 2] = ["pprof::base", "true"];

/// Writes the profile.
pub fn write(selection: &Selection<'_>, options: &Options, out: impl Write) -> io::Result<()> {
    let mut out = GzEncoder::new(out, Compression::default());
    let profile = selection.profile();
    let mut strings = Strings::new();
    let types = sample_types(selection);
    let mut message = proto::Profile {
        sample_type: types.iter().map(|value| value_type(profile.kind(), *value, &mut strings)).collect(),
        default_sample_type: strings.of(&options.value.name_in(profile.kind())),
        ..proto::Profile::default()
    };
    if *profile.kind() == Kind::Heap {
        message.period_type = Some(proto::ValueType { kind: strings.of("space"), unit: strings.of("bytes") });
        message.period = i64::try_from(profile.interval().0).unwrap_or(i64::MAX);
    }
    let labels: HashMap<ThreadUid, Vec<proto::Label>> =
        profile.threads().map(|(uid, _)| (uid, thread_labels(profile, uid, &mut strings))).collect();
    // First, so that a reader knows by the first byte what it has.
    out.write_all(&std::mem::take(&mut message).encode_to_vec())?;
    let mut wholes = vec![Whole::default(); types.len()];
    let parts = Parts::new(profile);
    // Of a difference: what the base held stands as samples of its own, by which `go tool pprof` knows what shares are of.
    let mut base = selection.has_base().then(|| {
        let [key, text] = BASE_LABEL.map(|text| strings.of(text));
        (vec![Whole::default(); types.len()], proto::Label { key, text, ..proto::Label::default() })
    });
    let mut locations = Locations::default();
    let mut buffer = Vec::new();
    let frames = selection.walk(options, |stack, frames| {
        let mut sample = proto::Sample::default();
        locations.of(stack.frames, frames, &mut sample.location_id);
        let mut result = Ok(());
        parts.of(selection, stack, |thread, numbers| {
            let mut put = |sample: &proto::Sample| {
                if sample.value.iter().all(|value| *value == 0) || result.is_err() {
                    return;
                }
                buffer.clear();
                encode_key(proto::SAMPLE_FIELD, WireType::LengthDelimited, &mut buffer);
                // Memory takes everything.
                let _infallible = sample.encode_length_delimited(&mut buffer);
                result = out.write_all(&buffer);
            };
            let of = |numbers: Numbers, wholes: &mut [Whole]| -> Vec<i64> {
                types.iter().zip(wholes).map(|(value, whole)| whole.next_of_64_bits(numbers[*value as usize])).collect()
            };
            sample.value = of(numbers, &mut wholes);
            if let Some((wholes, label)) = &mut base {
                let before = of(selection.base_of(stack.id), wholes);
                sample.value.iter_mut().zip(&before).for_each(|(value, before)| *value = value.saturating_add(*before));
                let value = before.iter().map(|before| before.saturating_neg()).collect();
                put(&proto::Sample { value, label: vec![label.clone()], ..sample.clone() });
            }
            sample.label = thread.and_then(|uid| labels.get(&uid).cloned()).unwrap_or_default();
            put(&sample);
        });
        result
    })?;
    describe(&mut message, &frames, &locations, profile, &mut strings);
    message.comment = comments(selection, options).iter().map(|line| strings.of(line)).collect();
    message.string_table = strings.list;
    out.write_all(&message.encode_to_vec())?;
    out.finish()?.flush()
}

/// The values that the profile has, in pprof's order.
pub(super) fn sample_types(selection: &Selection<'_>) -> Vec<Value> {
    let profile = selection.profile();
    let order = [Value::AllocObjects, Value::AllocSpace, Value::InuseObjects, Value::InuseSpace];
    order.into_iter().filter(|value| profile.has_cumulative() || !value.is_cumulative()).collect()
}

/// The unit of a value as a sample type.
pub(super) fn type_unit(kind: &Kind, value: Value) -> String {
    if value.is_bytes() { kind.amount().unit } else { kind.count().unit }
}

fn value_type(kind: &Kind, value: Value, strings: &mut Strings) -> proto::ValueType {
    proto::ValueType { kind: strings.of(&value.name_in(kind)), unit: strings.of(&type_unit(kind, value)) }
}

/// Key and text of everything known of the origin of a thread's samples.
pub(super) fn thread_tags(profile: &Profile, uid: ThreadUid) -> Vec<(String, String)> {
    let Some(thread) = profile.thread(uid) else { return Vec::new() };
    let mut tags = Vec::new();
    // Numbers that only a merge gave are no threads of anything.
    if !thread.labels.iter().any(|(key, _)| key == "thread") {
        tags.push(("thread".to_owned(), thread_name(profile, uid, thread)));
    }
    tags.extend(thread.labels.iter().filter(|(_, text)| !text.is_empty()).cloned());
    tags
}

/// What a thread is called: with its process where the profile is of several.
fn thread_name(profile: &Profile, uid: ThreadUid, thread: &Thread) -> String {
    let name = if thread.name.is_empty() { format!("t{}", uid.0) } else { thread.name.clone() };
    let label = |key: &str| thread.labels.iter().find(|(known, _)| known == key).map(|(_, text)| text.as_str());
    let Some(process) = label("process").filter(|_| profile.pid().is_none()) else { return name };
    let origin = label("host").map_or_else(|| process.to_owned(), |host| format!("{host}/{process}"));
    if name.starts_with(&origin) { name } else { format!("{origin} {name}") }
}

fn thread_labels(profile: &Profile, uid: ThreadUid, strings: &mut Strings) -> Vec<proto::Label> {
    let mut labels: Vec<proto::Label> = thread_tags(profile, uid)
        .iter()
        .map(|(key, text)| proto::Label { key: strings.of(key), text: strings.of(text), ..proto::Label::default() })
        .collect();
    if labels.iter().any(|label| strings.list[label.key as usize] == "thread") {
        // As a text: a number that is 0 is no label to pprof.
        let (key, text) = (strings.of("thread_id"), strings.of(&uid.0.to_string()));
        labels.push(proto::Label { key, text, ..proto::Label::default() });
    }
    labels
}

/// Lines about the recording.
pub(super) fn comments(selection: &Selection<'_>, options: &Options) -> Vec<String> {
    let profile = selection.profile();
    let mut lines = vec![concat!("written by jeprobe ", env!("CARGO_PKG_VERSION")).to_owned()];
    let basis = profile.basis(false);
    if let Some(one_per) = if basis.samples > 0 { basis } else { profile.basis(true) }.one_per() {
        lines.push(format!("estimated from samples, {one_per}"));
    }
    if selection.has_base() {
        lines.push("differences: a base was subtracted".to_owned());
    }
    lines.extend(profile.allocated_since().filter(|_| profile.has_cumulative()).map(ToOwned::to_owned));
    let is_said = |line: &String| line.starts_with("lost: ");
    lines.extend(profile.lost().map(|line| if is_said(&line) { line } else { format!("note: {line}") }));
    lines.extend(profile.notes().iter().map(|note| format!("note: {note}")));
    // It is of the whole, which a part or a difference is not.
    if !selection.has_base() && options.focus.is_none() && options.ignore.is_none() {
        lines.extend(profile.kept_bases().map(|line| format!("sampled: {line}")));
    }
    lines.extend(profile.configuration().iter().map(|(key, value)| format!("config: {key}={value}")));
    lines
}

/// Fills in what the samples refer to.
fn describe(
    message: &mut proto::Profile,
    frames: &[Frame],
    locations: &Locations,
    profile: &Profile,
    strings: &mut Strings,
) {
    let files = code_files(profile);
    let place: HashMap<u64, u64> = files.iter().map(|mapping| mapping.start).zip(1..).collect();
    message.mapping = files
        .iter()
        .zip(1..)
        .map(|(mapping, id)| proto::Mapping {
            id,
            memory_start: mapping.start,
            memory_limit: mapping.end,
            file_offset: mapping.offset,
            filename: strings.of(&mapping.path.to_string_lossy()),
            build_id: strings.of(&hex(&mapping.build_id)),
            ..proto::Mapping::default()
        })
        .collect();
    let mut functions: HashMap<(i64, i64, i64), u64> = HashMap::new();
    for (group, id) in locations.groups.iter().zip(1..) {
        let mapping_id = profile.mappings().find(group.address).and_then(|mapping| place.get(&mapping.start)).copied();
        let mut location =
            proto::Location { id, mapping_id: mapping_id.unwrap_or(0), address: group.address, line: Vec::new() };
        for frame in &frames[group.first as usize..group.end as usize] {
            let key = (strings.of(&frame.name), strings.of(system_name(frame)), strings.of(&frame.file));
            let next = functions.len() as u64 + 1;
            let function_id = *functions.entry(key).or_insert(next);
            if function_id == next {
                message.function.push(proto::Function {
                    id: next,
                    name: key.0,
                    system_name: key.1,
                    filename: key.2,
                    start_line: 0,
                });
            }
            location.line.push(proto::Line { function_id, line: frame.line.into() });
        }
        if let Some(mapping) = mapping_id.and_then(|id| message.mapping.get_mut(id as usize - 1)) {
            let own = &frames[group.first as usize..group.end as usize];
            mapping.has_functions |= own.iter().any(|frame| frame.is_named);
            mapping.has_filenames |= own.iter().any(|frame| !frame.file.is_empty());
            mapping.has_line_numbers |= own.iter().any(|frame| frame.line != 0);
            mapping.has_inline_frames |= own.iter().any(|frame| frame.is_inlined);
        }
        message.location.push(location);
    }
}

/// The complete name, for readers that want more than the short one.
///
/// Of functions whose names are equal pprof takes the name for one of C++ and cuts what stands in brackets, which would make
/// `<A as Store>::put` and `<B as Store>::put` one function. Such a name has no second one: it is left as it is then.
pub(super) fn system_name(frame: &Frame) -> &str {
    let is_cut = frame.full == frame.name && frame.name.contains(['<', '>', '(', ')', '[', ']', '{', '}']);
    if frame.is_named && !is_cut { &frame.full } else { "" }
}

/// Mappings that hold code, the main program's first.
pub(super) fn code_files(profile: &Profile) -> Vec<&Mapping> {
    let mut files: Vec<&Mapping> = profile
        .mappings()
        .iter()
        .filter(|mapping| mapping.is_executable() && !mapping.path.as_os_str().is_empty())
        .collect();
    files.sort_by_key(|mapping| Some(mapping.path.as_path()) != profile.program());
    files
}

/// Frames of one address, which are one location.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Group {
    pub(super) address: u64,
    pub(super) first: u32,
    pub(super) end: u32,
}

/// The locations met so far, numbered from 1.
#[derive(Debug, Default)]
pub(super) struct Locations {
    pub(super) groups: Vec<Group>,
    index: HashMap<u32, u64>,
}

impl Locations {
    /// Appends the locations of a stack.
    pub(super) fn of(&mut self, stack: &[u32], frames: &[Frame], ids: &mut Vec<u64>) {
        let mut rest = stack;
        while let Some(&first) = rest.first() {
            let address = frames[first as usize].address;
            // Frames of one address are numbered in a row; a recursion begins again at the first.
            let count = rest
                .iter()
                .zip(first..)
                .take_while(|(frame, expected)| *frame == expected && frames[**frame as usize].address == address)
                .count();
            rest = &rest[count..];
            let next = self.groups.len() as u64 + 1;
            let id = *self.index.entry(first).or_insert(next);
            if id == next {
                self.groups.push(Group { address, first, end: first + count as u32 });
            }
            ids.push(id);
        }
    }
}

/// The string table.
#[derive(Debug)]
pub(super) struct Strings {
    pub(super) list: Vec<String>,
    index: HashMap<String, i64>,
}

impl Strings {
    pub(super) fn new() -> Strings {
        Strings { list: vec![String::new()], index: HashMap::from([(String::new(), 0)]) }
    }

    pub(super) fn of(&mut self, text: &str) -> i64 {
        if let Some(&place) = self.index.get(text) {
            return place;
        }
        let place = self.list.len() as i64;
        self.list.push(text.to_owned());
        self.index.insert(text.to_owned(), place);
        place
    }
}
