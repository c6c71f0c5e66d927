//! Source of one function with what each line holds.
//!
//! The lines are those that the profile's addresses name; the text around them is read from the files it names, and from no
//! other. A file that is not there, or too large, is an error in its place, and the numbers are shown all the same.
#![forbid(unsafe_code)]

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use serde_json::{Value as Json, json};

use super::dataset::{Dataset, add};
use crate::output::{Numbers, Value};

/// Larger files are not source.
const FILE_MOST: u64 = 16 << 20;
/// Lines shown before the first line with a number, and after the last.
const AROUND: u32 = 40;
const LINES_MOST: u32 = 4000;

/// Own numbers and numbers with calls, of a line or an address.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Held {
    pub(super) flat: Numbers,
    pub(super) cumulative: Numbers,
}

/// What lines and addresses of a function hold.
#[derive(Debug, Default)]
pub(super) struct Places {
    pub(super) lines: BTreeMap<String, BTreeMap<u32, Held>>,
    pub(super) addresses: BTreeMap<u64, Held>,
}

/// Sums over all nodes of a function. In a recursion the outermost occurrence of a line counts.
pub(super) fn places(data: &Dataset, function: usize) -> Places {
    let mut places = Places::default();
    let sums = data.sums();
    let line = |node: usize| {
        let frame = &data.frames[data.nodes[node].frame as usize];
        (frame.file.as_str(), frame.line)
    };
    let address = |node: usize| data.frames[data.nodes[node].frame as usize].address;
    for node in (1..data.nodes.len()).filter(|&node| data.function(node) == function) {
        let above = || data.ancestors(node).skip(1).filter(|&at| data.function(at) == function);
        let (file, number) = line(node);
        let of_line = places.lines.entry(file.to_owned()).or_default().entry(number).or_default();
        add(&mut of_line.flat, &data.nodes[node].own);
        if !above().any(|at| line(at) == line(node)) {
            add(&mut of_line.cumulative, &sums[node]);
        }
        let of_address = places.addresses.entry(address(node)).or_default();
        add(&mut of_address.flat, &data.nodes[node].own);
        if !above().any(|at| address(at) == address(node)) {
            add(&mut of_address.cumulative, &sums[node]);
        }
    }
    places
}

/// The lines of a function: of a profile, minus those of another where there is one.
fn difference(data: &Dataset, base: Option<&Dataset>, name: &str) -> Places {
    let of = |data: &Dataset| function(data, name).map(|function| places(data, function)).unwrap_or_default();
    let mut places = of(data);
    for (path, lines) in base.map(of).unwrap_or_default().lines {
        let known = places.lines.entry(path).or_default();
        for (number, before) in lines {
            let held = known.entry(number).or_default();
            for (numbers, before) in [(&mut held.flat, before.flat), (&mut held.cumulative, before.cumulative)] {
                numbers.iter_mut().zip(before).for_each(|(number, before)| *number -= before);
            }
        }
    }
    places
}

/// The source of a function as JSON: per file its path, the text of lines and their numbers, or why there is no text. With a
/// base, numbers are differences.
pub(super) fn source(data: &Dataset, base: Option<&Dataset>, name: &str, value: Value, roots: &[PathBuf]) -> Json {
    let places = difference(data, base, name);
    let image = places.addresses.keys().find_map(|address| data.image(*address));
    let mut remarks = Vec::new();
    if let (Some(base), Some(image)) = (base, image)
        && base.images.iter().any(|before| before.path == image.path && before.build_id != image.build_id)
    {
        remarks.push(format!(
            "{} is another build in {}: its lines are those of its own source",
            image.path.display(),
            base.name
        ));
    }
    let built = image.and_then(|image| find(&image.path, roots)).and_then(|path| modified(&path));
    let mut files: Vec<(f64, Json)> = places
        .lines
        .iter()
        .map(|(path, lines)| {
            let whole: f64 = lines.values().map(|held| held.cumulative[value as usize].abs()).fold(0.0, f64::max);
            let changed = find(Path::new(path), roots).and_then(|path| modified(&path));
            if built.zip(changed).is_some_and(|(built, changed)| changed > built) {
                remarks.push(format!(
                    "{path} is newer than the program: what stands in its lines may not be what was compiled"
                ));
            }
            (whole, file(path, lines, value, roots))
        })
        .collect();
    files.sort_by(|a, b| b.0.total_cmp(&a.0));
    json!({
        "function": name,
        "files": files.into_iter().map(|(_, file)| file).collect::<Vec<_>>(),
        "remarks": remarks,
    })
}

fn file(path: &str, lines: &BTreeMap<u32, Held>, value: Value, roots: &[PathBuf]) -> Json {
    let numbers = |held: &Held| [held.flat[value as usize].round(), held.cumulative[value as usize].round()];
    let known: Vec<u32> = lines.keys().copied().filter(|line| *line > 0).collect();
    let text = match (known.first(), known.last()) {
        (Some(first), Some(last)) if !path.is_empty() => {
            read(path, first.saturating_sub(AROUND).max(1), last + AROUND, roots)
        }
        _ => Err("the program has no debug information for it: compile with -g".to_owned()),
    };
    let size = |held: &Held| held.cumulative[value as usize].abs();
    let hottest = lines.iter().max_by(|a, b| size(a.1).total_cmp(&size(b.1)));
    let (shown, error): (Vec<Json>, Option<String>) = match text {
        Ok(text) => {
            let shown = text.into_iter().map(|(number, text)| match lines.get(&number) {
                Some(held) => json!([number, text, numbers(held)[0], numbers(held)[1]]),
                None => json!([number, text]),
            });
            (shown.collect(), None)
        }
        Err(error) => {
            let shown = lines.iter().map(|(number, held)| json!([number, "", numbers(held)[0], numbers(held)[1]]));
            (shown.collect(), Some(error))
        }
    };
    json!({ "path": path, "lines": shown, "error": error, "hottest": hottest.map(|(line, _)| line) })
}

/// A file of the profile's machine: under one of the roots, else where it is named.
fn find(path: &Path, roots: &[PathBuf]) -> Option<PathBuf> {
    let rooted = roots.iter().map(|root| root.join(path.strip_prefix("/").unwrap_or(path)));
    rooted.chain([path.to_owned()]).find(|path| fs::metadata(path).is_ok_and(|meta| meta.is_file()))
}

fn modified(path: &Path) -> Option<SystemTime> {
    fs::metadata(path).and_then(|meta| meta.modified()).ok()
}

/// Lines of a file, with their numbers.
fn read(path: &str, first: u32, last: u32, roots: &[PathBuf]) -> Result<Vec<(u32, String)>, String> {
    let found = find(Path::new(path), roots);
    let Some(path) = found else { return Err(format!("{path} is not on this machine")) };
    let failed = |error: std::io::Error| format!("cannot read {}: {error}", path.display());
    let mut bytes = Vec::new();
    let file = File::open(&path).map_err(failed)?;
    file.take(FILE_MOST + 1).read_to_end(&mut bytes).map_err(failed)?;
    if bytes.len() as u64 > FILE_MOST {
        return Err(format!("{} is larger than {} MiB", path.display(), FILE_MOST >> 20));
    }
    let text = String::from_utf8_lossy(&bytes);
    let lines: Vec<(u32, String)> = (1..)
        .zip(text.lines())
        .skip(first as usize - 1)
        .take_while(|(number, _)| *number <= last && *number < first + LINES_MOST)
        .map(|(number, line)| (number, line.to_owned()))
        .collect();
    if lines.is_empty() {
        return Err(format!("{} has no line {first}: it is another version of the file", path.display()));
    }
    Ok(lines)
}

/// Where functions of a dataset are by name.
pub(super) fn function(data: &Dataset, name: &str) -> Option<usize> {
    data.functions.iter().position(|known| known == name)
}

#[cfg(test)]
mod tests {
    use super::super::dataset::{Dataset, Frame, Mapped, Node};
    use super::{places, source};
    use crate::output::Value;

    /// A source file that is there.
    const OWN: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/src/web/source.rs");

    /// main (line 9) calls walk (line 3), which calls itself on line 5, which allocates 10.
    fn data(file: &str) -> Dataset {
        let frame = |function, line| Frame { function, file: file.into(), line, address: line.into() };
        let node = |parent, frame, own| Node { parent, frame, own: [own; 4] };
        Dataset {
            functions: vec!["main".into(), "walk".into()],
            frames: vec![frame(0, 9), frame(1, 3), frame(1, 5)],
            nodes: vec![Node::default(), node(0, 0, 0.0), node(1, 2, 0.0), node(2, 2, 4.0), node(3, 1, 10.0)],
            ..Dataset::default()
        }
    }

    #[test]
    fn a_line_of_a_recursion_counts_once() {
        let places = places(&data("a.c"), 1);
        let line = |number: u32| (places.lines["a.c"][&number].flat[0], places.lines["a.c"][&number].cumulative[0]);
        assert_eq!((line(3), line(5)), ((10.0, 10.0), (4.0, 14.0)));
        assert!((places.addresses[&5].cumulative[0] - 14.0).abs() < 1e-9);
    }

    #[test]
    fn numbers_are_shown_without_their_file() {
        let json = source(&data("/not/there.c"), None, "walk", Value::InuseSpace, &[]);
        assert_eq!(json["files"][0]["error"], "/not/there.c is not on this machine");
        assert_eq!(json["files"][0]["lines"], serde_json::json!([[3, "", 10.0, 10.0], [5, "", 4.0, 14.0]]));
    }

    #[test]
    fn lines_around_have_their_text() {
        let json = source(&data(OWN), None, "walk", Value::InuseSpace, &[]);
        let lines = json["files"][0]["lines"].as_array().expect("lines");
        assert!(lines[0][1].as_str().is_some_and(|text| text.starts_with("//! Source of one function")), "{json}");
        assert_eq!(lines[4][3], 14.0);
    }

    #[test]
    fn lines_of_a_difference_hold_what_changed() {
        fn lines(base: Option<&Dataset>, name: &str) -> serde_json::Value {
            source(&data("/not/there.c"), base, name, Value::InuseSpace, &[])["files"][0]["lines"].clone()
        }
        let mut old = data("/not/there.c");
        old.nodes.iter_mut().for_each(|node| node.own = node.own.map(|own| own * 3.0));
        assert_eq!(lines(Some(&old), "walk"), serde_json::json!([[3, "", -20.0, -20.0], [5, "", -8.0, -28.0]]));
        // A function that only the base has.
        old.functions[1] = "gone".into();
        assert_eq!(lines(Some(&old), "gone"), serde_json::json!([[3, "", -30.0, -30.0], [5, "", -12.0, -42.0]]));
        assert_eq!(lines(Some(&old), "walk"), lines(None, "walk"));
    }

    #[test]
    fn another_build_and_a_newer_source_are_told() {
        let image = |path: &str, build_id| Mapped {
            start: 0,
            end: 100,
            offset: 0,
            path: path.into(),
            build_id: vec![build_id],
        };
        let of = |images| Dataset { images, name: "old.heap".into(), ..data(OWN) };
        let remarks = |data: &Dataset, base: Option<&Dataset>| {
            source(data, base, "walk", Value::InuseSpace, &[])["remarks"].to_string()
        };
        // A file is not newer than itself, and every source is newer than what was built before it was written.
        assert_eq!(remarks(&of(vec![image(OWN, 1)]), None), "[]");
        let program = std::env::temp_dir().join(format!("jeprobe-source-{}", std::process::id()));
        let made = std::fs::File::create(&program).and_then(|file| file.set_modified(std::time::UNIX_EPOCH));
        let newer = remarks(&of(vec![image(program.to_str().expect("UTF-8"), 1)]), None);
        let _gone = std::fs::remove_file(&program);
        made.expect("a file");
        assert!(newer.contains("source.rs is newer than the program"), "{newer}");
        let rebuilt = remarks(&of(vec![image(OWN, 1)]), Some(&of(vec![image(OWN, 2)])));
        assert!(rebuilt.contains("is another build in old.heap"), "{rebuilt}");
    }
}
