//! OpenTelemetry profiles (OTLP, `v1development`): the protobuf body of an export request, not packed.
//!
//! One profile for each value, since a profile there has one sample type; all share the dictionary. Samples carry the
//! attributes `thread.name` and `thread.id` and the other labels of their origin, mappings their build-id
//! (`process.executable.build_id.gnu`), the resource pid and program, each profile the notes and losses of the recording.
//! Whole numbers that sum up to the totals, cut at the point.
#![forbid(unsafe_code)]

use std::collections::{HashMap, HashSet};
use std::convert::Infallible;
use std::hash::{DefaultHasher, Hasher as _};
use std::io::{self, Write};

use prost::Message as _;

use super::parts::Parts;
use super::pprof::{Locations, Strings, code_files, comments, sample_types, system_name, thread_tags, type_unit};
use super::select::{Options, Selection};
use super::view::Frame;
use super::whole::Whole;
use crate::image::debugfile::hex;
use crate::model::{Kind, Profile, ThreadUid};
use crate::proto::otlp as proto;

/// Writes the message.
pub fn write(selection: &Selection<'_>, options: &Options, mut out: impl Write) -> io::Result<()> {
    let profile = selection.profile();
    let mut tables = Tables::new();
    let types = sample_types(selection);
    let mut attributes: HashMap<ThreadUid, Vec<i32>> = HashMap::new();
    let mut samples: Vec<Vec<proto::Sample>> = vec![Vec::new(); types.len()];
    let mut wholes = vec![Whole::default(); types.len()];
    let mut locations = Locations::default();
    let mut ids = Vec::new();
    let parts = Parts::new(profile);
    let walked = selection.walk::<Infallible>(options, |stack, frames| {
        // Entries of the dictionary are made for samples alone: nothing else refers to them.
        let mut index = None;
        parts.of(selection, stack, |thread, numbers| {
            for ((value, whole), samples) in types.iter().zip(&mut wholes).zip(&mut samples) {
                let number = whole.next_of_64_bits(numbers[*value as usize]);
                if number != 0 {
                    let stack_index = *index.get_or_insert_with(|| {
                        ids.clear();
                        locations.of(stack.frames, frames, &mut ids);
                        tables.stack(&ids)
                    });
                    let mut of = |uid| thread_attributes(profile, uid, &mut tables);
                    let attribute_indices =
                        thread.map_or_else(Vec::new, |uid| attributes.entry(uid).or_insert_with(|| of(uid)).clone());
                    samples.push(proto::Sample { stack_index, attribute_indices, values: vec![number] });
                }
            }
        });
        Ok(())
    });
    let Ok(frames) = walked;
    tables.describe(&frames, &locations, profile);
    let comments: Vec<i32> =
        comments(selection, options).into_iter().map(|line| tables.attribute("jeprobe.comment", text(line))).collect();
    let profiles = types
        .iter()
        .zip(samples)
        .map(|(value, samples)| {
            let kind = profile.kind();
            let mut message = proto::Profile {
                sample_type: Some(tables.value_type(&value.name_in(kind), &type_unit(kind, *value))),
                profile_id: profile_id(&value.name_in(kind), &samples),
                samples,
                attribute_indices: comments.clone(),
                ..proto::Profile::default()
            };
            if *kind == Kind::Heap {
                message.period_type = Some(tables.value_type("space", "bytes"));
                message.period = i64::try_from(profile.interval().0).unwrap_or(i64::MAX);
            }
            message
        })
        .collect();
    let scope = proto::Scope { name: "jeprobe".to_owned(), version: env!("CARGO_PKG_VERSION").to_owned() };
    let resource = proto::Resource { attributes: resource(profile) };
    let data = proto::ProfilesData {
        resource_profiles: vec![proto::ResourceProfiles {
            resource: Some(resource),
            scope_profiles: vec![proto::ScopeProfiles { scope: Some(scope), profiles }],
        }],
        dictionary: Some(tables.finish()),
    };
    out.write_all(&data.encode_to_vec())
}

fn text(text: impl Into<String>) -> proto::Value {
    proto::Value::Text(text.into())
}

fn any(value: proto::Value) -> proto::AnyValue {
    proto::AnyValue { value: Some(value) }
}

fn resource(profile: &Profile) -> Vec<proto::KeyValue> {
    let pid = profile.pid().map(|pid| ("process.pid", proto::Value::Number(pid.into())));
    let path = profile.program().map(|path| ("process.executable.path", text(path.to_string_lossy())));
    let entry = |(key, value): (&str, proto::Value)| proto::KeyValue { key: key.to_owned(), value: Some(any(value)) };
    pid.into_iter().chain(path).map(entry).collect()
}

fn thread_attributes(profile: &Profile, uid: ThreadUid, tables: &mut Tables) -> Vec<i32> {
    let mut ids: Vec<i32> = thread_tags(profile, uid)
        .into_iter()
        .map(|(key, value)| match key.as_str() {
            "thread" => tables.attribute("thread.name", text(value)),
            "host" => tables.attribute("host.name", text(value)),
            _ => tables.attribute(&key, text(value)),
        })
        .collect();
    let is_thread = profile.thread(uid).is_some_and(|thread| thread.labels.iter().all(|(key, _)| key != "thread"));
    if is_thread {
        ids.push(tables.attribute("thread.id", proto::Value::Number(uid.0.into())));
    }
    ids
}

/// Equal content, equal id: sending a profile twice is seen. The hash is not keyed.
fn profile_id(name: &str, samples: &[proto::Sample]) -> Vec<u8> {
    let mut id = Vec::with_capacity(16);
    for salt in [1, 2] {
        let mut hasher = DefaultHasher::new();
        hasher.write_u8(salt);
        hasher.write(name.as_bytes());
        for sample in samples {
            hasher.write_i32(sample.stack_index);
            hasher.write_i64(sample.values[0]);
        }
        id.extend_from_slice(&hasher.finish().to_be_bytes());
    }
    id
}

/// The dictionary while it grows.
struct Tables {
    strings: Strings,
    dictionary: proto::ProfilesDictionary,
    attributes: HashMap<(i32, String), i32>,
    stacks: HashMap<Vec<i32>, i32>,
}

impl Tables {
    fn new() -> Tables {
        let dictionary = proto::ProfilesDictionary {
            mapping_table: vec![proto::Mapping::default()],
            location_table: vec![proto::Location::default()],
            function_table: vec![proto::Function::default()],
            link_table: vec![proto::Link {}],
            attribute_table: vec![proto::KeyValueAndUnit::default()],
            stack_table: vec![proto::Stack::default()],
            string_table: Vec::new(),
        };
        Tables {
            strings: Strings::new(),
            dictionary,
            attributes: HashMap::new(),
            stacks: HashMap::from([(Vec::new(), 0)]),
        }
    }

    fn string(&mut self, text: &str) -> i32 {
        self.strings.of(text) as i32
    }

    fn value_type(&mut self, kind: &str, unit: &str) -> proto::ValueType {
        proto::ValueType { kind: self.string(kind), unit: self.string(unit) }
    }

    fn attribute(&mut self, key: &str, value: proto::Value) -> i32 {
        let key = self.string(key);
        let shown = match &value {
            proto::Value::Text(text) => text.clone(),
            proto::Value::Number(number) => format!("\0{number}"),
        };
        let next = self.dictionary.attribute_table.len() as i32;
        let id = *self.attributes.entry((key, shown)).or_insert(next);
        if id == next {
            self.dictionary.attribute_table.push(proto::KeyValueAndUnit { key, value: Some(any(value)), unit: 0 });
        }
        id
    }

    /// The index of a stack of locations.
    fn stack(&mut self, ids: &[u64]) -> i32 {
        let indices: Vec<i32> = ids.iter().map(|id| *id as i32).collect();
        if let Some(&known) = self.stacks.get(&indices) {
            return known;
        }
        let next = self.dictionary.stack_table.len() as i32;
        self.dictionary.stack_table.push(proto::Stack { location_indices: indices.clone() });
        self.stacks.insert(indices, next);
        next
    }

    /// Mappings, locations and functions, in the order of their numbers, which begin at 1 after the empty entry.
    fn describe(&mut self, frames: &[Frame], locations: &Locations, profile: &Profile) {
        let of = |address: u64| profile.mappings().find(address).map(|mapping| mapping.start);
        let used: HashSet<u64> = locations.groups.iter().filter_map(|group| of(group.address)).collect();
        let files: Vec<_> = code_files(profile).into_iter().filter(|mapping| used.contains(&mapping.start)).collect();
        let place: HashMap<u64, i32> = files.iter().map(|mapping| mapping.start).zip(1..).collect();
        for mapping in files {
            let attribute_indices = if mapping.build_id.is_empty() {
                Vec::new()
            } else {
                vec![self.attribute("process.executable.build_id.gnu", text(hex(&mapping.build_id)))]
            };
            let filename = self.string(&mapping.path.to_string_lossy());
            self.dictionary.mapping_table.push(proto::Mapping {
                memory_start: mapping.start,
                memory_limit: mapping.end,
                file_offset: mapping.offset,
                filename,
                attribute_indices,
            });
        }
        let mut functions: HashMap<(i32, i32, i32), i32> = HashMap::new();
        for group in &locations.groups {
            let mapping = of(group.address).and_then(|start| place.get(&start));
            let mut location = proto::Location {
                mapping_index: mapping.copied().unwrap_or(0),
                address: group.address,
                lines: Vec::new(),
            };
            for frame in &frames[group.first as usize..group.end as usize] {
                let key = (self.string(&frame.name), self.string(system_name(frame)), self.string(&frame.file));
                let next = self.dictionary.function_table.len() as i32;
                let function_index = *functions.entry(key).or_insert(next);
                if function_index == next {
                    let (name, system_name, filename) = key;
                    self.dictionary.function_table.push(proto::Function { name, system_name, filename });
                }
                location.lines.push(proto::Line { function_index, line: frame.line.into() });
            }
            self.dictionary.location_table.push(location);
        }
    }

    fn finish(mut self) -> proto::ProfilesDictionary {
        self.dictionary.string_table = self.strings.list;
        self.dictionary
    }
}
