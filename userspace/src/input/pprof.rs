//! pprof's protobuf in, as `go tool pprof`, Google's `pprof` and jeprobe write it.
//!
//! | pprof | the model |
//! |---|---|
//! | sample types `inuse_*`, `alloc_*`, `objects` and `space` | a heap profile: current and cumulative numbers |
//! | `contentions` and `delay`, `samples` and `cpu`, anything else | [`Kind`]; the default sample type is the amount |
//! | location with lines | names that the file brings; the address, or one of our own where it has none |
//! | location without lines | an address that symbols are looked up for |
//! | labels | a thread for each set of labels |
//! | comments of jeprobe | notes, configuration, what the estimate rests on |
//!
//! The numbers are estimates already. The raw counts, which the format does not keep, are those that the estimator would have
//! turned into them.
//!
//! Any bytes may be given: an error names the byte of the unpacked message. Samples are read one by one.
#![forbid(unsafe_code)]

use std::borrow::Cow;
use std::collections::{HashMap, HashSet};

use prost::Message;
use prost::encoding::{WireType, decode_key, decode_varint};
use thiserror::Error;

use crate::estimate::Sampling;
use crate::model::{Kind, MADE_UP, Mapping, Measure, Named, Profile, Thread, ThreadUid, Values, build_id_of_text};
use crate::proto::pprof as proto;
use crate::proto::pprof::{FUNCTION_FIELD, LOCATION_FIELD, MAPPING_FIELD, TYPE_FIELD};
use crate::units::{EstCount, SampleInterval, Sums};

/// Why and where a message could not be read.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("byte {byte} of the unpacked profile: {reason}")]
pub struct PprofError {
    pub byte: u64,
    pub reason: PprofReason,
}

impl PprofError {
    /// The same of a message that begins at `byte`.
    fn at(self, byte: u64) -> PprofError {
        PprofError { byte, ..self }
    }
}

/// What was wrong.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum PprofReason {
    #[error("not a protobuf field: {0}")]
    Field(String),
    #[error("a field of {size} bytes where {left} are left; the file was cut short")]
    Short { size: u64, left: u64 },
    #[error("a sample refers to location {0}, which is not there")]
    NoLocation(u64),
    #[error("a location refers to function {0}, which is not there")]
    NoFunction(u64),
    #[error("a location refers to mapping {0}, which is not there")]
    NoMapping(u64),
    #[error("a sample has {found} values, the profile {expected} sample types")]
    Values { found: usize, expected: usize },
    #[error("the profile names no sample type")]
    NoTypes,
    #[error("a string that is not in the string table: {0}")]
    NoString(i64),
}

/// Reads an unpacked message.
pub fn read(bytes: &[u8]) -> Result<Profile, PprofError> {
    let message = Fields::read(bytes)?;
    if message.tables.sample_type.is_empty() {
        return Err(PprofError { byte: bytes.len() as u64, reason: PprofReason::NoTypes });
    }
    let columns = Columns::new(&message)?;
    let mut profile = Profile::new(SampleInterval(0));
    profile.set_kind(columns.kind.clone());
    let period_type = message.tables.period_type.map(|kind| message.text(kind.kind)).transpose()?;
    if columns.kind == Kind::Heap && period_type == Some("space") {
        profile.set_interval(SampleInterval(u64::try_from(message.tables.period).unwrap_or(0)));
    }
    for (mapping, at) in message.tables.mapping.iter().zip(0..) {
        let text = |place| message.text(place).map_err(|error| error.at(message.byte(MAPPING_FIELD, at)));
        profile.add_mapping(Mapping {
            start: mapping.memory_start,
            end: mapping.memory_limit,
            offset: mapping.file_offset,
            permissions: *b"r-xp",
            path: text(mapping.filename)?.into(),
            build_id: build_id_of_text(text(mapping.build_id)?.as_bytes()).unwrap_or_default(),
            ..Mapping::default()
        });
    }
    for &comment in &message.tables.comment {
        note(message.text(comment)?, &mut profile);
    }
    let locations = locations(&message, &mut profile)?;
    let mut threads = Threads::default();
    for &(byte, sample) in &message.samples {
        let failed = |reason| PprofError { byte, reason };
        let sample = proto::Sample::decode(sample).map_err(|error| failed(PprofReason::Field(error.to_string())))?;
        let expected = message.tables.sample_type.len();
        if sample.value.len() != expected {
            return Err(failed(PprofReason::Values { found: sample.value.len(), expected }));
        }
        let mut stack = Vec::with_capacity(sample.location_id.len());
        for (depth, id) in sample.location_id.iter().enumerate() {
            let site = *locations.get(id).ok_or_else(|| failed(PprofReason::NoLocation(*id)))?;
            // The model keeps return addresses but for the leaf.
            stack.push(if depth == 0 { site } else { site.wrapping_add(1) });
        }
        let values = columns.values(&sample.value, profile.interval());
        let id = profile.add_total(&stack, values);
        let thread = threads.of(&sample.label, &message, &mut profile).map_err(|error| error.at(byte))?;
        if let Some(thread) = thread {
            profile.add_share(id, thread, values);
        }
    }
    Ok(profile)
}

/// The message, samples aside.
#[derive(Default)]
struct Fields<'a> {
    tables: proto::Profile,
    /// Other encodings than UTF-8 have a mark where they are none.
    strings: Vec<Cow<'a, str>>,
    /// Where the messages of the other tables begin, by field, in their order.
    places: HashMap<u32, Vec<u64>>,
    /// Byte and body of each.
    samples: Vec<(u64, &'a [u8])>,
}

impl<'a> Fields<'a> {
    fn read(bytes: &'a [u8]) -> Result<Fields<'a>, PprofError> {
        let mut fields = Fields::default();
        let mut rest = bytes;
        // Everything that is neither a sample nor a string, to be decoded as one message.
        let mut tables = Vec::new();
        while !rest.is_empty() {
            let field = rest;
            let byte = (bytes.len() - rest.len()) as u64;
            let failed = |reason| PprofError { byte, reason };
            let bad = |error: prost::DecodeError| failed(PprofReason::Field(error.to_string()));
            let (tag, wire) = decode_key(&mut rest).map_err(bad)?;
            let size = match wire {
                WireType::Varint => {
                    decode_varint(&mut rest).map_err(bad)?;
                    0
                }
                WireType::LengthDelimited => decode_varint(&mut rest).map_err(bad)?,
                WireType::SixtyFourBit => 8,
                WireType::ThirtyTwoBit => 4,
                WireType::StartGroup | WireType::EndGroup => {
                    return Err(failed(PprofReason::Field("a group".to_owned())));
                }
            };
            let left = rest.len() as u64;
            if size > left {
                return Err(failed(PprofReason::Short { size, left }));
            }
            let (body, after) = rest.split_at(size as usize);
            rest = after;
            match (tag, wire) {
                (proto::SAMPLE_FIELD, WireType::LengthDelimited) => fields.samples.push((byte, body)),
                (6, WireType::LengthDelimited) => fields.strings.push(String::from_utf8_lossy(body)),
                _ => {
                    fields.places.entry(tag).or_default().push(byte);
                    tables.extend_from_slice(&field[..field.len() - rest.len()]);
                }
            }
        }
        fields.tables = proto::Profile::decode(tables.as_slice())
            .map_err(|error| PprofError { byte: 0, reason: PprofReason::Field(error.to_string()) })?;
        Ok(fields)
    }

    /// An entry of the string table.
    fn text(&self, place: i64) -> Result<&str, PprofError> {
        let entry = usize::try_from(place).ok().and_then(|place| self.strings.get(place));
        entry.map(|text| &**text).ok_or(PprofError { byte: 0, reason: PprofReason::NoString(place) })
    }

    /// Where a message of a table begins.
    fn byte(&self, field: u32, at: usize) -> u64 {
        self.places.get(&field).and_then(|places| places.get(at)).copied().unwrap_or(0)
    }
}

/// Which value of a sample is which number.
struct Columns {
    kind: Kind,
    current: Pair,
    cumulative: Pair,
}

/// Places among the values of a sample.
#[derive(Clone, Copy, Default)]
struct Pair {
    objects: Option<usize>,
    bytes: Option<usize>,
}

impl Columns {
    fn new(message: &Fields<'_>) -> Result<Columns, PprofError> {
        let mut types = Vec::new();
        for (kind, at) in message.tables.sample_type.iter().zip(0..) {
            let text = |place| message.text(place).map_err(|error| error.at(message.byte(TYPE_FIELD, at)));
            types.push(Measure::new(text(kind.kind)?, text(kind.unit)?));
        }
        let find = |name: &str| types.iter().position(|measure| measure.name == name);
        let pair = |objects: &str, bytes: &str| Pair { objects: find(objects), bytes: find(bytes) };
        let (inuse, alloc) = (pair("inuse_objects", "inuse_space"), pair("alloc_objects", "alloc_space"));
        let has = |pair: Pair| pair.objects.is_some() || pair.bytes.is_some();
        if has(inuse) || has(alloc) {
            return Ok(Columns { kind: Kind::Heap, current: inuse, cumulative: alloc });
        }
        for (kind, objects, bytes) in [
            (Kind::Heap, "objects", "space"),
            (Kind::Contention, "contentions", "delay"),
            (Kind::Cpu, "samples", "cpu"),
        ] {
            let current = pair(objects, bytes);
            if current.bytes.is_some() {
                return Ok(Columns { kind, current, cumulative: Pair::default() });
            }
        }
        let default = message.text(message.tables.default_sample_type)?;
        let amount = find(default).filter(|_| !default.is_empty()).unwrap_or(types.len() - 1);
        let count = types.iter().position(|measure| measure.unit == "count").filter(|place| *place != amount);
        let kind = Kind::Other {
            amount: types[amount].clone(),
            count: count.map_or_else(|| Measure::new("samples", "count"), |place| types[place].clone()),
        };
        Ok(Columns { kind, current: Pair { objects: count, bytes: Some(amount) }, cumulative: Pair::default() })
    }

    fn values(&self, values: &[i64], interval: SampleInterval) -> Values {
        let sampling = if interval.0 > 1 { Sampling::Poisson(interval) } else { Sampling::None };
        let sums = |pair: Pair| {
            let at = |place: Option<usize>| place.map_or(0.0, |place| values[place] as f64);
            let est = EstCount { objects: at(pair.objects), bytes: at(pair.bytes) };
            Sums { raw: sampling.raw_of(est), est }
        };
        Values { current: sums(self.current), cumulative: sums(self.cumulative) }
    }
}

/// The address that stands for each location, by id. Names go into the profile.
fn locations(message: &Fields<'_>, profile: &mut Profile) -> Result<HashMap<u64, u64>, PprofError> {
    let functions: HashMap<u64, (usize, &proto::Function)> =
        message.tables.function.iter().enumerate().map(|(at, function)| (function.id, (at, function))).collect();
    let mappings: HashSet<u64> = message.tables.mapping.iter().map(|mapping| mapping.id).collect();
    let mut sites = HashMap::with_capacity(message.tables.location.len());
    let mut used = HashMap::new();
    for (at, (location, place)) in message.tables.location.iter().zip(0..).enumerate() {
        let failed = |reason| PprofError { byte: message.byte(LOCATION_FIELD, at), reason };
        // 0 stands for none.
        if location.mapping_id != 0 && !mappings.contains(&location.mapping_id) {
            return Err(failed(PprofReason::NoMapping(location.mapping_id)));
        }
        let mut names = Vec::new();
        for line in location.line.iter().filter(|line| line.function_id != 0) {
            let known = functions.get(&line.function_id);
            let &(at, function) = known.ok_or_else(|| failed(PprofReason::NoFunction(line.function_id)))?;
            let text = |place| message.text(place).map_err(|error| error.at(message.byte(FUNCTION_FIELD, at)));
            let (name, system) = (text(function.name)?, text(function.system_name)?);
            if name.is_empty() || (system.is_empty() && is_label(name)) {
                continue;
            }
            names.push(Named {
                short: name.to_owned(),
                full: if system.is_empty() { name } else { system }.to_owned(),
                file: text(function.filename)?.to_owned(),
                line: u32::try_from(line.line).unwrap_or(0),
            });
        }
        let is_new = location.address != 0 && location.address < MADE_UP;
        let site = if is_new && used.get(&location.address).is_none_or(|known| *known == names) {
            location.address
        } else {
            MADE_UP + place * 2
        };
        if !names.is_empty() {
            profile.set_names(site, names.clone());
        }
        used.insert(site, names);
        sites.insert(location.id, site);
    }
    Ok(sites)
}

/// True for what a writer without a name puts in its place: `libfoo.so+0x12`.
fn is_label(name: &str) -> bool {
    name.rsplit_once("+0x").is_some_and(|(_, digits)| digits.bytes().all(|digit| digit.is_ascii_hexdigit()))
        || (name.len() == 16 && name.bytes().all(|digit| digit.is_ascii_hexdigit()))
}

/// Sets of labels as threads.
#[derive(Default)]
struct Threads {
    known: HashMap<Vec<(String, String)>, ThreadUid>,
}

impl Threads {
    fn of(
        &mut self,
        labels: &[proto::Label],
        message: &Fields<'_>,
        profile: &mut Profile,
    ) -> Result<Option<ThreadUid>, PprofError> {
        if labels.is_empty() {
            return Ok(None);
        }
        let mut set = Vec::with_capacity(labels.len());
        for label in labels {
            let text = message.text(label.text)?;
            let text = if text.is_empty() { label.number.to_string() } else { text.to_owned() };
            set.push((message.text(label.key)?.to_owned(), text));
        }
        if let Some(&uid) = self.known.get(&set) {
            return Ok(Some(uid));
        }
        let field = |key: &str| set.iter().find(|(known, _)| known == key).map(|(_, text)| text.clone());
        let free = |uid: &ThreadUid| !self.known.values().any(|known| known == uid);
        let given = field("thread_id").and_then(|text| text.parse().ok()).map(ThreadUid).filter(free);
        let uid = given
            .unwrap_or_else(|| ThreadUid(self.known.values().map(|uid| uid.0.saturating_add(1)).max().unwrap_or(0)));
        let labels = set.iter().filter(|(key, _)| key != "thread" && key != "thread_id").cloned().collect();
        // A name made of the number is none.
        let name = field("thread").filter(|name| *name != format!("t{}", uid.0)).unwrap_or_default();
        profile.add_thread(uid, Thread { tid: None, name, labels });
        self.known.insert(set, uid);
        Ok(Some(uid))
    }
}

/// Comments that jeprobe wrote; those of others are passed over.
fn note(comment: &str, profile: &mut Profile) {
    if let Some(text) = comment.strip_prefix("note: ") {
        profile.add_note(text);
    } else if comment.starts_with("lost: ") {
        profile.add_note(comment);
    } else if let Some(line) = comment.strip_prefix("sampled: ") {
        // What is none is passed over, as the comments of others are.
        let _: Option<()> = profile.keep_basis(line);
    } else if let Some((key, value)) = comment.strip_prefix("config: ").and_then(|text| text.split_once('=')) {
        profile.set_configuration(key, value);
    }
}

#[cfg(test)]
mod tests {
    use super::{PprofReason, read};
    use crate::model::{Kind, MADE_UP, ThreadUid};
    use crate::proto::pprof as proto;
    use prost::Message as _;

    /// The tables, and samples behind them.
    fn message(types: &[(&str, &str)], samples: &[proto::Sample]) -> Vec<u8> {
        let mut strings = vec![String::new()];
        let mut string = |text: &str| {
            strings.push(text.to_owned());
            strings.len() as i64 - 1
        };
        let sample_type =
            types.iter().map(|(kind, unit)| proto::ValueType { kind: string(kind), unit: string(unit) }).collect();
        let function = proto::Function { id: 1, name: string("grow"), ..proto::Function::default() };
        let line = proto::Line { function_id: 1, line: 7 };
        let location = |id, address, line| proto::Location { id, mapping_id: 0, address, line };
        let tables = proto::Profile {
            sample_type,
            location: vec![
                location(1, 0x10, vec![line.clone()]),
                location(2, 0, vec![line]),
                location(3, 0x30, vec![]),
            ],
            function: vec![function],
            ..proto::Profile::default()
        };
        let worker = (string("thread"), string("worker"));
        let host = (string("host"), string("web1"));
        let mut bytes = proto::Profile { string_table: strings, ..tables }.encode_to_vec();
        for sample in samples {
            let label = |(key, text)| proto::Label { key, text, ..proto::Label::default() };
            let mut sample = sample.clone();
            sample.label = vec![label(worker), label(host)];
            bytes.push(0x12);
            sample.encode_length_delimited(&mut bytes).expect("memory takes everything");
        }
        bytes
    }

    fn sample(location_id: &[u64], value: &[i64]) -> proto::Sample {
        proto::Sample { location_id: location_id.to_vec(), value: value.to_vec(), label: Vec::new() }
    }

    const HEAP: &[(&str, &str)] = &[("inuse_objects", "count"), ("inuse_space", "bytes")];

    #[test]
    fn names_addresses_values_and_labels_arrive() {
        let profile = read(&message(HEAP, &[sample(&[3, 1, 2], &[2, 200])])).expect("whole");
        // Callers are return addresses; a location without an address has one that was made up.
        let stack = [0x30, 0x11, MADE_UP + 3];
        let id = profile.find_stack(&stack).expect("the stack");
        assert!((profile.values(id).current.est.bytes - 200.0).abs() < 1e-9);
        assert_eq!(profile.names()[&0x10][0].short, "grow");
        assert_eq!(profile.names()[&(MADE_UP + 2)][0].line, 7);
        assert!(!profile.names().contains_key(&0x30), "its name is looked up");
        let thread = profile.thread(ThreadUid(0)).expect("a thread");
        assert_eq!((thread.name.as_str(), thread.labels.as_slice()), ("worker", &[("host".into(), "web1".into())][..]));
    }

    #[test]
    fn other_measures_keep_their_names() {
        let profile =
            read(&message(&[("events", "count"), ("wall", "nanoseconds")], &[sample(&[1], &[3, 9])])).expect("whole");
        assert!(
            matches!(profile.kind(), Kind::Other { amount, count } if amount.name == "wall" && count.name == "events")
        );
        let sum = profile.sum().current.est;
        assert!((sum.bytes - 9.0).abs() < 1e-9 && (sum.objects - 3.0).abs() < 1e-9);
        let cpu = read(&message(&[("samples", "count"), ("cpu", "nanoseconds")], &[])).expect("whole");
        assert_eq!(cpu.kind(), &Kind::Cpu);
    }

    #[test]
    fn tables_that_refer_to_nothing_are_an_error_at_the_byte_of_the_message() {
        let strings = ["", "space", "bytes"].map(str::to_owned).to_vec();
        let kind = proto::ValueType { kind: 1, unit: 2 };
        let sound = proto::Profile { sample_type: vec![kind], string_table: strings, ..proto::Profile::default() };
        let location = |mapping_id, function_id| proto::Location {
            id: 1,
            mapping_id,
            address: 0x10,
            line: vec![proto::Line { function_id, line: 1 }],
        };
        let start = sound.encoded_len() as u64;
        let with = |tables: proto::Profile| [sound.encode_to_vec(), tables.encode_to_vec()].concat();
        let places = |mapping_id, function_id| proto::Profile {
            location: vec![location(0, 0), location(mapping_id, function_id)],
            ..proto::Profile::default()
        };
        let first = proto::Profile { location: vec![location(0, 0)], ..proto::Profile::default() }.encoded_len() as u64;
        for (tables, byte, reason) in [
            (places(0, 9), start + first, PprofReason::NoFunction(9)),
            (places(9, 0), start + first, PprofReason::NoMapping(9)),
            (
                proto::Profile {
                    mapping: vec![proto::Mapping { filename: 77, ..proto::Mapping::default() }],
                    ..proto::Profile::default()
                },
                start,
                PprofReason::NoString(77),
            ),
        ] {
            let error = read(&with(tables)).expect_err("it refers to nothing");
            assert_eq!((error.byte, error.reason), (byte, reason));
        }
        assert!(read(&with(places(0, 0))).is_ok(), "0 stands for none");
    }

    #[test]
    fn what_refers_to_nothing_is_an_error_at_its_byte() {
        let bytes = message(HEAP, &[sample(&[1], &[1, 1]), sample(&[9], &[1, 1])]);
        let error = read(&bytes).expect_err("location 9");
        assert_eq!(error.reason, PprofReason::NoLocation(9));
        assert!(error.byte > 0 && bytes[error.byte as usize] == 0x12);
        let error = read(&message(HEAP, &[sample(&[1], &[1])])).expect_err("one value");
        assert_eq!(error.reason, PprofReason::Values { found: 1, expected: 2 });
    }

    #[test]
    fn changed_bytes_never_panic() {
        let whole = message(HEAP, &[sample(&[3, 1, 2], &[2, 200]), sample(&[1, 1, 1], &[1, -100])]);
        let mut state = 7_u64;
        let mut random = move || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) as usize
        };
        for _ in 0..20_000 {
            let mut bytes = whole.clone();
            for _ in 0..=random() % 4 {
                let at = random() % bytes.len();
                bytes[at] = random() as u8;
            }
            if random() % 3 == 0 {
                bytes.truncate(random() % bytes.len());
            }
            if let Err(error) = read(&bytes) {
                assert!(error.byte <= bytes.len() as u64, "{error}");
            }
        }
    }
}
