//! Sets of slots: the bits that operations have while they are under way.

/// A set of slots.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct Slots<const W: usize>(pub [u64; W]);

impl<const W: usize> Slots<W> {
    pub const NONE: Self = Self([0; W]);

    pub fn contains(&self, slot: u32) -> bool {
        self.0[slot as usize / 64] >> (slot % 64) & 1 == 1
    }

    pub fn insert(&mut self, slot: u32) {
        self.0[slot as usize / 64] |= 1 << (slot % 64);
    }

    pub fn remove(&mut self, slot: u32) {
        self.0[slot as usize / 64] &= !(1 << (slot % 64));
    }

    pub fn with(&self, other: &Self) -> Self {
        Self(std::array::from_fn(|word| self.0[word] | other.0[word]))
    }

    pub fn without(&self, other: &Self) -> Self {
        Self(std::array::from_fn(|word| self.0[word] & !other.0[word]))
    }

    pub fn count(&self) -> u32 {
        self.0.iter().map(|word| word.count_ones()).sum()
    }

    pub fn is_within(&self, other: &Self) -> bool {
        self.without(other) == Self::NONE
    }

    pub fn both(&self, other: &Self) -> Self {
        Self(std::array::from_fn(|word| self.0[word] & other.0[word]))
    }

    pub fn iter(self) -> impl Iterator<Item = u32> {
        (0..).zip(self.0).flat_map(|(word, bits)| {
            let next = |bits: &u64| Some(bits & bits.wrapping_sub(1)).filter(|&bits| bits != 0);
            std::iter::successors(Some(bits).filter(|&bits| bits != 0), next)
                .map(move |bits| word * 64 + bits.trailing_zeros())
        })
    }

    pub fn differing(&self, other: &Self) -> Self {
        Self(std::array::from_fn(|word| self.0[word] ^ other.0[word]))
    }
}
