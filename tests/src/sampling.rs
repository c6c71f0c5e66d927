//! Truth against estimate.
//!
//! S is an object's usable size in bytes, R the mean number of bytes between samples, p = 1 − exp(−S/R) the chance
//! that the object is sampled. A profile estimates a site's count as (samples)/p and its bytes as S·(samples)/p, both
//! unbiased. Over a site of n objects of one size the number of samples is a sum of n draws, so
//!
//! ```text
//! variance of the estimated count = n (1 − p)/p        variance of the estimated bytes = S² n (1 − p)/p
//! ```
//!
//! Sample points are a Poisson process over a thread's allocated bytes, and an object is sampled when at least one point
//! falls into it: the draws of different objects are independent, within a thread and between threads.
//!
//! Judging k sites at once at three standard deviations each would fail by chance about once in 370/k runs. Therefore
//! a site's bound is widened by the Bonferroni factor: the deviation z whose two-sided normal tail is 0.0027/k, the
//! tail of three deviations divided by the number of sites; and all sites together must pass a chi-square bound and
//! a bound on their sum at three deviations. Sites with fewer than [`FEW`] expected samples are far from normal and are
//! judged by their sum only. A suite has dozens of such judgements, so [`twice`] rejects only what two independent
//! profiles reject: a false alarm falls from 0.3 % to 0.001 % per judgement, and a biased estimator still fails.
//!
//! Written numbers are rounded: the file holds whole objects and bytes that the reader scales back, which moves an
//! estimate by up to half a sample (S/p bytes) for each stack of the site. That is the slack of [`Site::slack_bytes`].

/// Expected samples below which a site alone is not judged by the normal bound.
pub const FEW: f64 = 10.0;

/// Two-sided tail of three standard deviations.
const TAIL: f64 = 0.0027;

/// One site: what is true and what a profile says.
#[derive(Clone, Debug)]
pub struct Site {
    pub name: String,
    pub object_bytes: f64,
    pub count: f64,
    pub estimated_count: f64,
    pub estimated_bytes: f64,
}

impl Site {
    fn probability(&self, interval: f64) -> f64 {
        -(-self.object_bytes / interval).exp_m1()
    }

    /// Expected number of samples.
    pub fn expected_samples(&self, interval: f64) -> f64 {
        self.count * self.probability(interval)
    }

    /// Standard deviation of the estimated bytes.
    pub fn deviation_bytes(&self, interval: f64) -> f64 {
        let p = self.probability(interval);
        self.object_bytes * (self.count * (1.0 - p) / p).sqrt()
    }

    /// What rounding in the file may add: half a sample for each of a site's stacks, of which there are at most two;
    /// nothing when every object is sampled, except the last digit.
    fn slack_bytes(&self, interval: f64) -> f64 {
        let p = self.probability(interval);
        self.object_bytes * (1.0 - p) / p + self.object_bytes * self.count * 1e-4 + 1.0
    }

    fn error_bytes(&self) -> f64 {
        self.estimated_bytes - self.object_bytes * self.count
    }
}

/// The deviation z with a two-sided normal tail of `TAIL / sites`.
pub fn bonferroni_deviations(sites: usize) -> f64 {
    let tail = TAIL / sites.max(1) as f64;
    let (mut low, mut high) = (0.0_f64, 10.0_f64);
    for _ in 0..80 {
        let middle = f64::midpoint(low, high);
        if two_sided_tail(middle) > tail { low = middle } else { high = middle }
    }
    high
}

/// Panics unless every site, their sum, and their chi-square agree with truth; `interval` is R.
pub fn check(sites: &[Site], interval: f64, what: &str) {
    if let Err(reason) = judge(sites, interval, what) {
        panic!("{reason}");
    }
}

/// As [`check`], with the reason as a value.
pub fn judge(sites: &[Site], interval: f64, what: &str) -> Result<(), String> {
    let mut wrong = Vec::new();
    let judged: Vec<&Site> = sites.iter().filter(|site| site.expected_samples(interval) >= FEW).collect();
    let bound = bonferroni_deviations(judged.len());
    let mut chi_square = 0.0;
    let mut degrees = 0.0;
    for site in &judged {
        let deviation = site.deviation_bytes(interval);
        let slack = site.slack_bytes(interval);
        let error = site.error_bytes();
        if error.abs() > bound * deviation + slack {
            wrong.push(format!("{}: off by {error:.0} bytes, allowed {:.0}", site.name, bound * deviation + slack));
        }
        if deviation > slack {
            chi_square += (error / deviation).powi(2);
            degrees += 1.0;
        }
    }
    // Wilson and Hilferty: the cube root of chi-square over its degrees is near normal.
    if degrees > 0.0 {
        let width = 2.0 / (9.0 * degrees);
        let z = ((chi_square / degrees).cbrt() - (1.0 - width)) / width.sqrt();
        if z > 3.0 {
            wrong.push(format!("chi-square {chi_square:.1} over {degrees} sites is {z:.1} deviations too large"));
        }
    }
    let total: f64 = sites.iter().map(Site::error_bytes).sum();
    let variance: f64 = sites.iter().map(|site| site.deviation_bytes(interval).powi(2)).sum();
    let slack: f64 = sites.iter().map(|site| site.slack_bytes(interval)).sum();
    if total.abs() > 3.0 * variance.sqrt() + slack {
        wrong.push(format!("the sum is off by {total:.0} bytes, allowed {:.0}", 3.0 * variance.sqrt() + slack));
    }
    let table = sites.iter().fold(String::new(), |text, site| {
        text + &format!(
            "  {:<12} true {:>10.0} × {:>9.0} B, estimated {:>13.1} objects {:>16.0} B, deviation {:>12.0} B\n",
            site.name,
            site.count,
            site.object_bytes,
            site.estimated_count,
            site.estimated_bytes,
            site.deviation_bytes(interval)
        )
    });
    if wrong.is_empty() {
        return Ok(());
    }
    Err(format!("{what} at R = {interval}: {}\n{table}", wrong.join("; ")))
}

/// Runs an experiment that judges a fresh profile; a rejection must repeat itself to count.
pub fn twice(experiment: impl Fn() -> Result<(), String>) {
    if let Err(first) = experiment()
        && let Err(second) = experiment()
    {
        panic!("rejected twice\nfirst: {first}\nsecond: {second}");
    }
}

/// Tail of |N(0,1)| beyond `z`, by the continued fraction of the complementary error function.
fn two_sided_tail(z: f64) -> f64 {
    if z < 1.0 {
        return 1.0;
    }
    let mut fraction = 0.0;
    for k in (1..60).rev() {
        fraction = f64::from(k) / (z + fraction);
    }
    2.0 * (-z * z / 2.0).exp() / ((2.0 * std::f64::consts::PI).sqrt() * (z + fraction))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn site(object_bytes: f64, count: f64, estimated_count: f64) -> Site {
        let estimated_bytes = estimated_count * object_bytes;
        Site { name: "site".to_owned(), object_bytes, count, estimated_count, estimated_bytes }
    }

    #[test]
    fn the_bound_of_one_site_is_three_deviations_and_grows_slowly() {
        assert!((bonferroni_deviations(1) - 3.0).abs() < 0.01);
        assert!((3.7..4.0).contains(&bonferroni_deviations(20)));
    }

    #[test]
    fn an_exact_estimate_passes() {
        check(&[site(64.0, 100_000.0, 100_000.0), site(1e6, 10.0, 10.0)], 65536.0, "exact");
    }

    #[test]
    #[should_panic(expected = "off by")]
    fn twice_the_truth_fails() {
        check(&[site(64.0, 1_000_000.0, 2_000_000.0)], 65536.0, "double");
    }

    #[test]
    #[should_panic(expected = "chi-square")]
    fn many_sites_each_just_inside_their_bound_fail_together() {
        let deviation = (1_000_000.0_f64 * 1023.5).sqrt();
        let sites: Vec<Site> =
            (0..10).map(|i| site(64.0, 1e6, 1e6 + if i % 2 == 0 { 3.3 } else { -3.3 } * deviation)).collect();
        check(&sites, 65536.0, "biased");
    }
}
