//! The operations of a run, drawn before it starts.
//!
//! Drawing a Zipf rank exactly costs about 50 ns (`rand_distr`, rejection-inversion; YCSB's own approximation costs 16 ns
//! and gives rank 3 a fifth too much), a quarter of a one-sided get. So each client's operations are drawn beforehand,
//! 4 bytes each, and the measured loop reads them in order, again from the beginning when it has used them up.

use crate::error::BenchError;
use crate::load::Kind;
use crate::workload::{Distribution, Workload, ZIPFIAN_THETA};
use rand::distr::{Distribution as _, Uniform};
use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};
use rand_distr::Zipf;

/// The most records that a run can have: record numbers take 30 bits of a trace's entry.
pub const RECORDS_MAX: u64 = 1 << 30;

/// Entries of a trace: enough that every record can occur, and at most 16 MiB.
fn entries(records: u64) -> usize {
    records.saturating_mul(16).clamp(1 << 16, 1 << 22) as usize
}

const NUMBER_BITS: u32 = 30;

/// One client's operations of one run.
#[derive(Debug)]
pub struct Trace {
    entries: Vec<u32>,
    distribution: Distribution,
}

impl Trace {
    /// Draws the operations of client `client` over records `0..records`. The same arguments give the same trace.
    pub fn draw(
        workload: Workload,
        distribution: Distribution,
        records: u64,
        seed: u64,
        client: usize,
    ) -> Result<Self, BenchError> {
        Self::draw_entries(workload, distribution, records, seed, client, entries(records))
    }

    /// The same, of so many entries.
    pub fn draw_entries(
        workload: Workload,
        distribution: Distribution,
        records: u64,
        seed: u64,
        client: usize,
        entries: usize,
    ) -> Result<Self, BenchError> {
        if records == 0 || records > RECORDS_MAX {
            return Err(BenchError::Options(format!(
                "{records} records: a benchmark takes 1 to {RECORDS_MAX} (--records)"
            )));
        }
        let mut random = SmallRng::seed_from_u64(seed ^ (client as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15));
        let ranks = Ranks::new(distribution, records)?;
        let kinds = KindThresholds::new(workload);
        let scatter = Scatter::new(records);
        let entries = (0..entries).map(|_| {
            let rank = ranks.draw(&mut random);
            let number = if distribution == Distribution::Zipfian { scatter.index(rank) } else { rank };
            number as u32 | (kinds.draw(&mut random) as u32) << NUMBER_BITS
        });
        Ok(Self { entries: entries.collect(), distribution })
    }

    /// The entry at `position`, and the position after it.
    #[inline]
    pub fn entry(&self, position: usize) -> (Kind, u64, usize) {
        let entry = self.entries[position];
        let following = if position + 1 == self.entries.len() { 0 } else { position + 1 };
        (Kind::from_bits(entry >> NUMBER_BITS), u64::from(entry & ((1 << NUMBER_BITS) - 1)), following)
    }

    /// Whether the numbers are ranks counted back from the newest record.
    #[inline]
    pub(crate) fn is_latest(&self) -> bool {
        self.distribution == Distribution::Latest
    }
}

/// Draws a number in `0..records`.
enum Ranks {
    Zipf(Zipf<f64>),
    Uniform(Uniform<u64>),
}

impl Ranks {
    fn new(distribution: Distribution, records: u64) -> Result<Self, BenchError> {
        let refused =
            |error: &dyn std::fmt::Display| BenchError::Options(format!("{records} records: {error}"));
        match distribution {
            Distribution::Uniform => Uniform::new(0, records).map(Ranks::Uniform).map_err(|e| refused(&e)),
            Distribution::Zipfian | Distribution::Latest => {
                Zipf::new(records as f64, ZIPFIAN_THETA).map(Ranks::Zipf).map_err(|e| refused(&e))
            }
        }
    }

    fn draw(&self, random: &mut SmallRng) -> u64 {
        match self {
            Ranks::Zipf(zipf) => zipf.sample(random) as u64 - 1,
            Ranks::Uniform(uniform) => uniform.sample(random),
        }
    }
}

/// A workload's mix as bounds of a number in `0..100`.
struct KindThresholds {
    put: u32,
    insert: u32,
    read_modify_write: u32,
}

impl KindThresholds {
    fn new(workload: Workload) -> Self {
        let mix = workload.mix();
        let put = mix.put_percent;
        let insert = put + mix.insert_percent;
        Self { put, insert, read_modify_write: insert + mix.read_modify_write_percent }
    }

    fn draw(&self, random: &mut SmallRng) -> Kind {
        match random.random_range(0..100_u32) {
            n if n < self.put => Kind::Put,
            n if n < self.insert => Kind::Insert,
            n if n < self.read_modify_write => Kind::ReadModifyWrite,
            _ => Kind::Get,
        }
    }
}

/// A one-to-one map of ranks to record numbers, so that the hot records lie anywhere. YCSB hashes ranks instead, which
/// leaves a third of the records unused and adds up the popularity of others.
struct Scatter {
    records: u64,
    factor: u64,
}

impl Scatter {
    fn new(records: u64) -> Self {
        // About the golden ratio of the records, so that neighbouring ranks end up far apart.
        let mut factor = ((records as f64 * 0.618_033_988_749_895) as u64).max(1);
        while greatest_common_divisor(factor, records) != 1 {
            factor += 1;
        }
        Self { records, factor }
    }

    fn index(&self, rank: u64) -> u64 {
        // Both are under 2^31, so the product fits.
        (rank * self.factor + self.records / 3) % self.records
    }
}

fn greatest_common_divisor(mut a: u64, mut b: u64) -> u64 {
    while b != 0 {
        (a, b) = (b, a % b);
    }
    a
}

#[cfg(test)]
mod tests {
    use super::*;

    fn numbers(workload: Workload, distribution: Distribution, records: u64) -> Vec<(Kind, u64)> {
        let trace = Trace::draw_entries(workload, distribution, records, 7, 0, 1 << 20).unwrap();
        let mut position = 0;
        let mut all = Vec::new();
        loop {
            let (kind, number, following) = trace.entry(position);
            all.push((kind, number));
            position = following;
            if position == 0 {
                return all;
            }
        }
    }

    fn share(all: &[(Kind, u64)], which: impl Fn(Kind, u64) -> bool) -> f64 {
        all.iter().filter(|(kind, number)| which(*kind, *number)).count() as f64 / all.len() as f64
    }

    fn zipf_share(rank: u64, records: u64) -> f64 {
        let zeta: f64 = (1..=records).map(|i| (i as f64).powf(-ZIPFIAN_THETA)).sum();
        (rank as f64).powf(-ZIPFIAN_THETA) / zeta
    }

    /// Within five standard deviations of a binomial share of 2^20 draws.
    fn assert_share(got: f64, expected: f64) {
        let deviation = (expected * (1.0 - expected) / f64::from(1 << 20)).sqrt();
        assert!((got - expected).abs() <= 5.0 * deviation, "{got} instead of {expected}");
    }

    #[test]
    fn zipfian_ranks_have_their_exact_shares_wherever_they_are_scattered() {
        let records = 1000;
        let scatter = Scatter::new(records);
        let all = numbers(Workload::C, Distribution::Zipfian, records);
        for rank in [1, 2, 3, 10, 100, 1000] {
            let index = scatter.index(rank - 1);
            assert_share(share(&all, |_, n| n == index), zipf_share(rank, records));
        }
    }

    #[test]
    fn latest_keeps_ranks_and_uniform_is_flat() {
        let all = numbers(Workload::C, Distribution::Latest, 1000);
        assert_share(share(&all, |_, n| n == 0), zipf_share(1, 1000));
        let all = numbers(Workload::C, Distribution::Uniform, 1000);
        assert!(all.iter().all(|(_, n)| *n < 1000));
        for index in [0, 500, 999] {
            assert_share(share(&all, |_, n| n == index), 0.001);
        }
    }

    #[test]
    fn mixes_are_those_of_ycsb() {
        for workload in Workload::ALL {
            let all = numbers(workload, Distribution::Uniform, 1000);
            let mix = workload.mix();
            assert_share(share(&all, |k, _| k == Kind::Put), f64::from(mix.put_percent) / 100.0);
            assert_share(share(&all, |k, _| k == Kind::Insert), f64::from(mix.insert_percent) / 100.0);
            let read_modify_write = f64::from(mix.read_modify_write_percent) / 100.0;
            assert_share(share(&all, |k, _| k == Kind::ReadModifyWrite), read_modify_write);
        }
    }

    #[test]
    fn updates_only_are_nothing_else() {
        let all = numbers(Workload::W, Workload::W.distribution(), 1000);
        assert!(all.iter().all(|(kind, _)| *kind == Kind::Put));
        assert!(numbers(Workload::C, Distribution::Uniform, 1000).iter().all(|(kind, _)| *kind == Kind::Get));
    }

    #[test]
    fn scattering_is_one_to_one_for_any_number_of_records() {
        for records in [1, 2, 3, 10, 997, 1000, 4096, 100_000] {
            let scatter = Scatter::new(records);
            let mut seen = vec![false; records as usize];
            for rank in 0..records {
                let index = scatter.index(rank) as usize;
                assert!(!seen[index], "{records} records: {index} twice");
                seen[index] = true;
            }
        }
    }

    #[test]
    fn the_same_seed_gives_the_same_trace_and_clients_differ() {
        let draw = |seed, client| {
            Trace::draw_entries(Workload::A, Distribution::Zipfian, 1000, seed, client, 1000).unwrap().entries
        };
        assert_eq!(draw(1, 0), draw(1, 0));
        assert_ne!(draw(1, 0), draw(1, 1));
        assert_ne!(draw(1, 0), draw(2, 0));
    }

    #[test]
    fn too_many_records_are_refused() {
        assert!(Trace::draw(Workload::C, Distribution::Uniform, 0, 1, 0).is_err());
        assert!(Trace::draw(Workload::C, Distribution::Uniform, RECORDS_MAX + 1, 1, 0).is_err());
    }
}
