//! How long the store's own steps take on a simulated processor.

use super::state::{State, with};
use crate::Work;

/// Times of the steps of [`Work`], in nanoseconds. All zero unless set: hostile worlds need no processor.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Steps {
    /// A request is made or taken apart.
    pub request_ns: f64,
    /// A reply is put together or taken apart.
    pub reply_ns: f64,
    /// A key is hashed and routed.
    pub hash_ns: f64,
    /// A key is looked up by its owner, in a batch.
    pub lookup_ns: f64,
    /// What a READ brought is verified and parsed.
    pub verify_ns: f64,
    /// A record is put into its table.
    pub change_ns: f64,
    /// What each byte adds that is hashed.
    pub hash_byte_ns: f64,
    /// What each byte adds that is checksummed.
    pub checksum_byte_ns: f64,
    /// What each byte adds that is copied.
    pub copy_byte_ns: f64,
}

impl Steps {
    /// On a processor that takes so many times as long.
    pub fn scaled(&self, factor: f64) -> Self {
        Self {
            request_ns: self.request_ns * factor,
            reply_ns: self.reply_ns * factor,
            hash_ns: self.hash_ns * factor,
            lookup_ns: self.lookup_ns * factor,
            verify_ns: self.verify_ns * factor,
            change_ns: self.change_ns * factor,
            hash_byte_ns: self.hash_byte_ns * factor,
            checksum_byte_ns: self.checksum_byte_ns * factor,
            copy_byte_ns: self.copy_byte_ns * factor,
        }
    }

    fn ns(&self, work: Work) -> f64 {
        match work {
            Work::Request => self.request_ns,
            Work::Reply(bytes) => self.reply_ns + self.copy_byte_ns * bytes as f64,
            Work::Hash(bytes) => self.hash_ns + self.hash_byte_ns * bytes as f64,
            Work::Lookup => self.lookup_ns,
            Work::Verify(bytes) => self.verify_ns + self.checksum_byte_ns * bytes as f64,
            Work::Change(bytes) => {
                self.change_ns + (self.checksum_byte_ns + self.copy_byte_ns) * bytes as f64
            }
        }
    }
}

/// Lets the running thread have worked.
pub(super) fn charge(work: Work) {
    with(|state: &mut State| {
        let ns = state.config.steps.ns(work);
        if ns > 0.0 {
            state.charge(ns.round() as u64);
        }
    });
}
