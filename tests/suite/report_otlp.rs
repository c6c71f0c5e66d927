//! OpenTelemetry profiles, read by the messages that OpenTelemetry publishes: what is in them, and that the rules of the
//! format's text hold.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::fs;

use jeprobe_tests::{Run, TempDir, artefact};
use opentelemetry_proto::tonic::collector::profiles::v1development::ExportProfilesServiceRequest as Request;
use opentelemetry_proto::tonic::common::v1::AnyValue;
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::profiles::v1development::{Profile, ProfilesData, ProfilesDictionary};
use prost::Message;

/// `jeprobe report --format otlp`, as bytes.
fn exported(inputs: &[&str]) -> Vec<u8> {
    let directory = TempDir::new("report-otlp");
    let file = directory.join("out.otlp");
    let output = file.to_str().expect("a UTF-8 path");
    let run = Run::new(artefact::command()).dir(artefact::fixture("report"));
    run.args(["report", "-o", output]).args(inputs).finish().ok().discard();
    fs::read(&file).expect("written")
}

struct Read {
    profiles: Vec<Profile>,
    dictionary: ProfilesDictionary,
    resource: Vec<(String, String)>,
}

impl Read {
    /// Nothing may be left over: a field that the published messages do not know would be lost.
    fn new(bytes: &[u8]) -> Read {
        let data = ProfilesData::decode(bytes).expect("the published messages");
        assert_eq!(data.encoded_len(), bytes.len(), "fields that are not published");
        let request = Request::decode(bytes).expect("the body of an export request");
        assert_eq!(request.encoded_len(), bytes.len());
        let [of_resource] = &data.resource_profiles[..] else { panic!("one resource") };
        let [scope] = &of_resource.scope_profiles[..] else { panic!("one scope") };
        assert_eq!(scope.scope.as_ref().map(|scope| scope.name.as_str()), Some("jeprobe"));
        let attributes = &of_resource.resource.as_ref().expect("a resource").attributes;
        let resource =
            attributes.iter().map(|attribute| (attribute.key.clone(), shown(attribute.value.as_ref()))).collect();
        Read { profiles: scope.profiles.clone(), dictionary: data.dictionary.expect("a dictionary"), resource }
    }

    fn text(&self, index: i32) -> &str {
        &self.dictionary.string_table[index as usize]
    }

    fn attribute(&self, index: i32) -> (String, String) {
        let entry = &self.dictionary.attribute_table[index as usize];
        (self.text(entry.key_strindex).to_owned(), shown(entry.value.as_ref()))
    }

    fn profile(&self, name: &str) -> &Profile {
        let is_named =
            |profile: &&Profile| profile.sample_type.as_ref().is_some_and(|kind| self.text(kind.type_strindex) == name);
        self.profiles.iter().find(is_named).unwrap_or_else(|| panic!("no {name}"))
    }

    /// Names of a stack, leaf first, inlined ones by themselves.
    fn names(&self, stack: i32) -> Vec<&str> {
        let dictionary = &self.dictionary;
        let locations = dictionary.stack_table[stack as usize].location_indices.iter();
        let lines = locations.flat_map(|&at| &dictionary.location_table[at as usize].lines);
        lines.map(|line| self.text(dictionary.function_table[line.function_index as usize].name_strindex)).collect()
    }
}

fn shown(value: Option<&AnyValue>) -> String {
    match value.and_then(|value| value.value.as_ref()) {
        Some(Value::StringValue(text)) => text.clone(),
        Some(Value::IntValue(number)) => number.to_string(),
        other => panic!("a text or a number: {other:?}"),
    }
}

/// (flat, cumulative) by name, of the table in bytes.
fn table(inputs: &[&str]) -> BTreeMap<String, (i64, i64)> {
    let run = Run::new(artefact::command()).dir(artefact::fixture("report"));
    let text = run.args(["report", "--show_bytes"]).args(inputs).finish().ok().stdout;
    let row = |line: &str| {
        let words: Vec<&str> = line.split_whitespace().collect();
        let number = |at: usize| words[at].parse().expect("a number");
        (words[5..].join(" ").trim_end_matches(" (inline)").to_owned(), (number(0), number(3)))
    };
    text.lines().skip(1).map(row).collect()
}

#[test]
fn rows_of_the_table_are_found_in_the_samples() {
    for inputs in [["./leak", "hand.heap"], ["./cpp", "cpp.heap"], ["./threads", "threads.2.heap"]] {
        let read = Read::new(&exported(&inputs));
        let profile = read.profile("inuse_space");
        let unit = read.text(profile.sample_type.as_ref().expect("a type").unit_strindex);
        assert_eq!(unit, "bytes");
        let mut sums: BTreeMap<String, (i64, i64)> = BTreeMap::new();
        for sample in &profile.samples {
            let [value] = sample.values[..] else { panic!("one value: {sample:?}") };
            let names = read.names(sample.stack_index);
            sums.entry(names[0].to_owned()).or_default().0 += value;
            for name in BTreeSet::from_iter(names) {
                sums.entry(name.to_owned()).or_default().1 += value;
            }
        }
        let wanted = table(&inputs);
        assert!(wanted.len() > 3);
        for (name, (flat, cumulative)) in &wanted {
            // Overloads share a name here, and inlined and other instances of a function do.
            let Some(found) = sums.get(name) else { panic!("{name} is missing in {sums:?}") };
            assert!(
                (found.0 - flat).abs() <= 2 && (found.1 - cumulative).abs() <= 2,
                "{name}: {found:?}, {flat} {cumulative}"
            );
        }
    }
}

#[test]
fn threads_builds_and_the_recording_are_told() {
    let read = Read::new(&exported(&["./threads", "threads.2.heap"]));
    let space = read.profile("inuse_space");
    let attributes: HashSet<(String, String)> =
        space.samples.iter().flat_map(|sample| &sample.attribute_indices).map(|&index| read.attribute(index)).collect();
    assert!(attributes.iter().any(|(key, _)| key == "thread.name"), "{attributes:?}");
    assert!(attributes.iter().any(|(key, value)| key == "thread.id" && value.parse::<u64>().is_ok()), "{attributes:?}");
    let builds = read.dictionary.mapping_table.iter().flat_map(|mapping| &mapping.attribute_indices);
    let builds: Vec<_> = builds.map(|&index| read.attribute(index)).collect();
    assert!(builds.iter().all(|(key, id)| key == "process.executable.build_id.gnu" && id.len() >= 16), "{builds:?}");
    assert!(read.resource.iter().all(|(key, _)| key.starts_with("process.")), "{:?}", read.resource);
    for profile in &read.profiles {
        assert_eq!(profile.profile_id.len(), 16);
        assert!(profile.profile_id.iter().any(|byte| *byte != 0));
        let period = profile.period_type.as_ref().expect("a period");
        assert_eq!((read.text(period.type_strindex), read.text(period.unit_strindex)), ("space", "bytes"));
        assert!(profile.period > 0);
    }
    let ids: HashSet<&[u8]> = read.profiles.iter().map(|profile| &profile.profile_id[..]).collect();
    assert_eq!(ids.len(), read.profiles.len(), "each profile has an id of its own");
}

/// Entry 0 stands for nothing; no entry is there twice; every entry is used.
#[test]
fn dictionaries_keep_the_formats_rules() {
    for inputs in [["./leak", "hand.heap"], ["./cpp", "cpp.heap"], ["./threads", "threads.2.heap"]] {
        let read = Read::new(&exported(&inputs));
        let ProfilesDictionary {
            mapping_table,
            location_table,
            function_table,
            link_table,
            string_table,
            attribute_table,
            stack_table,
        } = &read.dictionary;
        whole("mapping", mapping_table, location_table.iter().map(|location| location.mapping_index));
        let stacks = stack_table.iter().flat_map(|stack| stack.location_indices.iter().copied());
        whole("location", location_table, stacks);
        let lines = location_table.iter().flat_map(|location| location.lines.iter().map(|line| line.function_index));
        whole("function", function_table, lines);
        let samples = || read.profiles.iter().flat_map(|profile| &profile.samples);
        whole("link", link_table, samples().map(|sample| sample.link_index));
        whole("stack", stack_table, samples().map(|sample| sample.stack_index));
        let attributes = samples().flat_map(|sample| sample.attribute_indices.iter().copied());
        let attributes =
            attributes.chain(mapping_table.iter().flat_map(|mapping| mapping.attribute_indices.iter().copied()));
        let attributes =
            attributes.chain(read.profiles.iter().flat_map(|profile| profile.attribute_indices.iter().copied()));
        whole("attribute", attribute_table, attributes);
        assert_eq!(string_table[0], "");
        let texts: HashSet<&String> = string_table.iter().collect();
        assert_eq!(texts.len(), string_table.len(), "{inputs:?}: a string is there twice");
    }
}

#[track_caller]
fn whole<T: Message + Default + PartialEq + std::fmt::Debug>(what: &str, table: &[T], used: impl Iterator<Item = i32>) {
    assert_eq!(table[0], T::default(), "{what} 0");
    let bytes: HashSet<Vec<u8>> = table.iter().map(Message::encode_to_vec).collect();
    assert_eq!(bytes.len(), table.len(), "a {what} is there twice");
    let mut used: HashSet<i32> = used.collect();
    used.insert(0);
    let all: HashSet<i32> = (0..table.len() as i32).collect();
    assert_eq!(used, all, "entries of the table of {what}s that are used, and those that are there");
}
