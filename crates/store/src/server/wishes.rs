//! A core's wishes for regions: asked for while there is still room, so that no mutation has to wait for the kernel.

use super::{core::JobSender, regions::Wish};
use locus_fabric::Nic;
use locus_memory::{Arena, Purpose};
use std::sync::mpsc;

/// A further region is asked for when less than one part in so many of the regions' bytes is free.
const FREE_PART: usize = 4;
/// Room that a region needs beside the object it is asked for: the allocator's own granularity.
const SPARE_BYTES: usize = 2 << 20;

/// What was asked for and not answered yet, per purpose.
pub(super) struct Wishes<N: Nic> {
    provisioner: mpsc::Sender<Wish<N>>,
    answer: JobSender<N>,
    pending: [bool; Purpose::ALL.len()],
    /// The memory limit was reached: nothing more is to be had.
    refused: [bool; Purpose::ALL.len()],
}

impl<N: Nic> Wishes<N> {
    pub(super) fn new(provisioner: mpsc::Sender<Wish<N>>, answer: JobSender<N>) -> Self {
        Self { provisioner, answer, pending: Default::default(), refused: Default::default() }
    }

    /// Makes sure that a region with room for `bytes` was asked for. False if none is to be had.
    pub(super) fn ask(&mut self, arena: &Arena<N::Region>, purpose: Purpose, bytes: usize) -> bool {
        let kind = purpose as usize;
        if self.refused[kind] {
            return false;
        }
        if !self.pending[kind] {
            // Regions double what there is, so that their number stays small.
            let so_far = arena.usage(purpose).region_bytes;
            let least = bytes + SPARE_BYTES;
            let wish = Wish { purpose, bytes: so_far.max(least), least, answer: self.answer.clone() };
            self.pending[kind] = self.provisioner.send(wish).is_ok();
        }
        self.pending[kind]
    }

    /// Asks for what will be needed soon.
    pub(super) fn look_ahead(&mut self, arena: &Arena<N::Region>) {
        for purpose in [Purpose::Tables, Purpose::Extents] {
            if arena.available(purpose) < arena.usage(purpose).region_bytes / FREE_PART {
                self.ask(arena, purpose, 0);
            }
        }
    }

    /// A wish was granted or refused.
    pub(super) fn answered(&mut self, purpose: Purpose, granted: bool) {
        self.pending[purpose as usize] = false;
        self.refused[purpose as usize] = !granted;
    }
}
