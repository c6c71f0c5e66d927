//! callgrind's format: read by `callgrind_annotate`, `KCachegrind` and `QCachegrind`.
//!
//! Events are all values that the profile has, in whole bytes and objects. A function's own cost is at the line of its
//! allocation, a call's inclusive cost at the line of the call. In a recursive stack each call is counted once, at its place
//! nearest to the leaf, so an inclusive cost is never more than the total. Own costs sum up to the `summary` line. Negative
//! numbers, which the format does not know, are left out.
#![forbid(unsafe_code)]

use std::collections::{BTreeMap, HashMap, HashSet};
use std::convert::Infallible;
use std::fmt::Write as _;
use std::io::{self, Write};

use super::select::{Numbers, Options, Selection, Value};
use super::whole::Whole;
use crate::model::Profile;

/// A function in a file.
type Place = (String, String);

/// What one function costs.
#[derive(Default)]
struct Cost {
    /// By line.
    own: BTreeMap<u32, Numbers>,
    /// By called function and line of the call: inclusive numbers, line of the called function.
    calls: BTreeMap<(usize, u32), (Numbers, u32)>,
}

/// Writes the profile.
pub fn write(selection: &Selection<'_>, options: &Options, mut out: impl Write) -> io::Result<()> {
    let events = values(selection);
    let mut ids: HashMap<Place, usize> = HashMap::new();
    let mut places: Vec<Place> = Vec::new();
    let mut costs: Vec<Cost> = Vec::new();
    // By frame.
    let mut place_of: Vec<usize> = Vec::new();
    let mut counted = HashSet::new();
    let walked = selection.walk::<Infallible>(options, |stack, frames| {
        for frame in &frames[place_of.len()..] {
            let next = places.len();
            let place = (frame.file.clone(), frame.name.clone());
            let id = *ids.entry(place.clone()).or_insert(next);
            if id == next {
                places.push(place);
                costs.push(Cost::default());
            }
            place_of.push(id);
        }
        let numbers = stack.numbers.map(|number| number.max(0.0));
        let at = |frame: u32| (place_of[frame as usize], frames[frame as usize].line);
        let (&leaf, callers) = stack.frames.split_first().expect("a stack has a frame");
        let (mut callee, mut callee_line) = at(leaf);
        add(costs[callee].own.entry(callee_line).or_default(), &numbers);
        counted.clear();
        for &caller in callers {
            let (place, call_line) = at(caller);
            if counted.insert((place, callee)) {
                let call = costs[place].calls.entry((callee, call_line)).or_insert(([0.0; 4], callee_line));
                add(&mut call.0, &numbers);
            }
            (callee, callee_line) = (place, call_line);
        }
        Ok(())
    });
    let Ok(_) = walked;
    print(selection.profile(), &events, &places, &costs, &mut out)
}

/// The values that the profile has.
pub(super) fn values(selection: &Selection<'_>) -> Vec<Value> {
    let has_cumulative = selection.profile().has_cumulative();
    Value::ALL.into_iter().filter(|value| has_cumulative || !value.is_cumulative()).collect()
}

fn print(
    profile: &Profile,
    events: &[Value],
    places: &[Place],
    costs: &[Cost],
    out: &mut impl Write,
) -> io::Result<()> {
    // Names are words there.
    let name = |value: &Value| value.name_in(profile.kind()).replace(char::is_whitespace, "_");
    let event_names: Vec<String> = events.iter().map(name).collect();
    writeln!(out, "# callgrind format\nversion: 1\ncreator: jeprobe")?;
    if let Some(pid) = profile.pid() {
        writeln!(out, "pid: {pid}")?;
    }
    if let Some(program) = profile.program() {
        writeln!(out, "cmd: {}", one_line(&program.to_string_lossy()))?;
    }
    writeln!(out, "positions: line\nevents: {}", event_names.join(" "))?;
    let mut summary = vec![0_i128; events.len()];
    let mut wholes = vec![Whole::default(); events.len()];
    let mut written: HashSet<(char, usize)> = HashSet::new();
    let files: HashMap<&str, usize> = places.iter().map(|(file, _)| file.as_str()).zip(1..).collect();
    let mut label = |mark: char, id: usize, name: &str| {
        if written.insert((mark, id)) { format!("({id}) {}", one_line(name)) } else { format!("({id})") }
    };
    let shown = |file: &str| if file.is_empty() { "???".to_owned() } else { file.to_owned() };
    for (id, ((file, name), cost)) in places.iter().zip(costs).enumerate() {
        writeln!(out, "\nfl={}", label('f', files[file.as_str()], &shown(file)))?;
        writeln!(out, "fn={}", label('n', id + 1, name))?;
        for (line, numbers) in &cost.own {
            let mut row = line.to_string();
            for ((event, whole), sum) in events.iter().zip(&mut wholes).zip(&mut summary) {
                let number = whole.next(numbers[*event as usize]).max(0);
                *sum = sum.saturating_add(number);
                let _infallible = write!(row, " {number}");
            }
            writeln!(out, "{row}")?;
        }
        // Together what the callees hold: each function's calls sum up by themselves.
        let mut called = vec![Whole::default(); events.len()];
        for ((callee, line), (numbers, callee_line)) in &cost.calls {
            let (file, name) = &places[*callee];
            writeln!(out, "cfi={}", label('f', files[file.as_str()], &shown(file)))?;
            writeln!(out, "cfn={}\ncalls=1 {callee_line}", label('n', callee + 1, name))?;
            write!(out, "{line}")?;
            for (event, whole) in events.iter().zip(&mut called) {
                write!(out, " {}", whole.next(numbers[*event as usize]))?;
            }
            writeln!(out)?;
        }
    }
    let sums: Vec<String> = summary.iter().map(i128::to_string).collect();
    writeln!(out, "\nsummary: {}", sums.join(" "))
}

fn one_line(text: &str) -> String {
    text.replace(['\n', '\r'], " ")
}

fn add(sums: &mut Numbers, numbers: &Numbers) {
    sums.iter_mut().zip(numbers).for_each(|(sum, number)| *sum += number);
}
