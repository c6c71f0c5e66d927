//! One profile as the page needs it: its stacks merged into a tree of frames, and what is to be said about it.
//!
//! ```text
//!  walk of a selection: frames leaf first, four numbers ─► nodes, root first: (parent, frame) ─► own numbers
//! ```
//!
//! A stack costs what it does not share with others, 40 bytes a frame; a million stacks of a server are some hundred
//! megabytes. I-DATASET-1: a node stands behind its parent, so sums over subtrees are one walk from the end.
//!
//! A slim dataset has its totals and the functions' own numbers only: older readings of a process that is watched.
#![forbid(unsafe_code)]

use std::collections::HashMap;
use std::convert::Infallible;
use std::path::PathBuf;

use crate::model::{Kind, Profile};
use crate::output::{Numbers, Options, Selection, Value};
use crate::symbolize::Symbols;

/// The node that all stacks begin at.
pub(super) const ROOT: usize = 0;

/// One function at one address.
#[derive(Clone, Debug, Default)]
pub(super) struct Frame {
    /// Index into the functions.
    pub(super) function: u32,
    /// Empty when unknown.
    pub(super) file: String,
    /// 0 when unknown.
    pub(super) line: u32,
    /// Of the call (avma).
    pub(super) address: u64,
}

/// A frame in its place in stacks.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Node {
    pub(super) parent: u32,
    pub(super) frame: u32,
    /// Of the stacks that end here.
    pub(super) own: Numbers,
}

/// What is to be known about the numbers.
#[derive(Clone, Debug, Default)]
pub(super) struct About {
    /// What the numbers measure.
    pub(super) kind: Kind,
    pub(super) program: String,
    pub(super) pid: Option<u32>,
    pub(super) totals: Numbers,
    /// Standard error of the bytes in use and of those ever allocated; 0 when nothing is estimated.
    pub(super) errors: [f64; 2],
    pub(super) samples: [u64; 2],
    /// Mean bytes between samples; 0 or 1: all allocations are counted.
    pub(super) interval: u64,
    /// The longest of them, where samples were taken at several.
    pub(super) coarsest: u64,
    pub(super) has_cumulative: bool,
    /// Lines about what was lost, noted or not resolved.
    pub(super) losses: Vec<String>,
    pub(super) notes: Vec<String>,
    /// What is to be known about cumulative numbers that do not begin with the process.
    pub(super) since: Option<&'static str>,
    pub(super) unresolved: Vec<String>,
}

/// See the module's text.
#[derive(Debug, Default)]
pub struct Dataset {
    /// Names it in addresses of the page; never used again.
    pub(super) id: u64,
    pub(super) name: String,
    /// Seconds, from whatever moment all of a series count from.
    pub(super) seconds: f64,
    pub(super) about: About,
    pub(super) functions: Vec<String>,
    pub(super) frames: Vec<Frame>,
    pub(super) nodes: Vec<Node>,
    /// Own numbers of each function.
    pub(super) flat: Vec<Numbers>,
    /// What addresses are code of.
    pub(super) images: Vec<Mapped>,
    pub(super) is_slim: bool,
}

/// A mapping of a file.
#[derive(Clone, Debug)]
pub(super) struct Mapped {
    pub(super) start: u64,
    pub(super) end: u64,
    /// Of the start, in the file.
    pub(super) offset: u64,
    pub(super) path: PathBuf,
    /// Empty when unknown.
    pub(super) build_id: Vec<u8>,
}

impl Dataset {
    pub fn new(id: u64, name: String, seconds: f64, profile: &Profile, symbols: &Symbols) -> Dataset {
        let mut data = Dataset { id, name, seconds, nodes: vec![Node::default()], ..Dataset::default() };
        let mut index: HashMap<(u32, u32), u32> = HashMap::new();
        let selection = Selection::new(profile, symbols, Value::InuseSpace);
        let Ok(frames) = selection.walk::<Infallible>(&Options::default(), |stack, _| {
            let mut at = ROOT as u32;
            for &frame in stack.frames.iter().rev() {
                let next = data.nodes.len() as u32;
                at = *index.entry((at, frame)).or_insert_with(|| {
                    data.nodes.push(Node { parent: at, frame, own: [0.0; 4] });
                    next
                });
            }
            add(&mut data.nodes[at as usize].own, &stack.numbers);
            Ok(())
        });
        let mut functions: HashMap<String, u32> = HashMap::new();
        for frame in frames {
            let next = data.functions.len() as u32;
            let function = *functions.entry(frame.name).or_insert_with_key(|name| {
                data.functions.push(name.clone());
                next
            });
            let (file, line) = (frame.file, frame.line);
            data.frames.push(Frame { function, file, line, address: frame.address });
        }
        data.flat = vec![[0.0; 4]; data.functions.len()];
        for node in &data.nodes[1..] {
            add(&mut data.flat[data.frames[node.frame as usize].function as usize], &node.own);
        }
        data.about = about(profile, symbols, selection.totals());
        let files = profile.mappings().iter().filter(|mapping| mapping.is_file());
        data.images = files
            .map(|mapping| Mapped {
                start: mapping.start,
                end: mapping.end,
                offset: mapping.offset,
                path: mapping.path.clone(),
                build_id: mapping.build_id.clone(),
            })
            .collect();
        data
    }

    /// The same without its stacks.
    #[must_use]
    pub fn slim(&self) -> Dataset {
        Dataset {
            id: self.id,
            name: self.name.clone(),
            seconds: self.seconds,
            about: self.about.clone(),
            functions: self.functions.clone(),
            flat: self.flat.clone(),
            is_slim: true,
            ..Dataset::default()
        }
    }

    /// What an address is code of.
    pub(super) fn image(&self, address: u64) -> Option<&Mapped> {
        self.images.iter().find(|image| (image.start..image.end).contains(&address))
    }

    /// Function of a node.
    pub(super) fn function(&self, node: usize) -> usize {
        self.frames[self.nodes[node].frame as usize].function as usize
    }

    /// Numbers of each node with all below it.
    pub(super) fn sums(&self) -> Vec<Numbers> {
        let mut sums: Vec<Numbers> = self.nodes.iter().map(|node| node.own).collect();
        for at in (1..sums.len()).rev() {
            let below = sums[at];
            add(&mut sums[self.nodes[at].parent as usize], &below);
        }
        sums
    }

    /// Nodes from one up to, and without, the root.
    pub(super) fn ancestors(&self, node: usize) -> impl Iterator<Item = usize> {
        std::iter::successors(Some(node), |&at| Some(self.nodes[at].parent as usize)).take_while(|&at| at != ROOT)
    }
}

pub(super) fn add(sum: &mut Numbers, more: &Numbers) {
    sum.iter_mut().zip(more).for_each(|(sum, more)| *sum += more);
}

fn about(profile: &Profile, symbols: &Symbols, totals: Numbers) -> About {
    let mut about = About {
        kind: profile.kind().clone(),
        program: profile.program().map_or_else(String::new, |program| program.display().to_string()),
        pid: profile.pid(),
        totals,
        interval: profile.interval().0,
        has_cumulative: profile.has_cumulative(),
        notes: profile.notes().to_vec(),
        since: profile.allocated_since(),
        ..About::default()
    };
    let bases = [false, true].map(|is_cumulative| profile.basis(is_cumulative));
    about.samples = bases.map(|basis| basis.samples);
    about.errors = bases.map(|basis| basis.variance.sqrt());
    about.coarsest = bases[0].coarsest.max(bases[1].coarsest).0;
    about.losses = profile.lost().collect();
    let (all, unnamed) = symbols.counts();
    if unnamed > 0 {
        about.unresolved.push(format!("{unnamed} of {all} addresses have no name"));
        about.unresolved.extend(symbols.problems().iter().map(ToString::to_string));
    }
    about
}
