//! When to sample: distances in allocated bytes, drawn from an exponential distribution. Pure: no clock, no state but
//! the generator's word, the same sequence for the same seed.
//!
//! `R = 2^lg` is the mean distance in bytes. A distance `d = ceil(-R ln u)`, `u` uniform in (0, 1], satisfies
//! `P(d <= s) = 1 - exp(-s/R)` for every whole `s`: exactly the chance that `jeprobe_abi::unbias::probability` gives an
//! allocation of `s` usable bytes, when the allocation that brings the bytes since the last draw to `d` or more is the
//! sample. The distribution has no memory, so drawing anew after each sample, after a change of `R`, or on a whim
//! changes no probability.
#![forbid(unsafe_code)]

use core::cell::Cell;

use jeprobe_abi::unbias;

/// Longest distance, bytes: leaves room to add it to any byte counter. Reached only with `lg` above 56.
const MAX_DISTANCE: u64 = 1 << 62;
/// Draws are whole multiples of 2^-60; so the mean distance is at most 2^60 bytes, whatever `lg` says.
const LG_UNIT: u32 = 60;
const UNIT: f64 = (1_u64 << LG_UNIT) as f64;

/// Generator of one thread.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sampler {
    state: u64,
}

impl Sampler {
    pub(crate) const fn seeded(seed: u64) -> Sampler {
        // Seeds may differ in few bits: these must not show in the first draws.
        let mut z = seed.wrapping_add(0x9e37_79b9_7f4a_7c15);
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        Sampler { state: z ^ (z >> 31) }
    }

    /// Wang Yi's `wyrand`: a counter, and the halves of one product of it. Every seed gives a full-period sequence.
    #[inline(always)]
    fn next(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0xa076_1d64_78bd_642f);
        let product = u128::from(self.state) * u128::from(self.state ^ 0xe703_7ed1_a0b4_28db);
        (product >> 64) as u64 ^ product as u64
    }

    /// A draw from the exponential distribution of mean 1, in units of 2^-60, by Marsaglia and Tsang's ziggurat ("The
    /// Ziggurat Method for Generating Random Variables", 2000): a point chosen evenly below the curve, in one of [`LAYERS`]
    /// layers of equal area. Most lie where the layer is all below the curve; no logarithm then. The six bits that choose
    /// the layer are the lowest of the fraction as well, of whose rounding they are a part.
    #[inline(always)]
    fn exponential(&mut self) -> u64 {
        let random = self.next();
        let layer = random as usize % LAYERS;
        let Layer { width, inner } = FIXED[layer];
        if random < inner {
            ((u128::from(random) * u128::from(width)) >> 64) as u64
        } else {
            self.beyond(layer, fraction(random) * EDGES[layer][0])
        }
    }

    /// What is left of a draw at `x` of a layer, beyond the part that is all below the curve.
    #[cold]
    #[inline(never)]
    fn beyond(&mut self, mut layer: usize, mut x: f64) -> u64 {
        // A float outside the integer's range is cut to its end.
        let fixed = |x: f64| (x * UNIT) as u64;
        loop {
            if layer == 0 {
                // The tail looks like the whole.
                return fixed(TAIL + minus_log(self.next()));
            }
            if is_below(layer, x, fraction(self.next())) {
                return fixed(x);
            }
            let random = self.next();
            layer = random as usize % LAYERS;
            x = fraction(random) * EDGES[layer][0];
            if x < EDGES[layer][1] {
                return fixed(x);
            }
        }
    }

    /// Bytes until the next sample point, at least 1; always 1 for `lg == 0`.
    #[inline]
    pub(crate) fn distance(&mut self, lg: u32) -> u64 {
        if lg == 0 {
            return 1;
        }
        // One more than the whole bytes below it: the same as rounding up, but for whole draws, which are none.
        (self.exponential() >> (LG_UNIT - lg.min(LG_UNIT))).min(MAX_DISTANCE - 1) + 1
    }
}

/// True for a point below the curve, `y < exp(-x)`, which lies at `x` of a layer and `share` of the layer's height up. The curve
/// lies below its chord and above its tangents, which decides for most points without an exponential.
#[inline(always)]
fn is_below(layer: usize, x: f64, share: f64) -> bool {
    let ([edge, inner], [below, height]) = (EDGES[layer], HEIGHTS[layer]);
    if share * (edge - inner) > edge - x {
        return false;
    }
    let y = below + share * height;
    y < below * (1.0 + (edge - x)) || y < (below + height) * (1.0 - (x - inner)) || y < density(x)
}

/// In 0..1, by 53 bits; the low bits of `random`, which choose the layer, are not among them.
fn fraction(random: u64) -> f64 {
    (random >> 11).cast_signed() as f64 * (1.0 / (1_u64 << 53) as f64)
}

/// `exp(-x)`.
fn density(x: f64) -> f64 {
    libm::exp(-x)
}

/// Layers of the ziggurat.
const LAYERS: usize = 64;
/// Where the lowest layer's tail begins, and the density there: such that the layers, each as large as the rectangle
/// below it and the tail together, end at the top of the curve.
const TAIL: f64 = 6.078_821_246_856_76;
const TAIL_DENSITY: f64 = 0.002_290_875_438_632_671;

/// Of each layer, from the lowest: its width, and how far it is all below the curve, which is the width of the next.
/// The lowest is a rectangle as large as the rectangle and the tail. 1 KiB.
static EDGES: [[f64; 2]; LAYERS] = TABLES.0;

/// Of each layer but the lowest: the density where it ends, and what it rises above that. 1 KiB.
static HEIGHTS: [[f64; 2]; LAYERS] = TABLES.1;

/// Of a layer.
const AREA: f64 = (TAIL + 1.0) * TAIL_DENSITY;

/// [`EDGES`] and [`HEIGHTS`].
const TABLES: ([[f64; 2]; LAYERS], [[f64; 2]; LAYERS]) = {
    let (mut edges, mut heights) = ([[0.0; 2]; LAYERS], [[0.0; 2]; LAYERS]);
    edges[0] = [AREA / TAIL_DENSITY, TAIL];
    let (mut width, mut below, mut layer) = (TAIL, TAIL_DENSITY, 1);
    while layer < LAYERS {
        let height = AREA / width;
        heights[layer] = [below, height];
        below += height;
        let inner = if layer == LAYERS - 1 { 0.0 } else { minus_log_of(below * (1_u64 << 53) as f64, &MIDDLES) };
        edges[layer] = [width, inner];
        width = inner;
        layer += 1;
    }
    (edges, heights)
};

/// A layer as whole numbers.
#[derive(Clone, Copy)]
struct Layer {
    /// In units of 2^-60.
    width: u64,
    /// How far it is all below the curve, in units of 2^-64 of its width.
    inner: u64,
}

/// shape [Layer; 64]: [`EDGES`] as whole numbers. 1 KiB.
static FIXED: [Layer; LAYERS] = {
    let mut fixed = [Layer { width: 0, inner: 0 }; LAYERS];
    let mut i = 0;
    while i < LAYERS {
        let [width, inner] = TABLES.0[i];
        fixed[i] = Layer { width: (width * UNIT) as u64, inner: (inner / width * 18_446_744_073_709_551_616.0) as u64 };
        i += 1;
    }
    fixed
};

/// Log2 of the steps that an octave is cut into.
const LG_STEPS: u32 = 6;
const STEPS: usize = 1 << LG_STEPS;
/// Of the middle of each step of 1..2: its inverse and its logarithm. 1 KiB.
const MIDDLES: [(f64, f64); STEPS] = middles();

const fn middles() -> [(f64, f64); STEPS] {
    let mut table = [(0.0, 0.0); STEPS];
    let mut i = 0;
    while i < STEPS {
        let middle = 1.0 + (i as f64 + 0.5) / STEPS as f64;
        // ln x = 2 atanh z with z = (x - 1) / (x + 1), at most 1/3: twenty terms reach past the last bit.
        let z = (middle - 1.0) / (middle + 1.0);
        let (mut sum, mut power, mut term) = (0.0, z, 0);
        while term < 20 {
            sum += power / (2 * term + 1) as f64;
            power *= z * z;
            term += 1;
        }
        table[i] = (1.0 / middle, 2.0 * sum);
        i += 1;
    }
    table
}

/// `-ln u` for the `u` in (0, 1] that 53 bits of `random` make; off by less than 1e-14, which a distance shows only above
/// `lg` 46.
fn minus_log(random: u64) -> f64 {
    static TABLE: [(f64, f64); STEPS] = MIDDLES;
    // From 0..2^53 to 1..=2^53, so that the logarithm is finite.
    minus_log_of(((random >> 11) + 1) as f64, &TABLE)
}

/// `-ln(scaled / 2^53)`.
const fn minus_log_of(scaled: f64, middles: &[(f64, f64); STEPS]) -> f64 {
    // scaled = 2^exponent * m, m in 1..2; the float's fields are both.
    let bits = scaled.to_bits();
    let exponent = (bits >> 52) as i32 - 1023;
    let m = f64::from_bits(bits & ((1 << 52) - 1) | 1023 << 52);
    let (inverse, log) = middles[(bits >> (52 - LG_STEPS)) as usize % STEPS];
    // m = middle (1 + r), |r| <= 2^-7: the series to r^6, in pairs that do not wait for each other.
    let r = m * inverse - 1.0;
    let r2 = r * r;
    let pairs = (1.0 - r * (1.0 / 2.0)) + r2 * (1.0 / 3.0 - r * (1.0 / 4.0)) + r2 * r2 * (1.0 / 5.0 - r * (1.0 / 6.0));
    let series = r * pairs;
    (53 - exponent) as f64 * core::f64::consts::LN_2 - (log + series)
}

/// Slots of [`Weights`].
const WEIGHTS: usize = 64;
/// Times a size, whose upper bits choose the slot: no two size classes of small blocks meet.
const WEIGHTS_SPREAD: u64 = 0xf03e_dca7_e2dc_aa37;

/// Weights computed last, by size: a program samples few sizes again and again. Of one thread, and of one `lg`.
pub(crate) struct Weights {
    lg: Cell<u32>,
    known: [Cell<Weight>; WEIGHTS],
}

#[derive(Clone, Copy)]
struct Weight {
    /// 0 = none.
    usable: u64,
    weight: Weighed,
}

impl Weight {
    const NONE: Weight = Weight { usable: 0, weight: Weighed { bytes: 0, objects8: 0 } };
}

/// What a sample stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Weighed {
    /// Bytes, estimated, unbiased.
    pub(crate) bytes: u64,
    /// Objects times 8, estimated, unbiased.
    pub(crate) objects8: u64,
}

impl Weighed {
    /// What a sample of `usable` bytes stands for, given the bytes it stands for.
    pub(crate) fn of(usable: u64, bytes: u64) -> Weighed {
        Weighed { bytes, objects8: unbias::weight_objects8(usable, bytes) }
    }
}

impl Weights {
    #[expect(clippy::declare_interior_mutable_const, reason = "an initial value, copied into each thread's slot")]
    pub(crate) const NONE: Weights = Weights { lg: Cell::new(0), known: [const { Cell::new(Weight::NONE) }; WEIGHTS] };

    #[inline(always)]
    fn slot(&self, usable: u64) -> &Cell<Weight> {
        &self.known[Weights::place(usable)]
    }

    #[inline(always)]
    fn place(usable: u64) -> usize {
        (usable.wrapping_mul(WEIGHTS_SPREAD) >> (64 - WEIGHTS.ilog2())) as usize % WEIGHTS
    }

    /// What a sample of `usable` bytes stands for whose distance was drawn with `lg`.
    #[inline(always)]
    pub(crate) fn weight(&self, usable: u64, lg: u32) -> Weighed {
        let known = self.slot(usable).get();
        if known.usable == usable && self.are_of(lg) { known.weight } else { self.compute(usable, lg) }
    }

    /// The same for the `lg` that the weights are of, if it was computed before.
    #[inline(always)]
    pub(crate) fn at_hand(&self, usable: u64) -> Option<Weighed> {
        let known = self.slot(usable).get();
        (known.usable == usable).then_some(known.weight)
    }

    /// True when what is remembered is of `lg`.
    pub(crate) fn are_of(&self, lg: u32) -> bool {
        self.lg.get() == lg
    }

    /// The same for a sample that was found to stand for `bytes`: by division only when that was long ago.
    #[inline(always)]
    pub(crate) fn known(&self, usable: u64, bytes: u64) -> Weighed {
        let known = self.slot(usable).get();
        if known.usable == usable && known.weight.bytes == bytes { known.weight } else { divide(usable, bytes) }
    }

    #[cold]
    #[inline(never)]
    fn compute(&self, usable: u64, lg: u32) -> Weighed {
        if !self.are_of(lg) {
            self.known.iter().for_each(|slot| slot.set(Weight::NONE));
            self.lg.set(lg);
        }
        let weight = if lg == 0 {
            // Every allocation is a sample.
            Weighed { bytes: usable, objects8: 8 }
        } else {
            Weighed::of(usable, unbias::weight_bytes(usable, unbias::interval_bytes(lg)))
        };
        self.slot(usable).set(Weight { usable, weight });
        weight
    }
}

#[cold]
#[inline(never)]
fn divide(usable: u64, bytes: u64) -> Weighed {
    Weighed::of(usable, bytes)
}

#[cfg(test)]
mod tests {
    use super::{
        EDGES, LAYERS, MAX_DISTANCE, STEPS, Sampler, TAIL, TAIL_DENSITY, UNIT, Weighed, Weights, density, minus_log,
    };
    use jeprobe_abi::unbias;
    use std::vec::Vec;

    const DRAWS: usize = 200_000;

    /// Mean of `n` exponential draws has the standard deviation `R / sqrt(n)`; rounding up adds a half.
    #[test]
    fn mean_and_variance_are_those_of_the_distribution() {
        for (seed, lg) in [(1, 9), (2, 12), (3, 19), (4, 30)] {
            let mut sampler = Sampler::seeded(seed);
            let mean_want = (1_u64 << lg) as f64 + 0.5;
            let draws: Vec<f64> = (0..DRAWS).map(|_| sampler.distance(lg) as f64).collect();
            let n = DRAWS as f64;
            let mean = draws.iter().sum::<f64>() / n;
            let sigma = mean_want / n.sqrt();
            assert!((mean - mean_want).abs() < 4.0 * sigma, "lg {lg}: {mean} against {mean_want} +- {sigma}");
            // The variance R^2 is estimated with relative deviation sqrt((kurtosis - 1) / n) = sqrt(8 / n).
            let variance = draws.iter().map(|d| (d - mean) * (d - mean)).sum::<f64>() / n;
            let relative = variance / (mean_want * mean_want) - 1.0;
            assert!(relative.abs() < 4.0 * (8.0 / n).sqrt() + 1.0 / mean_want, "lg {lg}: {relative}");
        }
    }

    /// The share of objects of `s` bytes that are sampled is p(s), with binomial deviation.
    #[test]
    fn the_chance_of_each_size_is_the_one_that_weights_assume() {
        let lg = 12;
        for size in [16_u64, 512, 4096, 20_000] {
            let mut sampler = Sampler::seeded(size);
            let (mut since, mut distance, mut hits) = (0, sampler.distance(lg), 0_u64);
            for _ in 0..DRAWS {
                since += size;
                if since >= distance {
                    hits += 1;
                    since = 0;
                    distance = sampler.distance(lg);
                }
            }
            let p = jeprobe_abi::unbias::probability(size, 1 << lg);
            let n = DRAWS as f64;
            let sigma = (p * (1.0 - p) / n).sqrt();
            let share = hits as f64 / n;
            assert!((share - p).abs() < 4.0 * sigma, "size {size}: {share} against {p} +- {sigma}");
        }
    }

    #[test]
    fn the_logarithm_is_that_of_the_library() {
        let mut sampler = Sampler::seeded(3);
        let ends = [0, u64::MAX, u64::MAX - (1 << 11), 1 << 63, (1 << 63) - 1, 1 << 11];
        let steps = (0..=2 * STEPS as u64).map(|i| i << (63 - 6));
        for random in ends.into_iter().chain(steps).chain((0..DRAWS).map(|_| sampler.next())) {
            let u = ((random >> 11) + 1) as f64 / 9_007_199_254_740_992.0;
            let want = -libm::log(u);
            let got = minus_log(random);
            assert!((got - want).abs() < 1e-14, "{random:#x}: {got} against {want}");
        }
    }

    /// Layers of one area, the last of which ends at the top of the curve.
    #[test]
    fn the_layers_fill_the_area_below_the_curve() {
        assert!((density(TAIL) / TAIL_DENSITY - 1.0).abs() < 1e-14);
        let area = (TAIL + 1.0) * TAIL_DENSITY;
        for (layer, [width, inner]) in EDGES.into_iter().enumerate().skip(1) {
            let height = density(inner) - density(width);
            assert!((width * height / area - 1.0).abs() < 1e-11, "layer {layer}");
        }
        assert!(EDGES.windows(2).all(|pair| pair[0][1].to_bits() == pair[1][0].to_bits()));
        assert_eq!(EDGES[LAYERS - 1][1].to_bits(), 0);
    }

    /// Counts of draws between the quantiles of the distribution, even far out, against the chance of each.
    #[test]
    fn draws_are_exponential_in_every_part_of_the_range() {
        let mut sampler = Sampler::seeded(11);
        let draws = 20 * DRAWS;
        let mut counts = [0_u64; 40];
        let ends: Vec<f64> = (0..=40).map(|i| f64::from(i) * 0.3).collect();
        for _ in 0..draws {
            let at = (sampler.exponential() as f64 / UNIT / 0.3) as usize;
            if let Some(count) = counts.get_mut(at) {
                *count += 1;
            }
        }
        for (pair, count) in ends.windows(2).zip(counts) {
            let p = density(pair[0]) - density(pair[1]);
            let (want, sigma) = (draws as f64 * p, (draws as f64 * p * (1.0 - p)).sqrt());
            assert!((count as f64 - want).abs() < 4.5 * sigma + 1.0, "{pair:?}: {count} against {want} +- {sigma}");
        }
    }

    #[test]
    fn weights_are_those_computed_anew() {
        let weights = Weights::NONE;
        for round in 0..3 {
            for lg in [0, 1, 12, 19, 63] {
                for usable in [8_u64, 16, 48, 4096, 1 << 20, (1 << 40) + round] {
                    let bytes = unbias::weight_bytes(usable, unbias::interval_bytes(lg));
                    let want = Weighed { bytes, objects8: unbias::weight_objects8(usable, bytes) };
                    assert_eq!(weights.weight(usable, lg), want);
                    assert!(weights.are_of(lg) && weights.at_hand(usable) == Some(want));
                    assert_eq!(weights.known(usable, bytes), want);
                    let other = Weighed { bytes: bytes + 8, objects8: unbias::weight_objects8(usable, bytes + 8) };
                    assert_eq!(weights.known(usable, bytes + 8), other);
                }
            }
        }
    }

    #[test]
    fn small_classes_have_slots_of_their_own() {
        let sizes = &crate::sizeclass::SIZES[..crate::sizeclass::NBINS];
        let slots: std::collections::BTreeSet<_> = sizes.iter().map(|size| Weights::place(*size as u64)).collect();
        assert_eq!(slots.len(), sizes.len());
    }

    #[test]
    fn ends_of_the_range() {
        let mut sampler = Sampler::seeded(7);
        assert!((0..100).all(|_| sampler.distance(0) == 1));
        assert!((0..1000).all(|_| (1..=MAX_DISTANCE).contains(&sampler.distance(63))));
        assert!((0..1000).all(|_| (1..=MAX_DISTANCE).contains(&sampler.distance(u32::MAX))));
    }

    #[test]
    fn a_seed_repeats_and_seeds_differ() {
        let draw =
            |seed| (0..8).map(|_| 0).scan(Sampler::seeded(seed), |s, _| Some(s.distance(20))).collect::<Vec<_>>();
        assert_eq!(draw(5), draw(5));
        assert_ne!(draw(5), draw(6));
    }
}
