//! Mistakes that can be planted, so that tests show that what looks for mistakes finds them.
//!
//! Only with the feature `mistakes`, which nothing but tests turns on, is there any code for this: otherwise [`planted`] is
//! false at compile time.

/// What can be done wrong, each in one place of the code.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Mistake {
    /// A reader believes an extent without its checksum.
    NoExtentChecksum,
    /// A reader believes a row without its checksum.
    NoRowChecksum,
    /// The version of a row has one bit, so that two changes of a row are none.
    NarrowRowVersion,
    /// A reader that finds a key in none of its rows does not look again.
    NoSecondPass,
    /// A kick-out empties the old row before it writes the new one.
    KickOutClearsFirst,
    /// The extent of the old value is freed, and perhaps used again, before its row changes.
    ExtentFreedEarly,
    /// A row points to a record that is not written yet.
    PublishedEarly,
    /// One row of a table is not marked when its records have moved to a larger one.
    GrowthLeavesRowUnmarked,
    /// A put is acknowledged before it is made.
    AcknowledgedEarly,
    /// A put that is tried again is made again.
    RetriedPutExecutedTwice,
    /// A reader does not ask whether the memory that it has read is still the server's.
    DeadServerBelieved,
    /// A reader believes a bucket of the blocked hash without its checksum.
    NoBucketChecksum,
    /// An occupant of a hopscotch table that is displaced is cleared from its old place before it is in its new one.
    DisplacementClearsFirst,
    /// Whatever the tag of a key leads to in a lossy cache is taken for its item.
    NoItemKey,
    /// A server believes that a value which goes ahead of its request is there, without its checksum.
    NoStagedChecksum,
}

impl Mistake {
    /// All of them.
    pub const ALL: [Self; 15] = [
        Self::NoExtentChecksum,
        Self::NoRowChecksum,
        Self::NarrowRowVersion,
        Self::NoSecondPass,
        Self::KickOutClearsFirst,
        Self::ExtentFreedEarly,
        Self::PublishedEarly,
        Self::GrowthLeavesRowUnmarked,
        Self::AcknowledgedEarly,
        Self::RetriedPutExecutedTwice,
        Self::DeadServerBelieved,
        Self::NoBucketChecksum,
        Self::DisplacementClearsFirst,
        Self::NoItemKey,
        Self::NoStagedChecksum,
    ];
}

#[cfg(feature = "mistakes")]
thread_local! {
    static PLANTED: std::cell::Cell<Option<Mistake>> = const { std::cell::Cell::new(None) };
}

/// Whether this mistake is to be made.
#[cfg(feature = "mistakes")]
pub fn planted(mistake: Mistake) -> bool {
    PLANTED.get() == Some(mistake)
}

/// Whether this mistake is to be made: never.
#[cfg(not(feature = "mistakes"))]
#[inline(always)]
pub const fn planted(_: Mistake) -> bool {
    false
}

/// Makes a mistake on the calling thread, or none again.
#[cfg(feature = "mistakes")]
pub fn plant(mistake: Option<Mistake>) {
    PLANTED.set(mistake);
}
