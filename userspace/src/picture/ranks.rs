//! The sums behind the layout of layers: which edges close a cycle, which layer a node is in, which places are nearest to
//! those wanted. Pure functions of small numbers.
#![forbid(unsafe_code)]

/// Which edges lead back to a node that is still open in a walk from the roots.
pub(super) fn back_edges(nodes: usize, ends: &[(usize, usize)]) -> Vec<bool> {
    let mut out: Vec<Vec<usize>> = vec![Vec::new(); nodes];
    let mut has_caller = vec![false; nodes];
    for (edge, &(from, to)) in ends.iter().enumerate().filter(|(_, (from, to))| from != to) {
        out[from].push(edge);
        has_caller[to] = true;
    }
    let mut back = vec![false; ends.len()];
    // 0 unseen, 1 open, 2 done.
    let mut state = vec![0_u8; nodes];
    let roots = (0..nodes).filter(|&node| !has_caller[node]).chain(0..nodes);
    for root in roots {
        if state[root] != 0 {
            continue;
        }
        state[root] = 1;
        let mut open = vec![(root, 0)];
        while let Some((node, next)) = open.last_mut() {
            let Some(&edge) = out[*node].get(*next) else {
                state[*node] = 2;
                open.pop();
                continue;
            };
            *next += 1;
            let to = ends[edge].1;
            match state[to] {
                0 => {
                    state[to] = 1;
                    open.push((to, 0));
                }
                1 => back[edge] = true,
                _ => {}
            }
        }
    }
    back
}

/// Layers of the nodes of a graph without cycles; every edge leads at least one layer down.
pub(super) fn ranks(nodes: usize, edges: &[(usize, usize, f64)]) -> Vec<usize> {
    let mut out: Vec<Vec<(usize, f64)>> = vec![Vec::new(); nodes];
    let mut into: Vec<Vec<(usize, f64)>> = vec![Vec::new(); nodes];
    for &(from, to, weight) in edges {
        out[from].push((to, weight));
        into[to].push((from, weight));
    }
    let mut waiting: Vec<usize> = into.iter().map(Vec::len).collect();
    let mut order: Vec<usize> = (0..nodes).filter(|&node| waiting[node] == 0).collect();
    let mut rank = vec![0_usize; nodes];
    let mut at = 0;
    while at < order.len() {
        let node = order[at];
        at += 1;
        for &(to, _) in &out[node] {
            rank[to] = rank[to].max(rank[node] + 1);
            waiting[to] -= 1;
            if waiting[to] == 0 {
                order.push(to);
            }
        }
    }
    // Nodes slide between their neighbours to where the heavier side is near.
    for pass in 0..8 {
        let mut step = |node: usize| {
            let lowest = into[node].iter().map(|&(other, _)| rank[other] + 1).max();
            let highest = out[node].iter().map(|&(other, _)| rank[other].saturating_sub(1)).min();
            let pull = |side: &[(usize, f64)]| side.iter().map(|(_, weight)| weight).sum::<f64>();
            rank[node] = match (lowest, highest) {
                (Some(low), Some(high)) if pull(&into[node]) >= pull(&out[node]) => low.min(high),
                (_, Some(high)) => high,
                (Some(low), None) => low,
                (None, None) => 0,
            };
        };
        for at in 0..order.len() {
            step(order[if pass % 2 == 0 { order.len() - 1 - at } else { at }]);
        }
    }
    let least = rank.iter().min().copied().unwrap_or(0);
    rank.iter().map(|rank| rank - least).collect()
}

/// Makes several layers of each that has more than `most` nodes, those without edges downwards first, so that few edges pass.
pub(super) fn fold(ranks: &mut [usize], edges: &[(usize, usize, f64)], most: usize) {
    let mut leads_down = vec![false; ranks.len()];
    for &(from, ..) in edges {
        leads_down[from] = true;
    }
    let mut layers: Vec<Vec<usize>> = vec![Vec::new(); ranks.iter().max().map_or(0, |rank| rank + 1)];
    for (node, &rank) in ranks.iter().enumerate() {
        layers[rank].push(node);
    }
    let mut first = 0;
    for mut nodes in layers {
        nodes.sort_by_key(|&node| leads_down[node]);
        let pieces = nodes.len().div_ceil(most).max(1);
        let size = nodes.len().div_ceil(pieces).max(1);
        for (at, node) in nodes.into_iter().enumerate() {
            ranks[node] = first + at / size;
        }
        first += pieces;
    }
}

/// Numbers nearest to those wanted, by weighted squares, that are at least `distances` apart.
pub(super) fn nearest(wanted: &[(f64, f64)], distances: &[f64]) -> Vec<f64> {
    // Shifted by the distances before it, a number must only not be less than the one before: pool what is.
    let mut shift = 0.0;
    let mut shifts = Vec::with_capacity(wanted.len());
    let mut pools: Vec<(f64, f64, usize)> = Vec::new();
    for (at, &(x, weight)) in wanted.iter().enumerate() {
        if at > 0 {
            shift += distances[at - 1];
        }
        shifts.push(shift);
        let mut pool = ((x - shift) * weight, weight, 1);
        while let Some(&(sum, of, count)) = pools.last()
            && sum / of >= pool.0 / pool.1
        {
            pool = (pool.0 + sum, pool.1 + of, pool.2 + count);
            pools.pop();
        }
        pools.push(pool);
    }
    let values = pools.iter().flat_map(|&(sum, weight, count)| std::iter::repeat_n(sum / weight, count));
    values.zip(shifts).map(|(value, shift)| value + shift).collect()
}

#[cfg(test)]
mod tests {
    use super::{back_edges, fold, nearest, ranks};

    #[test]
    fn one_edge_of_each_cycle_is_turned() {
        assert_eq!(back_edges(3, &[(0, 1), (1, 2), (2, 0)]), [false, false, true]);
        assert_eq!(back_edges(2, &[(0, 1), (1, 0), (1, 1)]), [false, true, false]);
    }

    #[test]
    fn nodes_are_near_their_callees_and_edges_lead_down() {
        assert_eq!(ranks(4, &[(0, 1, 1.0), (1, 2, 1.0), (3, 2, 1.0)]), [0, 1, 2, 1]);
        assert!(ranks(0, &[]).is_empty());
    }

    #[test]
    fn wide_layers_are_folded_and_edges_still_lead_down() {
        let edges = [(0, 1, 1.0), (0, 2, 1.0), (0, 3, 1.0), (1, 4, 1.0)];
        let mut layers = ranks(5, &edges);
        fold(&mut layers, &edges, 2);
        assert_eq!(layers, [0, 2, 1, 1, 3]);
        assert!(edges.iter().all(|&(from, to, _)| layers[from] < layers[to]));
    }

    #[test]
    fn pooled_numbers_keep_their_distances() {
        assert_eq!(nearest(&[(0.0, 1.0), (10.0, 1.0)], &[5.0]), [0.0, 10.0]);
        assert_eq!(nearest(&[(0.0, 1.0), (0.0, 1.0)], &[4.0]), [-2.0, 2.0]);
        assert_eq!(nearest(&[(0.0, 3.0), (0.0, 1.0), (0.0, 1.0)], &[5.0, 5.0]), [-3.0, 2.0, 7.0]);
    }
}
