//! A core's wishes for regions: asked for while there is still room, so that no mutation has to wait for the kernel.

use super::{core::JobSender, regions::Wish};
use locus_fabric::Nic;
use locus_index::cuckoo::ROW_BYTES;
use locus_memory::{Arena, Purpose};
use locus_runtime::channel::Sender;

/// A further region is asked for when less than one part in so many of the regions' bytes is free.
const FREE_PART: usize = 4;
/// Tables as full as this, in percent, will soon grow.
const FILLING_PERCENT: usize = 65;
/// Room that a region needs beside the object it is asked for: the allocator's own granularity.
const SPARE_BYTES: usize = 2 << 20;

/// What was asked for and not answered yet, per purpose.
pub(super) struct Wishes<N: Nic> {
    provisioner: Sender<Wish<N>>,
    answer: JobSender<N>,
    pending: [bool; Purpose::ALL.len()],
    /// The memory limit was reached: nothing more is to be had.
    refused: [bool; Purpose::ALL.len()],
}

impl<N: Nic> Wishes<N> {
    pub(super) fn new(provisioner: Sender<Wish<N>>, answer: JobSender<N>) -> Self {
        Self { provisioner, answer, pending: Default::default(), refused: Default::default() }
    }

    /// Makes sure that a region with room for an object of `bytes` was asked for. False if none is to be had.
    pub(super) fn ask(&mut self, arena: &Arena<N::Region>, purpose: Purpose, bytes: usize) -> bool {
        // Regions double what there is, so that their number stays small.
        let least = bytes + SPARE_BYTES;
        self.wish(purpose, arena.usage(purpose).region_bytes.max(least), least)
    }

    fn wish(&mut self, purpose: Purpose, bytes: usize, least: usize) -> bool {
        let kind = purpose as usize;
        if self.refused[kind] {
            return false;
        }
        if !self.pending[kind] {
            let wish = Wish { purpose, bytes, least, answer: self.answer.clone() };
            self.pending[kind] = self.provisioner.send(wish).is_ok();
        }
        self.pending[kind]
    }

    /// Asks for what will be needed soon.
    pub(super) fn look_ahead(&mut self, arena: &Arena<N::Region>) {
        let extents = arena.usage(Purpose::Extents);
        if extents.free_page_bytes < extents.region_bytes / FREE_PART {
            self.ask(arena, Purpose::Extents, 0);
        }
        // Keys spread evenly, so all tables get full at about the same time, and each larger one is twice as large.
        let tables = arena.usage(Purpose::Tables);
        let filling = extents.objects * ROW_BYTES * 100 > tables.reserved_bytes * FILLING_PERCENT;
        let soon = if filling { 2 * tables.reserved_bytes } else { tables.region_bytes / FREE_PART };
        if tables.free_page_bytes < soon {
            // Not in small pieces: there are only so many regions.
            let bytes = (soon - tables.free_page_bytes).max(tables.region_bytes / 2).max(SPARE_BYTES);
            self.wish(Purpose::Tables, bytes, SPARE_BYTES);
        }
    }

    /// A wish was granted or refused.
    pub(super) fn answered(&mut self, purpose: Purpose, granted: bool) {
        self.pending[purpose as usize] = false;
        self.refused[purpose as usize] = !granted;
    }
}
