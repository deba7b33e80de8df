//! The sending half of a connection: frames go inline where they fit and from registered buffers where not; few sends
//! are signaled, and their completions give the send queue's places back.

use crate::tag::Tag;
use locus_fabric::{
    Access, FabricError, LocalSlice, Nic, PagePolicy, Payload, PostError, QueuePair, Region, RemoteSlice,
    SendRequest, Verb,
};

/// Sends frames over one queue pair.
pub(crate) struct Outbox<N: Nic> {
    pub pair: N::QueuePair,
    tag: Tag,
    /// The send queue's places.
    depth: u64,
    /// How many work requests were posted, and how many of these are known to be done.
    posted: u64,
    done: u64,
    /// The work request that is to be signaled next, at the latest.
    signal_at: u64,
    inline_bytes: usize,
    buffers: Option<Buffers<N>>,
    unrung: bool,
}

/// A ring of registered buffers for frames that are not inlined.
pub(crate) struct Buffers<N: Nic> {
    region: N::Region,
    bytes: usize,
    /// For each buffer, the number of the last work request that sends from it.
    used: Box<[u64]>,
    next: usize,
}

impl<N: Nic> Buffers<N> {
    /// Room for `count` frames of up to `bytes`; none if all frames can be inlined.
    pub fn new(
        nic: &N,
        count: usize,
        bytes: usize,
        inline_bytes: usize,
    ) -> Result<Option<Self>, FabricError> {
        if inline_bytes >= bytes {
            return Ok(None);
        }
        let bytes = bytes.next_multiple_of(64);
        let region = nic.register(count * bytes, Access::Local, PagePolicy::Base)?;
        Ok(Some(Self { region, bytes, used: vec![0; count].into(), next: 0 }))
    }

    /// Takes the next buffer, copies the parts into it, and gives its offset and the bytes.
    fn gather(&mut self, parts: &[&[u8]], posted: u64, done: u64) -> Option<(usize, usize)> {
        if self.used[self.next] > done {
            return None;
        }
        self.used[self.next] = posted;
        let start = self.next * self.bytes;
        self.next = (self.next + 1) % self.used.len();
        let mut at = start;
        for part in parts {
            self.region.copy_in(at, part);
            at += part.len();
        }
        Some((start, at - start))
    }
}

impl<N: Nic> Outbox<N> {
    pub fn new(
        pair: N::QueuePair,
        tag: Tag,
        depth: usize,
        inline_bytes: usize,
        mut buffers: Option<Buffers<N>>,
    ) -> Self {
        // The queue pair before this one is gone, and with it whatever was sent from the buffers.
        if let Some(buffers) = &mut buffers {
            buffers.used.fill(0);
        }
        let depth = depth as u64;
        Self {
            pair,
            tag,
            depth,
            posted: 0,
            done: 0,
            signal_at: depth / 2,
            inline_bytes,
            buffers,
            unrung: false,
        }
    }

    /// Breaks the queue pair and gives the buffers back, for the next connection.
    pub fn close(mut self) -> Option<Buffers<N>> {
        self.pair.fail();
        self.buffers
    }

    /// Whether so many work requests can be posted now.
    #[inline]
    pub fn room(&self, requests: usize) -> bool {
        self.posted - self.done + requests as u64 <= self.depth
    }

    /// Posts a frame; [`Outbox::ring`] starts it.
    #[inline]
    pub fn send(&mut self, parts: &[&[u8]]) -> Result<(), PostError> {
        let bytes: usize = parts.iter().map(|part| part.len()).sum();
        if bytes <= self.inline_bytes {
            let signaled = self.signal_next();
            let verb = Verb::Send { payload: Payload::Inline(parts), immediate: None, to: None };
            return self.post(verb, signaled);
        }
        self.send_buffered(parts)
    }

    #[cold]
    fn send_buffered(&mut self, parts: &[&[u8]]) -> Result<(), PostError> {
        let number = self.posted + 1;
        let full = PostError::SendQueueFull(self.depth as usize);
        let buffers = self.buffers.as_mut().ok_or(PostError::LocalRange)?;
        let (offset, bytes) = buffers.gather(parts, number, self.done).ok_or(full)?;
        let slice = LocalSlice { region: &buffers.region, offset, bytes };
        let verb = Verb::Send { payload: Payload::Slice(slice), immediate: None, to: None };
        // Signaled, so that the buffer comes back. (Not through `post`, which borrows all of us.)
        let request = SendRequest { id: self.tag.send(number), verb, signaled: true };
        self.pair.post_send(&request)?;
        self.note_posted(number, true);
        Ok(())
    }

    /// Posts a WRITE from a region that the caller keeps as it is until a later message of this queue pair is answered.
    pub fn write(&mut self, from: LocalSlice<'_, N>, to: RemoteSlice<'_, N>) -> Result<(), PostError> {
        let signaled = self.signal_next();
        self.post(Verb::Write { payload: Payload::Slice(from), to, immediate: None }, signaled)
    }

    #[inline]
    fn post(&mut self, verb: Verb<'_, N>, signaled: bool) -> Result<(), PostError> {
        let number = self.posted + 1;
        self.pair.post_send(&SendRequest { id: self.tag.send(number), verb, signaled })?;
        self.note_posted(number, signaled);
        Ok(())
    }

    #[inline]
    fn note_posted(&mut self, number: u64, signaled: bool) {
        self.posted = number;
        self.unrung = true;
        if signaled {
            self.signal_at = number + self.depth / 2;
        }
    }

    /// Of every half queue one work request is signaled, so that there is always one under way that frees places.
    #[inline]
    fn signal_next(&self) -> bool {
        self.posted + 1 >= self.signal_at
    }

    /// Takes note of a signaled completion: it and all before it are done.
    pub fn completed(&mut self, number: u32) {
        let ago = (self.posted as u32).wrapping_sub(number);
        self.done = self.done.max(self.posted.saturating_sub(ago.into()));
    }

    /// Starts what was posted.
    #[inline]
    pub fn ring(&mut self) -> Result<(), PostError> {
        if !self.unrung {
            return Ok(());
        }
        self.unrung = false;
        self.pair.ring()
    }
}
