//! Pictures that the server draws for the page: the call graph, and growth over the series.
#![forbid(unsafe_code)]

use std::collections::HashMap;
use std::sync::Arc;

use regex::Regex;

use super::dataset::Dataset;
use super::series::{basis, remarks};
use crate::model::Kind;
use crate::output::graph::{Limits, select};
use crate::output::{Numbers, Value};
use crate::picture::area::{Series, area};
use crate::picture::flame::human;
use crate::picture::{Labels, Scene, call_graph};

/// Holders with a band of their own.
const BANDS: usize = 9;
/// A graph of more boxes is no picture any more, and takes the browser's memory.
pub(super) const BOXES_MOST: usize = 2000;

/// What of the profile is drawn.
#[derive(Debug, Default)]
pub struct Choice {
    pub value: Value,
    pub focus: Option<Regex>,
    pub ignore: Option<Regex>,
    pub boxes: usize,
}

/// A call graph with what the page needs to know of it.
#[derive(Debug)]
pub struct CallGraph {
    pub scene: Scene,
    /// The key of a box is the place of its function here.
    pub names: Vec<String>,
    /// Keys of caller and callee, the largest call first.
    pub calls: Vec<(usize, usize)>,
}

/// The call graph; with a base of the differences.
pub fn graph(data: &Dataset, base: Option<&Dataset>, choice: &Choice) -> CallGraph {
    let mut names: Vec<String> = Vec::new();
    let mut index: HashMap<String, usize> = HashMap::new();
    let mut stacks: Vec<(Vec<usize>, f64)> = Vec::new();
    for (data, sign) in std::iter::once((data, 1.0)).chain(base.map(|base| (base, -1.0))) {
        let keys: Vec<usize> = data
            .functions
            .iter()
            .map(|name| {
                *index.entry(name.clone()).or_insert_with(|| {
                    names.push(name.clone());
                    names.len() - 1
                })
            })
            .collect();
        let matching = |regex: &Option<Regex>| -> Option<Vec<bool>> {
            regex.as_ref().map(|regex| data.functions.iter().map(|name| regex.is_match(name)).collect())
        };
        let (focus, ignore) = (matching(&choice.focus), matching(&choice.ignore));
        for at in 1..data.nodes.len() {
            let own = data.nodes[at].own[choice.value as usize];
            if own == 0.0 {
                continue;
            }
            let functions: Vec<usize> = data.ancestors(at).map(|node| data.function(node)).collect();
            let any = |of: &[bool]| functions.iter().any(|&function| of[function]);
            if focus.as_deref().is_none_or(any) && !ignore.as_deref().is_some_and(any) {
                stacks.push((functions.into_iter().map(|function| keys[function]).collect(), own * sign));
            }
        }
    }
    let limits = Limits::of(choice.boxes.min(BOXES_MOST));
    let selected = select(&names, stacks.iter().map(|(keys, value)| (keys.as_slice(), *value)), &limits);
    let unit = choice.value.unit_in(&data.about.kind);
    let amount = |value: f64| human(value, &unit);
    let all = selected.nodes.len() + selected.dropped_nodes;
    let lines = vec![format!("{} of {all} functions, {} drawn", selected.nodes.len(), amount(selected.total))];
    let title = base.map_or_else(|| data.name.clone(), |base| format!("{} minus {}", data.name, base.name));
    let title = format!("{title}: {}", choice.value.title_in(&data.about.kind));
    let key = |at: usize| selected.nodes[at].key;
    let mut calls: Vec<_> =
        selected.edges.iter().map(|edge| (key(edge.caller), key(edge.callee), edge.value.abs())).collect();
    calls.sort_by(|a, b| b.2.total_cmp(&a.2));
    let calls = calls.into_iter().map(|(caller, callee, _)| (caller, callee)).collect();
    CallGraph { scene: call_graph(&selected, &Labels { title, lines, amount: &amount }), names, calls }
}

/// Growth: one band per function, by what the functions hold themselves at the end of the series.
pub fn timeline(series: &[Arc<Dataset>], value: Value) -> Scene {
    let of = |numbers: &Numbers| numbers[value as usize];
    let mut most: HashMap<&str, f64> = HashMap::new();
    for data in series {
        for (name, flat) in data.functions.iter().zip(&data.flat) {
            let known = most.entry(name).or_default();
            *known = known.max(of(flat));
        }
    }
    let last: HashMap<&str, f64> = series.last().map_or_else(HashMap::new, |data| {
        data.functions.iter().map(String::as_str).zip(data.flat.iter().map(of)).collect()
    });
    let mut names: Vec<(&str, f64)> = most.into_iter().filter(|(_, value)| *value > 0.0).collect();
    // Who held the most at any time has a band; bands are sorted by what is held in the end.
    names.sort_by(|a, b| b.1.total_cmp(&a.1).then_with(|| a.0.cmp(b.0)));
    names.truncate(BANDS);
    let end = |name: &str| last.get(name).copied().unwrap_or(0.0);
    names.sort_by(|a, b| end(b.0).total_cmp(&end(a.0)).then_with(|| a.0.cmp(b.0)));
    let column = |name: &str| -> Vec<f64> {
        let at = |data: &Arc<Dataset>| {
            data.functions.iter().position(|known| known == name).map_or(0.0, |function| of(&data.flat[function]))
        };
        series.iter().map(at).collect()
    };
    let bands: Vec<(String, Vec<f64>)> = names.iter().map(|(name, _)| ((*name).to_owned(), column(name))).collect();
    let rest = series
        .iter()
        .enumerate()
        .map(|(at, data)| of(&data.about.totals) - bands.iter().map(|(_, values)| values[at]).sum::<f64>())
        .collect();
    let kind = series.first().map_or(&Kind::Heap, |data| &data.about.kind);
    let unit = value.unit_in(kind);
    let moments = series.iter().map(|data| (data.name.clone(), data.seconds)).collect();
    let subtitle = match series {
        [first, .., last] => {
            let by = if *kind == Kind::Heap { "; by the functions that allocated" } else { "" };
            format!("{} profiles, {} to {}{by}", series.len(), first.name, last.name)
        }
        _ => "one profile".to_owned(),
    };
    let title = format!("{}: {}", kind.title(), value.title_in(kind));
    let remarks = basis(series, value).into_iter().chain(remarks(series, value)).collect();
    let amount = |value: f64| human(value, &unit);
    area(&Series { title, subtitle, moments, bands, rest, remarks, amount: &amount })
}

#[cfg(test)]
mod tests {
    use super::super::dataset::{About, Dataset, Frame, Node};
    use super::{Choice, graph, timeline};
    use crate::output::Value;
    use regex::Regex;
    use std::sync::Arc;

    fn data(name: &str, leaf: f64) -> Dataset {
        let frames = (0..3).map(|function| Frame { function, ..Frame::default() }).collect();
        let node = |parent, frame, own| Node { parent, frame, own: [own; 4] };
        Dataset {
            name: name.into(),
            functions: vec!["main".into(), "keep".into(), "other".into()],
            frames,
            nodes: vec![Node::default(), node(0, 0, 0.0), node(1, 1, leaf), node(1, 2, 1e6)],
            flat: vec![[0.0; 4], [leaf; 4], [1e6; 4]],
            about: About { totals: [leaf + 1e6; 4], ..About::default() },
            ..Dataset::default()
        }
    }

    fn drawn(base: Option<&Dataset>, focus: Option<&str>) -> String {
        let focus = focus.map(|pattern| Regex::new(pattern).expect("a pattern"));
        let choice = Choice { focus, boxes: 80, value: Value::InuseSpace, ignore: None };
        let graph = graph(&data("new", 3e6), base, &choice);
        assert!(graph.calls.iter().all(|&(caller, callee)| caller.max(callee) < graph.names.len()));
        graph.scene.svg_element()
    }

    #[test]
    fn graphs_follow_focus_and_base() {
        let whole = drawn(None, None);
        assert!(whole.contains(">keep<") && whole.contains(">other<") && whole.contains("new: bytes in use"));
        assert!(!drawn(None, Some("^keep$")).contains(">other<"));
        let change = drawn(Some(&data("old", 1e6)), None);
        assert!(
            change.contains(">keep<") && !change.contains(">other<"),
            "what stayed the same is not drawn: {change}"
        );
    }

    #[test]
    fn bands_and_rest_make_the_total() {
        let series = [Arc::new(data("a", 1e6)), Arc::new(data("b", 3e6))];
        let svg = timeline(&series, Value::InuseSpace).svg_element();
        assert!(svg.contains("keep: 2.9 MiB") && !svg.contains("everything else"), "{svg}");
        let nothing = timeline(&[], Value::InuseSpace).svg_element();
        assert!(nothing.contains("one profile") && nothing.contains(">nothing to show<"), "{nothing}");
    }
}
