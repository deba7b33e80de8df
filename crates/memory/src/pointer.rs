//! Places in the registered memory of a server, small enough for a row of a table.

/// A region of one server: 0 to 1,023, unique while the server lives.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct RegionId(u16);

impl RegionId {
    /// How many regions a server may have over its life.
    pub const COUNT: usize = 1 << 10;

    /// The region of this number, if it is one.
    pub fn new(number: usize) -> Option<Self> {
        (number < Self::COUNT).then_some(Self(number as u16))
    }

    /// Its number.
    pub fn index(self) -> usize {
        self.0.into()
    }
}

/// A place in a region, aligned to 16 bytes. Takes 42 bits: 10 of the region, 32 of the offset in units of 16 bytes,
/// which reach over 64 GiB.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Pointer(u64);

impl Pointer {
    /// Every place is a multiple of this many bytes.
    pub const UNIT: usize = 16;
    /// How many bits a pointer takes.
    pub const BITS: u32 = 42;

    /// The place at `offset` bytes into a region.
    ///
    /// # Panics
    /// When the offset is not aligned or not below 64 GiB: a bug of the caller, since regions are never larger.
    pub fn new(region: RegionId, offset: usize) -> Self {
        assert!(offset.is_multiple_of(Self::UNIT) && offset >> 36 == 0, "offset {offset} of a pointer");
        Self((u64::from(region.0) << 32) | (offset / Self::UNIT) as u64)
    }

    /// The place that these bits name; bits above the 42nd are ignored. Any bits name some place, which need not exist:
    /// memories check every pointer that they are given.
    pub const fn from_bits(bits: u64) -> Self {
        Self(bits & ((1 << Self::BITS) - 1))
    }

    /// The 42 bits.
    pub fn bits(self) -> u64 {
        self.0
    }

    /// The region.
    pub fn region(self) -> RegionId {
        RegionId((self.0 >> 32) as u16)
    }

    /// How far into the region, in bytes.
    pub fn offset(self) -> usize {
        (self.0 as u32 as usize) * Self::UNIT
    }

    /// The place `bytes` further on, a multiple of [`Pointer::UNIT`]; wraps within the region's 64 GiB, so that a sum
    /// made from a peer's bytes is merely a place that does not exist.
    #[expect(clippy::should_implement_trait, reason = "there is no sum of two pointers")]
    pub fn add(self, bytes: usize) -> Self {
        debug_assert!(bytes.is_multiple_of(Self::UNIT));
        Self((self.0 & !0xffff_ffff) | u64::from((self.0 as u32).wrapping_add((bytes / Self::UNIT) as u32)))
    }
}
