//! All regions of a server, and the thread that reserves new ones ahead of need.
//!
//! Reserving memory means that the kernel finds and zeroes pages, for hundreds of milliseconds per GiB. A core asks for
//! its next region while the last one still has room, and goes on; the provisioner answers with a job.

use super::core::CoreJob;
use crate::StoreError;
use locus_fabric::{Access, FabricError, Nic, PagePolicy, Region};
use locus_memory::{Purpose, RegionId};
use locus_runtime::channel::Receiver;
use std::sync::{Mutex, PoisonError};

/// The largest region in bytes that is reserved for many objects, by a server that may have much memory. Others reserve a sixteenth of
/// theirs at once, but not less than 256 MiB: the less it is, the shorter do mutations wait that come faster than the kernel
/// finds pages.
const REGION_BYTES_MAX: usize = 1 << 30;
const REGION_BYTES_OF_SMALL: usize = 256 << 20;
const REGIONS_OF_SMALL: usize = 16;

/// The regions of a server that clients may read, by number.
pub(crate) struct Regions<N: Nic> {
    nic: N,
    pages: PagePolicy,
    limit: usize,
    state: Mutex<State<N>>,
}

struct State<N: Nic> {
    list: Vec<N::Region>,
    bytes: usize,
}

impl<N: Nic> Regions<N> {
    pub(crate) fn new(nic: N, pages: PagePolicy, limit: usize) -> Self {
        Self { nic, pages, limit, state: Mutex::new(State { list: Vec::new(), bytes: 0 }) }
    }

    /// Reserves a region of about this many bytes, at least `least`; an error when the memory limit is reached.
    pub(crate) fn reserve(&self, bytes: usize, least: usize) -> Result<(RegionId, N::Region), StoreError> {
        let room = {
            let mut state = self.lock();
            let room = bytes.min(self.limit.saturating_sub(state.bytes));
            if room < least {
                return Err(StoreError::OutOfMemory);
            }
            state.bytes += room;
            room
        };
        let region = self.nic.register(room, Access::RemoteRead, self.pages);
        let mut state = self.lock();
        let region = region.inspect_err(|_| state.bytes -= room)?;
        // Whole pages: what was counted was the wish.
        state.bytes = state.bytes - room + region.bytes();
        let id = RegionId::new(state.list.len()).ok_or(FabricError::Limit {
            what: "number of regions",
            asked: state.list.len() + 1,
            limit: RegionId::COUNT,
        })?;
        state.list.push(region.clone());
        Ok((id, region))
    }

    /// The length of a region that is wished for.
    fn granted(&self, wish: &Wish<N>) -> usize {
        let most = (self.limit / REGIONS_OF_SMALL).clamp(REGION_BYTES_OF_SMALL, REGION_BYTES_MAX);
        wish.bytes.min(most).max(wish.least)
    }

    /// The regions that are not among these numbers.
    pub(crate) fn except(&self, known: &[u16]) -> Vec<(u16, N::Region)> {
        let list = self.lock().list.clone();
        list.into_iter()
            .enumerate()
            .map(|(id, region)| (id as u16, region))
            .filter(|(id, _)| !known.contains(id))
            .collect()
    }

    /// Bytes reserved, and what pages they lie on.
    pub(crate) fn summary(&self) -> (usize, String) {
        let state = self.lock();
        let mut pages: Vec<String> = Vec::new();
        for region in &state.list {
            let words = match region.pages() {
                locus_fabric::Pages::Huge => "2 MiB pages".to_owned(),
                locus_fabric::Pages::Base(reason) => format!("base pages ({reason})"),
            };
            if !pages.contains(&words) {
                pages.push(words);
            }
        }
        (state.bytes, pages.join(", "))
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, State<N>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A core's wish for a region.
pub(crate) struct Wish<N: Nic> {
    pub(crate) purpose: Purpose,
    /// The size that the core would like.
    pub(crate) bytes: usize,
    /// The size below which it does not help.
    pub(crate) least: usize,
    /// Takes the answer to the core.
    pub(crate) answer: super::core::JobSender<N>,
}

/// Serves wishes until the last core is gone.
pub(crate) fn provision<N: Nic>(regions: &Regions<N>, wishes: &Receiver<Wish<N>>) {
    while let Ok(wish) = wishes.receive() {
        let region = regions.reserve(regions.granted(&wish), wish.least).ok();
        wish.answer.send(CoreJob::Region { purpose: wish.purpose, region });
    }
}
