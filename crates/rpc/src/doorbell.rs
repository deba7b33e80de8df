//! When to ring a doorbell that is dear: one that is a system call, as those of software RDMA devices are.
//!
//! Messages arrive one by one, and whoever answers each at once rings for each. Waiting a moment for those that belong
//! together saves most of these calls. How many belong together is what the last ring brought together; now and then it is
//! tried whether there are more. Where messages come one at a time hardly anybody waits.

/// How many empty polls are waited through for a message that belongs to those that have come: more than the kernel takes
/// to carry one out, also where that is emulated.
const PATIENCE: u32 = 256;
/// Of so many rings two try whether more belong together: the first gets the rest of a burst, the second a whole one.
const TRY_EVERY: u32 = 8;
/// The same where messages come one at a time.
const TRY_ONE_EVERY: u32 = 512;

/// Decides when what was posted is started.
#[derive(Debug)]
pub(crate) struct Doorbell {
    dear: bool,
    /// Posted and not started.
    posted: u32,
    /// With so many nobody waits for more.
    expected: u32,
    /// The most that are started together.
    most: u32,
    empty_polls: u32,
    rings: u32,
}

impl Doorbell {
    /// Rings at once unless `dear`, and else for no more than `most` messages at a time.
    pub fn new(dear: bool, most: usize) -> Self {
        Self { dear, posted: 0, expected: 1, most: most as u32, empty_polls: 0, rings: 0 }
    }

    /// A message was posted.
    #[inline]
    pub fn posted(&mut self) {
        self.posted += 1;
        self.empty_polls = 0;
    }

    /// Whether to ring before the next poll: where nobody waits, or all that is expected was posted.
    #[inline]
    pub fn is_ripe(&self) -> bool {
        self.waits() && (!self.dear || self.posted >= self.expected)
    }

    /// Whether something was posted and not started.
    #[inline]
    pub fn waits(&self) -> bool {
        self.posted > 0
    }

    /// Whether to ring now, after a poll that found something or nothing.
    #[inline]
    pub fn is_due(&mut self, found: bool) -> bool {
        if !self.waits() {
            return false;
        }
        if !self.dear || self.posted >= self.most {
            return true;
        }
        // What was found is answered first.
        if found {
            return false;
        }
        self.empty_polls += 1;
        self.posted >= self.expected || self.empty_polls > PATIENCE
    }

    /// It was rung.
    #[inline]
    pub fn rang(&mut self) {
        if self.posted == 0 {
            return;
        }
        self.rings = self.rings.wrapping_add(1);
        let every = if self.posted > 1 { TRY_EVERY } else { TRY_ONE_EVERY };
        let tries = self.rings % every < 2;
        self.expected = if tries { self.most } else { self.posted };
        (self.posted, self.empty_polls) = (0, 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BURSTS: u32 = 1000;

    /// Messages come in many bursts of so many, one in every second poll; gives the rings, and the polls that passed between
    /// the last message of a burst and the ring for it.
    fn bursts(bell: &mut Doorbell, burst: u32) -> (u32, u32) {
        let (mut rings, mut waited) = (0, 0);
        for _ in 0..BURSTS {
            let mut come = 0;
            for poll in 0..2 * (burst + PATIENCE) {
                let found = poll % 2 == 0 && come < burst;
                waited += u32::from(come == burst && bell.waits());
                if bell.is_due(found) {
                    rings += 1;
                    bell.rang();
                }
                if found {
                    come += 1;
                    bell.posted();
                }
            }
            assert!(!bell.waits());
        }
        (rings, waited)
    }

    #[test]
    fn a_cheap_one_rings_for_each() {
        assert_eq!(bursts(&mut Doorbell::new(false, 16), 16).0, 16 * BURSTS);
    }

    #[test]
    fn a_dear_one_learns_what_belongs_together() {
        let mut bell = Doorbell::new(true, 16);
        for burst in [16, 2, 9, 16] {
            let (rings, _) = bursts(&mut bell, burst);
            assert!((BURSTS..2 * BURSTS).contains(&rings), "{rings} rings for {BURSTS} bursts of {burst}");
        }
        let (rings, waited) = bursts(&mut bell, 1);
        assert_eq!(rings, BURSTS);
        assert!(waited < 4 * BURSTS, "one at a time waits for {waited} polls in {BURSTS} rings");
    }

    #[test]
    fn what_is_posted_is_rung_for_in_time() {
        let mut bell = Doorbell::new(true, 1000);
        bell.expected = 500;
        bell.posted();
        let waited = (0..).find(|_| bell.is_due(false)).unwrap();
        assert_eq!(waited, PATIENCE);
        let mut bell = Doorbell::new(true, 4);
        (0..4).for_each(|_| bell.posted());
        assert!(bell.is_due(true), "no more than the most");
    }
}
