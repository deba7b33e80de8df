//! Something that does one thing at a time, in the order in which it is asked.

/// An engine, a bus or a wire.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Resource {
    free_at_ps: u64,
    busy_ps: u64,
}

impl Resource {
    /// Uses it for a while, from a moment on at the earliest: gives the moment at which that ends.
    #[inline]
    pub(crate) fn occupy(&mut self, from_ps: u64, ps: u64) -> u64 {
        self.busy_ps += ps;
        self.free_at_ps = self.free_at_ps.max(from_ps) + ps;
        self.free_at_ps
    }

    /// How long it was in use so far, in nanoseconds; what is queued counts already.
    pub(crate) fn busy_ns(&self) -> u64 {
        self.busy_ps / 1000
    }
}

#[cfg(test)]
mod tests {
    use super::Resource;

    #[test]
    fn who_comes_while_it_is_in_use_waits() {
        let mut resource = Resource::default();
        assert_eq!(resource.occupy(5_000, 3_000), 8_000);
        assert_eq!(resource.occupy(6_000, 3_000), 11_000);
        assert_eq!(resource.occupy(20_000, 1_000), 21_000);
        assert_eq!(resource.busy_ns(), 7);
    }
}
