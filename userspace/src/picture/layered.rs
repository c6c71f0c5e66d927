//! Places boxes in layers so that edges run downwards: the layout of the call graph.
//!
//! ```text
//!  edges ─► back edges turned ─► layers ─► places for passing edges and labels ─► order ─► x ─► y
//! ```
//!
//! | step | method |
//! |---|---|
//! | cycles | depth first from the roots; an edge back to an open node is turned while layers are made |
//! | layers | longest path from the roots, then each node to where its edges are shortest; very wide ones are folded |
//! | places | an edge has one in every layer that it passes, and one for its label: nothing is drawn over a box |
//! | order | sweeps by mean place of neighbours, the one with the fewest crossings stays |
//! | x | sweeps; in a layer the least squares to the mean x of neighbours under the distances needed (pooled violators) |
//! | parts | parts without an edge between them are placed by themselves and packed in rows |
//!
//! Time is about linear in places. Units are those of the sizes given; x and y of a box
//! are its centre, y grows downwards. The result depends on nothing but the input.
#![forbid(unsafe_code)]

use super::ranks::{back_edges, fold, nearest, ranks};

/// Between boxes of a layer, between passing edges, between layers, between parts.
const BOX_GAP: f64 = 18.0;
const EDGE_GAP: f64 = 8.0;
const LAYER_GAP: f64 = 15.0;
const PART_GAP: f64 = 40.0;
/// Between edges that lie over each other from layer to layer; height at most for them.
const LINE_GAP: f64 = 2.5;
const ROOM_MOST: f64 = 900.0;
/// Sweeps over a graph of few places and of many.
const SWEEPS: usize = 24;
const SWEEPS_LARGE: usize = 6;
const LARGE: usize = 20_000;
/// Boxes of a layer at most, by the square root of all: what is much wider than high cannot be seen whole. Fewer make more layers
/// and passing edges, which need width, too: by half as many, 10,000 boxes get half as wide again, 80 a third narrower.
const WIDEST_OF_ROOT: [usize; 2] = [2, 4];
const SMALL: usize = 400;
/// Places for passing edges of one part; where there would be more, edges over many layers are drawn straight instead.
const PASSING_MOST: usize = 100_000;
const STRAIGHT_FROM: usize = 12;

/// Width and height.
pub(super) type Size = (f64, f64);
pub(super) type Point = (f64, f64);

/// An edge to lay out.
#[derive(Clone, Copy, Debug)]
pub(super) struct Link {
    pub(super) from: usize,
    pub(super) to: usize,
    /// How much its being short and straight counts; above 0.
    pub(super) weight: f64,
    /// Of its label; zero without one.
    pub(super) label: Size,
}

/// Where an edge runs: a chain of points from the first box's border to the second's, every second stretch vertical.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Route {
    pub(super) points: Vec<Point>,
    /// Centre of the label's place.
    pub(super) label: Point,
}

/// See the module's text.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Layout {
    pub(super) size: Size,
    /// Centres.
    pub(super) boxes: Vec<Point>,
    /// One per link.
    pub(super) routes: Vec<Route>,
}

/// Lays out all parts and packs them.
pub(super) fn layout(boxes: &[Size], links: &[Link]) -> Layout {
    let labels_have_layers = links.iter().any(|link| link.label.1 > 0.0);
    let mut result =
        Layout { size: (0.0, 0.0), boxes: vec![(0.0, 0.0); boxes.len()], routes: vec![Route::default(); links.len()] };
    let mut parts: Vec<Part> = parts(boxes, links)
        .into_iter()
        .map(|(members, edges)| Part::place(members, edges, boxes, links, labels_have_layers))
        .collect();
    // Rows: the largest part first; a row is as wide as the widest part, or as makes the whole about 3 : 2.
    parts.sort_by(|a, b| (b.size.0 * b.size.1).total_cmp(&(a.size.0 * a.size.1)));
    let area: f64 = parts.iter().map(|part| (part.size.0 + PART_GAP) * (part.size.1 + PART_GAP)).sum();
    let width = parts.iter().map(|part| part.size.0).fold((area * 1.5).sqrt(), f64::max);
    let (mut x, mut y, mut row) = (0.0, 0.0, 0.0_f64);
    for part in &parts {
        if x > 0.0 && x + part.size.0 > width {
            (x, y, row) = (0.0, y + row + PART_GAP, 0.0);
        }
        part.put(&mut result, x, y);
        result.size = (result.size.0.max(x + part.size.0), result.size.1.max(y + part.size.1));
        x += part.size.0 + PART_GAP;
        row = row.max(part.size.1);
    }
    spread(&mut result, boxes, links);
    result
}

/// Moves the ends of routes apart along the borders of their boxes, each as far as it may towards where it leads.
fn spread(layout: &mut Layout, boxes: &[Size], links: &[Link]) {
    // Per box and border (upper, lower): where the edge leads, which edge, whether it is its first point.
    let mut ends: Vec<[Vec<(f64, usize, bool)>; 2]> = vec![[const { Vec::new() }; 2]; boxes.len()];
    for (edge, (route, link)) in layout.routes.iter().zip(links).enumerate() {
        let [first, second, before, last] = match route.points[..] {
            [first, last] => [first, last, first, last],
            [first, second, .., before, last] => [first, second, before, last],
            _ => continue,
        };
        ends[link.from][usize::from(first.1 < second.1)].push((second.0, edge, true));
        ends[link.to][usize::from(last.1 < before.1)].push((before.0, edge, false));
    }
    for (at, sides) in ends.iter_mut().enumerate() {
        let room = boxes[at].0 * 0.85;
        for side in sides.iter_mut().filter(|side| side.len() > 1) {
            side.sort_by(|a, b| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1)));
            let (low, high) = (layout.boxes[at].0 - room / 2.0, layout.boxes[at].0 + room / 2.0);
            let gap = (room / (side.len() - 1) as f64).min(14.0);
            let wanted: Vec<(f64, f64)> = side.iter().map(|(x, ..)| (x.clamp(low, high), 1.0)).collect();
            let places = nearest(&wanted, &vec![gap; side.len() - 1]);
            // Pooled at a border they may reach over it: all move back by as much.
            let over = (places.last().map_or(0.0, |last| last - high)).max(0.0);
            let under = (low - places[0]).max(0.0);
            for (&(_, edge, is_first), x) in side.iter().zip(places) {
                let points = &mut layout.routes[edge].points;
                let end = if is_first { 0 } else { points.len() - 1 };
                points[end].0 = (x - over + under).clamp(low, high);
            }
        }
    }
}

/// Boxes and links of each connected part, in the order of its first box.
fn parts(boxes: &[Size], links: &[Link]) -> Vec<(Vec<usize>, Vec<usize>)> {
    let mut near: Vec<Vec<usize>> = vec![Vec::new(); boxes.len()];
    for link in links {
        near[link.from].push(link.to);
        near[link.to].push(link.from);
    }
    let mut part_of = vec![usize::MAX; boxes.len()];
    let mut parts: Vec<(Vec<usize>, Vec<usize>)> = Vec::new();
    for start in 0..boxes.len() {
        if part_of[start] != usize::MAX {
            continue;
        }
        let (part, mut open) = (parts.len(), vec![start]);
        let mut members = Vec::new();
        part_of[start] = part;
        while let Some(at) = open.pop() {
            members.push(at);
            for &next in &near[at] {
                if part_of[next] == usize::MAX {
                    part_of[next] = part;
                    open.push(next);
                }
            }
        }
        members.sort_unstable();
        parts.push((members, Vec::new()));
    }
    for (at, link) in links.iter().enumerate() {
        parts[part_of[link.from]].1.push(at);
    }
    parts
}

/// A box, or the place of an edge in a layer that it passes.
#[derive(Clone, Copy, Debug)]
struct Place {
    layer: usize,
    size: Size,
    is_box: bool,
    x: f64,
}

/// A stretch of an edge between two neighbouring layers.
#[derive(Clone, Copy, Debug)]
struct Stretch {
    upper: usize,
    lower: usize,
    weight: f64,
}

/// One connected part.
struct Part {
    size: Size,
    members: Vec<usize>,
    edges: Vec<usize>,
    /// Boxes first, as in `members`.
    places: Vec<Place>,
    layers: Vec<Vec<usize>>,
    stretches: Vec<Stretch>,
    /// Per edge: places from the upper box to the lower one, the two included; and whether it was turned.
    chains: Vec<(Vec<usize>, bool)>,
    /// Top of each layer, and its height.
    bands: Vec<(f64, f64)>,
}

impl Part {
    fn place(members: Vec<usize>, edges: Vec<usize>, boxes: &[Size], links: &[Link], doubled: bool) -> Part {
        let mut local = std::collections::HashMap::with_capacity(members.len());
        local.extend(members.iter().enumerate().map(|(at, &member)| (member, at)));
        let ends: Vec<(usize, usize)> =
            edges.iter().map(|&edge| (local[&links[edge].from], local[&links[edge].to])).collect();
        let turned = back_edges(members.len(), &ends);
        let down: Vec<(usize, usize, f64)> = ends
            .iter()
            .zip(&turned)
            .zip(&edges)
            .filter(|(((from, to), _), _)| from != to)
            .map(|((&(from, to), &turned), &edge)| {
                let weight = links[edge].weight;
                if turned { (to, from, weight) } else { (from, to, weight) }
            })
            .collect();
        let step = if doubled { 2 } else { 1 };
        let mut ranks = ranks(members.len(), &down);
        let widest = WIDEST_OF_ROOT[usize::from(members.len() > SMALL)];
        fold(&mut ranks, &down, widest * members.len().isqrt().max(1));
        for rank in &mut ranks {
            *rank *= step;
        }
        let loops = |at: usize| edges.iter().zip(&ends).find(|(_, ends)| **ends == (at, at)).map(|(&edge, _)| edge);
        let places = members.iter().enumerate().map(|(at, &member)| {
            // A loop is drawn at the right of its box, its label beside it: both sides grow, so that the centre stays.
            let beside = loops(at).map_or(0.0, |edge| 2.0 * (LOOP + links[edge].label.0));
            Place { layer: ranks[at], size: (boxes[member].0 + beside, boxes[member].1), is_box: true, x: 0.0 }
        });
        let mut part = Part {
            size: (0.0, 0.0),
            places: places.collect(),
            members,
            edges,
            layers: vec![Vec::new(); ranks.iter().max().map_or(0, |rank| rank + 1)],
            stretches: Vec::new(),
            chains: Vec::new(),
            bands: Vec::new(),
        };
        let passing: usize = ends.iter().map(|&(from, to)| ranks[from].abs_diff(ranks[to])).sum();
        let longest = if passing > PASSING_MOST { STRAIGHT_FROM } else { usize::MAX };
        for (at, &(from, to)) in ends.iter().enumerate() {
            part.chain(from, to, turned[at], longest, &links[part.edges[at]]);
        }
        part.first_order();
        part.order();
        part.set_x();
        part.set_y();
        part
    }

    /// Makes the places of one edge.
    fn chain(&mut self, from: usize, to: usize, turned: bool, longest: usize, link: &Link) {
        let (upper, lower) = if turned { (to, from) } else { (from, to) };
        let mut chain = vec![upper];
        let span = self.places[lower].layer.saturating_sub(self.places[upper].layer);
        if span > longest {
            chain.push(lower);
        } else if upper != lower {
            let (first, last) = (self.places[upper].layer + 1, self.places[lower].layer);
            // The label stands in a layer between two layers of boxes.
            let mut middle = usize::midpoint(first, last.saturating_sub(1));
            if middle.is_multiple_of(2) && middle > first {
                middle -= 1;
            }
            for layer in first..last {
                let size = if layer == middle { (link.label.0.max(1.0), link.label.1) } else { (1.0, 0.0) };
                chain.push(self.places.len());
                self.places.push(Place { layer, size, is_box: false, x: 0.0 });
            }
            chain.push(lower);
            // Long edges are kept straight more than boxes are kept centred.
            let is_long = chain.len() > 2;
            for pair in chain.windows(2) {
                let weight = link.weight * if is_long { 2.0 } else { 1.0 };
                self.stretches.push(Stretch { upper: pair[0], lower: pair[1], weight });
            }
        }
        self.chains.push((chain, turned));
    }

    /// Neighbours of each place above (true) or below.
    fn neighbours(&self, above: bool) -> Vec<Vec<(usize, f64)>> {
        let mut near = vec![Vec::new(); self.places.len()];
        for stretch in &self.stretches {
            let (of, other) = if above { (stretch.lower, stretch.upper) } else { (stretch.upper, stretch.lower) };
            near[of].push((other, stretch.weight));
        }
        near
    }

    /// Depth first from the top, so that a subtree stands together.
    fn first_order(&mut self) {
        let below = self.neighbours(false);
        let mut seen = vec![false; self.places.len()];
        let mut roots: Vec<usize> = (0..self.places.len()).collect();
        roots.sort_by_key(|&at| (self.places[at].layer, at));
        for root in roots {
            let mut open = vec![root];
            while let Some(at) = open.pop() {
                if std::mem::replace(&mut seen[at], true) {
                    continue;
                }
                self.layers[self.places[at].layer].push(at);
                open.extend(below[at].iter().rev().map(|&(next, _)| next).filter(|&next| !seen[next]));
            }
        }
    }

    fn sweeps(&self) -> usize {
        if self.places.len() > LARGE { SWEEPS_LARGE } else { SWEEPS }
    }

    /// Reduces crossings.
    fn order(&mut self) {
        let near = [self.neighbours(true), self.neighbours(false)];
        let mut index = vec![0; self.places.len()];
        let number = |layers: &[Vec<usize>], index: &mut [usize]| {
            for layer in layers {
                layer.iter().enumerate().for_each(|(at, &place)| index[place] = at);
            }
        };
        number(&self.layers, &mut index);
        let (mut best, mut fewest) = (self.layers.clone(), self.crossings(&index));
        for sweep in 0..self.sweeps() {
            if fewest == 0 {
                break;
            }
            let is_down = sweep % 2 == 0;
            let count = self.layers.len();
            for step in 0..count {
                let layer = if is_down { step } else { count - 1 - step };
                let mut keyed: Vec<(f64, usize)> = self.layers[layer]
                    .iter()
                    .map(|&place| {
                        let near = &near[usize::from(!is_down)][place];
                        let weight: f64 = near.iter().map(|(_, weight)| weight).sum();
                        let sum: f64 = near.iter().map(|&(other, weight)| index[other] as f64 * weight).sum();
                        (if near.is_empty() { index[place] as f64 } else { sum / weight }, place)
                    })
                    .collect();
                keyed.sort_by(|a, b| a.0.total_cmp(&b.0));
                self.layers[layer] = keyed.into_iter().map(|(_, place)| place).collect();
                self.layers[layer].iter().enumerate().for_each(|(at, &place)| index[place] = at);
            }
            let crossings = self.crossings(&index);
            if crossings < fewest {
                (best, fewest) = (self.layers.clone(), crossings);
            }
        }
        self.layers = best;
    }

    /// Pairs of stretches that cross, counted with a tree of sums over the places of the lower layer.
    fn crossings(&self, index: &[usize]) -> u64 {
        let mut by_layer: Vec<Vec<(usize, usize)>> = vec![Vec::new(); self.layers.len()];
        for stretch in &self.stretches {
            by_layer[self.places[stretch.upper].layer].push((index[stretch.upper], index[stretch.lower]));
        }
        let mut crossings = 0;
        for (layer, pairs) in by_layer.iter_mut().enumerate().filter(|(_, pairs)| pairs.len() > 1) {
            pairs.sort_unstable();
            let width = self.layers[layer + 1].len();
            let mut tree = vec![0_u64; width + 1];
            for (seen, &(_, lower)) in pairs.iter().enumerate() {
                let (mut at, mut not_right) = (lower + 1, 0);
                while at > 0 {
                    not_right += tree[at];
                    at &= at - 1;
                }
                crossings += seen as u64 - not_right;
                at = lower + 1;
                while at <= width {
                    tree[at] += 1;
                    at += at & at.wrapping_neg();
                }
            }
        }
        crossings
    }

    /// Distance that the centres of two neighbours of a layer need.
    fn distance(&self, left: usize, right: usize) -> f64 {
        let (a, b) = (self.places[left], self.places[right]);
        let gap = if a.is_box || b.is_box { BOX_GAP } else { EDGE_GAP };
        f64::midpoint(a.size.0, b.size.0) + gap
    }

    fn set_x(&mut self) {
        for layer in &self.layers {
            let mut x = 0.0;
            for at in 0..layer.len() {
                if at > 0 {
                    x += self.distance(layer[at - 1], layer[at]);
                }
                self.places[layer[at]].x = x;
            }
        }
        let near = [self.neighbours(true), self.neighbours(false)];
        for sweep in 0..self.sweeps() {
            // Down, up, and in the end by both sides at once.
            let sides: &[usize] = match sweep % 3 {
                0 => &[0],
                1 => &[1],
                _ => &[0, 1],
            };
            let count = self.layers.len();
            for step in 0..count {
                let at = if sweep % 3 == 1 { count - 1 - step } else { step };
                let layer = std::mem::take(&mut self.layers[at]);
                let wanted: Vec<(f64, f64)> = layer
                    .iter()
                    .map(|&place| {
                        let near = sides.iter().flat_map(|&side| &near[side][place]);
                        let (mut sum, mut weight) = (0.0, 0.0);
                        for &(other, of) in near {
                            // A passing edge is pulled to itself the hardest.
                            let of = if self.places[place].is_box || self.places[other].is_box { of } else { 4.0 * of };
                            sum += self.places[other].x * of;
                            weight += of;
                        }
                        if weight > 0.0 { (sum / weight, weight) } else { (self.places[place].x, 0.01) }
                    })
                    .collect();
                let distances: Vec<f64> = layer.windows(2).map(|pair| self.distance(pair[0], pair[1])).collect();
                for (&place, x) in layer.iter().zip(nearest(&wanted, &distances)) {
                    self.places[place].x = x;
                }
                self.layers[at] = layer;
            }
        }
        let left = self.places.iter().map(|place| place.x - place.size.0 / 2.0).fold(f64::INFINITY, f64::min);
        let mut right = 0.0_f64;
        for place in &mut self.places {
            place.x -= left;
            right = right.max(place.x + place.size.0 / 2.0);
        }
        self.size.0 = right;
    }

    fn set_y(&mut self) {
        // Below each layer: how many edges lie over each other there, on an average.
        let mut lines = vec![0.0; self.layers.len()];
        for stretch in &self.stretches {
            let (upper, lower) = (&self.places[stretch.upper], &self.places[stretch.lower]);
            lines[upper.layer] += (upper.x - lower.x).abs() / self.size.0.max(1.0);
        }
        let mut y = 0.0;
        for (layer, lines) in self.layers.iter().zip(lines) {
            let height = layer.iter().map(|&place| self.places[place].size.1).fold(0.0, f64::max);
            self.bands.push((y, height));
            // They need height, or they are a bar without edges.
            let room = (lines * LINE_GAP).min(ROOM_MOST).max((layer.len() as f64).sqrt() * 2.0);
            y += height + LAYER_GAP + room;
        }
        self.size.1 = self.bands.last().map_or(0.0, |(top, height)| top + height);
    }

    /// Writes boxes and routes into the whole.
    fn put(&self, whole: &mut Layout, dx: f64, dy: f64) {
        let centre = |place: usize| {
            let (top, height) = self.bands[self.places[place].layer];
            (self.places[place].x + dx, top + height / 2.0 + dy)
        };
        for (at, &member) in self.members.iter().enumerate() {
            whole.boxes[member] = centre(at);
        }
        for ((chain, turned), &edge) in self.chains.iter().zip(&self.edges) {
            let mut route = Route::default();
            if let [only] = chain[..] {
                let (x, y) = centre(only);
                route.points = vec![(x, y)];
                route.label = (x, y);
            } else {
                let (first, last) = (chain[0], chain[chain.len() - 1]);
                let (x, y) = centre(first);
                route.points.push((x, y + self.places[first].size.1 / 2.0));
                for &place in &chain[1..chain.len() - 1] {
                    let (x, y) = centre(place);
                    let (top, height) = self.bands[self.places[place].layer];
                    route.points.extend([(x, top + dy), (x, top + height + dy)]);
                    if self.places[place].size.1 > 0.0 {
                        route.label = (x, y);
                    }
                }
                if chain.len() == 2 {
                    // No place was made for it: the label, if there is one, stands in the middle.
                    let (a, b) = (centre(first), centre(last));
                    route.label = (f64::midpoint(a.0, b.0), f64::midpoint(a.1, b.1));
                }
                let (x, y) = centre(last);
                route.points.push((x, y - self.places[last].size.1 / 2.0));
                if *turned {
                    route.points.reverse();
                }
            }
            whole.routes[edge] = route;
        }
    }
}

/// Width of a loop beside its box, without the label.
pub(super) const LOOP: f64 = 16.0;

#[cfg(test)]
mod tests {
    use super::{Link, Size, layout};

    fn links(ends: &[(usize, usize)]) -> Vec<Link> {
        ends.iter().map(|&(from, to)| Link { from, to, weight: 1.0, label: (30.0, 10.0) }).collect()
    }

    /// Numbers that look random and are the same each time.
    fn numbers(count: usize, mut seed: u64) -> impl Iterator<Item = usize> {
        std::iter::repeat_with(move || {
            seed ^= seed << 13;
            seed ^= seed >> 7;
            seed ^= seed << 17;
            (seed >> 11) as usize
        })
        .take(count)
    }

    fn assert_nothing_overlaps(boxes: &[Size], links: &[Link]) {
        let result = layout(boxes, links);
        let mut rects: Vec<(f64, f64, f64, f64)> = boxes
            .iter()
            .zip(&result.boxes)
            .map(|((width, height), (x, y))| (x - width / 2.0, y - height / 2.0, x + width / 2.0, y + height / 2.0))
            .collect();
        for (link, route) in links.iter().zip(&result.routes).filter(|(link, _)| link.from != link.to) {
            let ((width, height), (x, y)) = (link.label, route.label);
            rects.push((x - width / 2.0, y - height / 2.0, x + width / 2.0, y + height / 2.0));
        }
        for (at, a) in rects.iter().enumerate() {
            assert!(a.0 > -1e-6 && a.1 > -1e-6 && a.2 < result.size.0 + 1e-6 && a.3 < result.size.1 + 1e-6, "{a:?}");
            for b in &rects[at + 1..] {
                let apart = a.2 <= b.0 + 1e-6 || b.2 <= a.0 + 1e-6 || a.3 <= b.1 + 1e-6 || b.3 <= a.1 + 1e-6;
                assert!(apart, "{a:?} and {b:?}");
            }
        }
        // A vertical stretch of a passing edge meets no box.
        for (link, route) in links.iter().zip(&result.routes) {
            for pair in route.points.windows(2).filter(|pair| (pair[0].0 - pair[1].0).abs() < 1e-9) {
                for (at, rect) in
                    rects[..boxes.len()].iter().enumerate().filter(|(at, _)| ![link.from, link.to].contains(at))
                {
                    let (top, bottom) = (pair[0].1.min(pair[1].1), pair[0].1.max(pair[1].1));
                    let inside = pair[0].0 > rect.0 && pair[0].0 < rect.2 && bottom > rect.1 && top < rect.3;
                    assert!(!inside, "an edge runs through box {at}");
                }
            }
        }
    }

    #[test]
    fn callers_stand_above_and_a_cycle_has_one_edge_up() {
        let result = layout(&[(40.0, 20.0); 3], &links(&[(0, 1), (1, 2), (2, 0), (1, 1)]));
        let y = |at: usize| result.boxes[at].1;
        assert!(y(0) < y(1) && y(1) < y(2));
        let ends =
            |edge: usize| (result.routes[edge].points[0].1, result.routes[edge].points.last().expect("a point").1);
        assert!(ends(0).0 < ends(0).1 && ends(2).0 > ends(2).1);
    }

    #[test]
    fn nothing_overlaps_in_made_up_graphs() {
        for seed in 1..30_u64 {
            let count = 3 + (seed as usize * 7) % 60;
            let boxes: Vec<Size> =
                numbers(count, seed).map(|n| (20.0 + (n % 180) as f64, 12.0 + (n / 200 % 60) as f64)).collect();
            let ends: Vec<(usize, usize)> =
                numbers(count * 2, seed * 31).map(|n| (n % count, n / count % count)).collect();
            let mut ends: Vec<_> = ends.into_iter().filter(|(from, to)| from != to || *from % 5 == 0).collect();
            ends.sort_unstable();
            ends.dedup();
            assert_nothing_overlaps(&boxes, &links(&ends));
        }
    }

    #[test]
    fn parts_are_packed_and_nothing_is_nothing() {
        assert_nothing_overlaps(&[(50.0, 20.0); 40], &[]);
        assert_eq!(layout(&[], &[]).size, (0.0, 0.0));
    }

    #[test]
    fn thousands_of_boxes_are_laid_out() {
        let count = 3_000;
        let ends: Vec<(usize, usize)> = (1..count)
            .zip(numbers(count, 5))
            .flat_map(|(at, n)| [((at - 1) / 3, at), (at - 1 - n % at.min(40), at)])
            .collect();
        let links: Vec<Link> =
            ends.iter().map(|&(from, to)| Link { from, to, weight: 1.0, label: (0.0, 0.0) }).collect();
        let result = layout(&vec![(80.0, 30.0); count], &links);
        assert!(result.boxes.iter().all(|(x, y)| x.is_finite() && y.is_finite()));
    }
}
