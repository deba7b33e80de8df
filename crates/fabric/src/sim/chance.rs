//! Chance from a seed: SplitMix64 (Steele, Lea, Flood 2014), which is enough to decide what happens next.

/// Random numbers: the same ones for the same seed, whatever the release of any crate.
#[derive(Clone, Debug)]
pub struct Chance(u64);

impl Chance {
    /// From a seed.
    pub fn new(seed: u64) -> Self {
        // Neighbouring seeds must not begin alike.
        let mut chance = Self(seed ^ 0x10C0_5000_5EED_0001);
        chance.0 = chance.number();
        chance
    }

    /// The next number.
    pub fn number(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }

    /// A number up to and including `most`.
    pub fn up_to(&mut self, most: u64) -> u64 {
        match most.checked_add(1) {
            Some(1) => 0,
            Some(bound) => self.number() % bound,
            None => self.number(),
        }
    }

    /// Whether something of this probability happens.
    pub fn happens(&mut self, probability: f64) -> bool {
        probability > 0.0 && (self.number() >> 11) as f64 / ((1u64 << 53) as f64) < probability
    }
}
