//! What a profile's estimates rest on: samples, their variance, the intervals that they were taken at.
//!
//! Where all samples were taken at one interval, this follows from the stacks and is not kept. Where they were not, the
//! stacks no longer tell: sums of one stack mix them, and a file rounds counts to those of its one interval. Then it is
//! kept beside them, here and in files.
#![forbid(unsafe_code)]

use super::profile::Profile;
use crate::estimate::Basis;

/// As files name them.
const SIDES: [&str; 2] = ["live", "allocated"];

impl Profile {
    /// What the estimate of live bytes rests on, or of those ever allocated.
    pub fn basis(&self, is_cumulative: bool) -> Basis {
        self.bases[usize::from(is_cumulative)].unwrap_or_else(|| {
            let mut basis = Basis::new(self.interval());
            for (_, _, values) in self.totals() {
                basis.add_stack(if is_cumulative { values.cumulative } else { values.current });
            }
            basis
        })
    }

    /// Says what the stacks do not tell.
    pub fn set_basis(&mut self, is_cumulative: bool, basis: Basis) {
        self.bases[usize::from(is_cumulative)] = Some(basis);
    }

    /// What a file has to keep, a line for each side that has samples: `live BASIS`, `allocated BASIS`.
    pub fn kept_bases(&self) -> impl Iterator<Item = String> {
        lines(self.bases)
    }

    /// The same for a file whose stacks say that there are so many samples, on each side: also where that is not how many were taken.
    pub fn kept_bases_beside(&self, printed: [u64; 2]) -> impl Iterator<Item = String> {
        let bases = [0, 1].map(|side| {
            self.bases[side].or_else(|| Some(self.basis(side == 1)).filter(|basis| basis.samples != printed[side]))
        });
        lines(bases)
    }

    /// Takes over such a line; `None` when it is none.
    pub fn keep_basis(&mut self, line: &str) -> Option<()> {
        let (side, basis) = line.split_once(' ')?;
        let place = SIDES.iter().position(|known| *known == side)?;
        self.bases[place] = Some(Basis::parse(basis)?);
        Some(())
    }

    /// Of both profiles together, before their values are.
    pub(super) fn bases_with(&self, other: &Profile) -> [Option<Basis>; 2] {
        [false, true].map(|is_cumulative| {
            let place = usize::from(is_cumulative);
            let is_known = self.bases[place].is_some() || other.bases[place].is_some();
            let (mut sum, more) = (self.basis(is_cumulative), other.basis(is_cumulative));
            let differ = sum.samples > 0 && more.samples > 0 && self.interval() != other.interval();
            (is_known || differ).then(|| {
                sum += more;
                sum
            })
        })
    }
}

fn lines(bases: [Option<Basis>; 2]) -> impl Iterator<Item = String> {
    let line = |(side, basis): (&str, Option<Basis>)| Some(format!("{side} {}", basis.filter(|b| b.samples > 0)?));
    SIDES.into_iter().zip(bases).filter_map(line)
}

#[cfg(test)]
mod tests {
    use crate::estimate::Sampling;
    use crate::input::heap_v2::read;
    use crate::model::Profile;
    use crate::output::heap_v2::write;
    use crate::units::{Count, SampleInterval, Sums};

    fn profile(interval: u64, samples: u64) -> Profile {
        let interval = SampleInterval(interval);
        let mut profile = Profile::new(interval);
        let sums = Sampling::Poisson(interval).unbias(Count { objects: samples, bytes: samples * 16 });
        profile.add(&[1], None, sums, Sums::ZERO);
        profile
    }

    /// In percent.
    fn error(profile: &Profile) -> f64 {
        100.0 * profile.basis(false).variance.sqrt() / profile.sum().current.est.bytes
    }

    /// The numbers are worked out in `estimate`.
    #[test]
    fn a_merge_of_two_intervals_keeps_both_errors_also_in_its_file() {
        let mut merged = Profile::default();
        merged.merge(&profile(524_288, 49));
        assert!((error(&merged) - 14.3).abs() < 0.05, "{}", error(&merged));
        assert_eq!(merged.kept_bases().count(), 0, "one interval: the stacks tell");
        merged.merge(&profile(16384, 709));
        assert_eq!(merged.basis(false).samples, 758);
        assert!((error(&merged) - 9.9).abs() < 0.05, "{}", error(&merged));
        let mut file = Vec::new();
        write(&merged, &mut file).expect("memory");
        let mut again = read(&file).expect("sound");
        assert_eq!(again.basis(false), merged.basis(false));
        assert!(!again.notes().iter().any(|note| note.contains("not understood")), "{:?}", again.notes());
        // With itself: twice the variance, so the error of the total falls by √2 no more than that of independent parts.
        again.merge(&merged);
        assert_eq!(again.basis(false).samples, 2 * 758);
        assert!((error(&again) - 9.9 / f64::sqrt(2.0)).abs() < 0.05, "{}", error(&again));
    }

    /// What is printed of a stack of several sizes is what gives the estimate, which is another number of samples.
    #[test]
    fn a_file_tells_how_many_samples_were_taken() {
        let mut taken = profile(65_536, 7);
        for size in [200, 70_000, 800_000] {
            let sums = Sampling::Poisson(SampleInterval(65_536)).unbias(Count { objects: 20, bytes: 20 * size });
            taken.add(&[2], None, sums, Sums::ZERO);
        }
        let printed = Sampling::Poisson(SampleInterval(65_536));
        let printed: u64 = taken.totals().map(|(_, _, values)| printed.raw_of(values.current.est).objects).sum();
        assert!(taken.basis(false).samples == 67 && printed != 67, "{printed}: else nothing is shown here");
        let mut file = Vec::new();
        write(&taken, &mut file).expect("memory");
        let again = read(&file).expect("sound");
        assert_eq!(again.basis(false).samples, 67);
        assert!((error(&again) / error(&taken) - 1.0).abs() < 0.01, "{} {}", error(&again), error(&taken));
    }

    #[test]
    fn equal_intervals_need_no_line() {
        let mut merged = profile(1024, 5);
        merged.merge(&profile(1024, 4));
        assert_eq!(merged.kept_bases().count(), 0);
        assert_eq!(merged.basis(false).samples, 9);
    }
}
