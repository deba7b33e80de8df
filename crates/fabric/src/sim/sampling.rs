//! READs under way: when each piece of memory is sampled, and what stores happen in between.
//!
//! A READ samples its pieces between its arrival and its end, at moments that nothing but its NIC's promises restrict
//! (Mitchell §3.3.2; DESIGN of FaRM's versions per line). What a piece holds changes only by stores into it. So it is
//! enough to decide, just before each such store, whether the READ has sampled the piece by then: all interleavings of
//! READs with stores can happen, and none other.

use super::{
    events::Event,
    region::Memory,
    state::{STORES_MATTER, State, with},
    threads,
    transport::{Acknowledgement, Answer},
};
use crate::{ReadOrder, Status};

/// A READ whose memory is being sampled.
#[derive(Debug)]
pub(crate) struct UnderWay {
    memory: Memory,
    offset: usize,
    into: Box<[u8]>,
    /// Which pieces were sampled; the first piece is the one that `offset` lies in.
    sampled: Vec<bool>,
    piece_bytes: usize,
    /// The region was taken back meanwhile.
    failed: bool,
    /// The queue pair that carries it out, and the request that it is of.
    pub(crate) at: u32,
    pub(crate) from: u32,
    sequence: u64,
}

impl UnderWay {
    /// The part of a piece that is wanted, as an offset into the region and a length.
    fn part(&self, piece: usize) -> (usize, usize) {
        let first = self.offset / self.piece_bytes + piece;
        let begin = (first * self.piece_bytes).max(self.offset);
        let end = ((first + 1) * self.piece_bytes).min(self.offset + self.into.len());
        (begin, end - begin)
    }

    fn sample(&mut self, piece: usize) {
        if !self.sampled[piece] {
            self.sampled[piece] = true;
            let (begin, bytes) = self.part(piece);
            let at = begin - self.offset;
            self.memory.words().copy_out(begin, &mut self.into[at..at + bytes]);
        }
    }

    /// The pieces that a range touches.
    fn pieces(&self, offset: usize, bytes: usize) -> std::ops::Range<usize> {
        let (begin, end) = (offset.max(self.offset), (offset + bytes).min(self.offset + self.into.len()));
        if begin >= end {
            return 0..0;
        }
        let first = self.offset / self.piece_bytes;
        begin / self.piece_bytes - first..(end - 1) / self.piece_bytes - first + 1
    }
}

/// To be called before anything is stored into a region.
#[inline(always)]
pub(crate) fn before_store(region: u64, offset: usize, bytes: usize) {
    if STORES_MATTER.get() {
        with(|state| state.sample_before(region, offset, bytes));
    }
}

/// To be called after anything was stored: the thread may be held up there.
#[inline(always)]
pub(crate) fn after_store() {
    if STORES_MATTER.get() {
        preempt();
    }
}

fn preempt() {
    let pause_ns = with(|state| {
        let adversary = &state.config.adversary;
        let (probability, most) = (adversary.preempts, adversary.pause_ns);
        if !state.chance.happens(probability) {
            return 0;
        }
        state.counters.preemptions += 1;
        1 + (state.chance.up_to(most) >> state.chance.up_to(4))
    });
    if pause_ns > 0 {
        threads::work(pause_ns);
    }
}

impl State {
    /// Begins to sample for a READ.
    pub(crate) fn begin_read(
        &mut self,
        at: u32,
        (from, sequence): (u32, u64),
        memory: Memory,
        range: (usize, usize),
    ) {
        let (offset, bytes) = range;
        let piece_bytes = self.config.nic.read_atomicity_bytes;
        let pieces =
            if bytes == 0 { 0 } else { (offset + bytes - 1) / piece_bytes - offset / piece_bytes + 1 };
        let read = UnderWay {
            memory,
            offset,
            into: vec![0; bytes].into(),
            sampled: vec![false; pieces],
            piece_bytes,
            failed: false,
            at,
            from,
            sequence,
        };
        let number = self.next_read;
        self.next_read += 1;
        self.counters.reads += 1;
        self.reads.insert(number, read);
        self.note_whether_stores_matter();
        let modelled_ns = self.fetch_ns(at, bytes);
        let ns = modelled_ns.unwrap_or_else(|| self.config.times.responder_ns + self.transfer_ns(bytes));
        let ns = ns + self.delay_ns();
        self.after(ns, Event::ReadEnds { number });
    }

    /// Samples whatever has not been sampled, and answers.
    pub(crate) fn end_read(&mut self, number: u64) {
        let Some(mut read) = self.reads.remove(&number) else { return };
        self.note_whether_stores_matter();
        let answer = if read.failed {
            Answer::failure(Status::RemoteAccess)
        } else {
            (0..read.sampled.len()).for_each(|piece| read.sample(piece));
            Answer { status: Status::Success, bytes: read.into }
        };
        self.finish_read(read.at, Acknowledgement { sequence: read.sequence, answer }, read.from);
    }

    /// Lets chance decide which READs have seen what is about to be stored over.
    pub(crate) fn sample_before(&mut self, region: u64, offset: usize, bytes: usize) {
        let Self { reads, chance, config, counters, .. } = self;
        if config.adversary.samples == 0.0 {
            return;
        }
        for read in reads.values_mut().filter(|read| read.memory.region == region) {
            for piece in read.pieces(offset, bytes) {
                if read.sampled[piece] || !chance.happens(config.adversary.samples) {
                    continue;
                }
                counters.sampled_before_stores += 1;
                let first = if config.nic.read_order == ReadOrder::Increasing { 0 } else { piece };
                (first..=piece).for_each(|piece| read.sample(piece));
            }
        }
    }

    /// READs of a region that was taken back fail.
    pub(crate) fn fail_reads(&mut self, region: u64) {
        for read in self.reads.values_mut().filter(|read| read.memory.region == region) {
            read.failed = true;
        }
    }
}
