//! Distinct stacks by name, root first: what flame graphs, trees and folded lines are made of.
//!
//! ```text
//!  names  [main] [handle] [malloc_page]      shape [String], sorted
//!  list   [0, 1] → numbers, base             shape [indexes into names], sorted, each stack once
//! ```
//!
//! Stacks of different addresses with equal names become one, so equal code in two address spaces or two builds meets here.
//! Recursion is kept.
#![forbid(unsafe_code)]

use std::collections::HashMap;
use std::convert::Infallible;

use super::select::{Granularity, Numbers, Options, Selection};
use super::view::Frame;

/// See the module's text.
#[derive(Clone, Debug, Default)]
pub struct Paths {
    pub names: Vec<String>,
    /// One frame of each name, for its file and line; by name.
    pub examples: Vec<Frame>,
    pub list: Vec<Path>,
}

/// One stack.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Path {
    /// Indexes of names, root first.
    pub frames: Box<[u32]>,
    /// Negative where the base had more.
    pub numbers: Numbers,
    /// What the base had.
    pub base: Numbers,
}

impl Paths {
    pub fn new(selection: &Selection<'_>, options: &Options) -> Paths {
        let mut names: HashMap<String, u32> = HashMap::new();
        let mut examples: Vec<Frame> = Vec::new();
        // By frame.
        let mut name_of: Vec<u32> = Vec::new();
        let mut sums: HashMap<Box<[u32]>, (Numbers, Numbers)> = HashMap::new();
        let mut path = Vec::new();
        let walked = selection.walk::<Infallible>(options, |stack, frames| {
            for frame in &frames[name_of.len()..] {
                let next = examples.len() as u32;
                let name = *names.entry(name(frame, options.granularity)).or_insert(next);
                if name == next {
                    examples.push(frame.clone());
                }
                name_of.push(name);
            }
            path.clear();
            path.extend(stack.frames.iter().rev().map(|&frame| name_of[frame as usize]));
            let base = selection.base_of(stack.id);
            let entry = match sums.get_mut(path.as_slice()) {
                Some(entry) => entry,
                None => sums.entry(path.as_slice().into()).or_default(),
            };
            add(&mut entry.0, &stack.numbers);
            add(&mut entry.1, &base);
            Ok(())
        });
        let Ok(_) = walked;
        sorted(names, &examples, sums)
    }

    /// Sums over all stacks.
    pub fn totals(&self) -> Numbers {
        self.list.iter().fold([0.0; 4], |mut sums, path| {
            add(&mut sums, &path.numbers);
            sums
        })
    }
}

fn sorted(names: HashMap<String, u32>, examples: &[Frame], sums: HashMap<Box<[u32]>, (Numbers, Numbers)>) -> Paths {
    let mut by_name: Vec<(String, u32)> = names.into_iter().collect();
    by_name.sort_unstable();
    let mut rank = vec![0_u32; by_name.len()];
    for (place, (_, name)) in by_name.iter().enumerate() {
        rank[*name as usize] = place as u32;
    }
    let mut list: Vec<Path> = sums
        .into_iter()
        .map(|(mut frames, (numbers, base))| {
            frames.iter_mut().for_each(|name| *name = rank[*name as usize]);
            Path { frames, numbers, base }
        })
        .collect();
    list.sort_unstable_by(|a, b| a.frames.cmp(&b.frames));
    let examples = by_name.iter().map(|(_, name)| examples[*name as usize].clone()).collect();
    Paths { names: by_name.into_iter().map(|(name, _)| name).collect(), examples, list }
}

/// Inlined functions have the name that they have elsewhere: they are the same code.
fn name(frame: &Frame, granularity: Granularity) -> String {
    match granularity {
        Granularity::Functions => frame.name.clone(),
        _ => Frame { is_inlined: false, ..frame.clone() }.key(granularity),
    }
}

fn add(sums: &mut Numbers, numbers: &Numbers) {
    sums.iter_mut().zip(numbers).for_each(|(sum, number)| *sum += number);
}
