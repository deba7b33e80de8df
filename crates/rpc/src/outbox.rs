//! The sending half of a connection: frames go inline where they fit and from registered buffers where not; few sends
//! are signaled, and their completions give the send queue's places back.

use crate::{
    frame::Frame,
    slots::{Layout, Mark},
    tag::Tag,
};
use locus_fabric::{
    Access, FabricError, LocalSlice, Nic, PagePolicy, Payload, PostError, QueuePair, Region, RemoteRegion,
    RemoteSlice, SendRequest, Verb,
};

/// The immediate of a WRITE that carries no frame.
pub(crate) const WAKE: u32 = u32::MAX;

/// How frames go to one receiver, and where. This and what receives them is all that differs by verb.
pub(crate) enum Course<N: Nic> {
    /// By SEND, to the queue pair that ours is connected with.
    Send,
    /// By SEND to a UD queue pair, behind a token that both know.
    Datagram { to: N::AddressHandle, token: u64 },
    /// By WRITE into a slot, with its number as the immediate or without.
    Write { region: N::RemoteRegion, layout: Layout, immediate: bool },
}

impl<N: Nic> Course<N> {
    /// By WRITE into the slots of a region, if it has room for them.
    pub fn write(region: N::RemoteRegion, layout: Layout, immediate: bool) -> Option<Self> {
        (region.bytes() >= layout.region_bytes()).then_some(Self::Write { region, layout, immediate })
    }

    #[inline]
    fn verb<'p>(&'p self, offset: usize, payload: Payload<'p, N>) -> Verb<'p, N> {
        match self {
            Self::Send => Verb::Send { payload, immediate: None, to: None },
            Self::Datagram { to, .. } => Verb::Send { payload, immediate: None, to: Some(to) },
            Self::Write { region, layout, immediate } => {
                let immediate = immediate.then(|| layout.slot_at(offset) as u32);
                Verb::Write { payload, to: RemoteSlice { region, offset }, immediate }
            }
        }
    }
}

/// Frames up to this length, with what belongs to them, are put together on the stack if they must be.
const SHORT_BYTES: usize = 128;

#[inline]
fn bytes_of(parts: &[&[u8]]) -> usize {
    parts.iter().map(|part| part.len()).sum()
}

/// How a frame went.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sent {
    /// It is where it was to go.
    AtOnce,
    /// [`Outbox::ring`] starts it.
    Posted,
}

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
    /// The work request that woke the other end last.
    woke: u64,
    inline_bytes: usize,
    buffers: Option<Buffers<N>>,
    /// Where frames are put together that need a checksum; empty before the first.
    scratch: Box<[u8]>,
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
        buffers: Option<Buffers<N>>,
    ) -> Self {
        let depth = depth as u64;
        Self {
            pair,
            tag,
            depth,
            posted: 0,
            done: 0,
            signal_at: depth / 2,
            woke: 0,
            inline_bytes,
            buffers,
            scratch: Box::default(),
            unrung: false,
        }
    }

    /// The tag of what it posts.
    pub fn tag(&self) -> Tag {
        self.tag
    }

    /// Whether so many work requests can be posted now.
    #[inline]
    pub fn room(&self, requests: usize) -> bool {
        self.posted - self.done + requests as u64 <= self.depth
    }

    /// Whether more than half of the places are taken, as far as is known: time to look for completions.
    #[inline]
    pub fn is_half_full(&self) -> bool {
        2 * (self.posted - self.done) > self.depth
    }

    /// Sends a frame at once, or posts it for [`Outbox::ring`] to start.
    #[inline(always)]
    pub fn send(
        &mut self,
        course: &Course<N>,
        sequence: u64,
        attempt: u8,
        frame: &Frame<'_>,
    ) -> Result<Sent, PostError> {
        let [header, key, value] = frame.pieces();
        match course {
            Course::Send if self.pair.send_at_once(&[header, key, value]) => Ok(Sent::AtOnce),
            Course::Send => self.post_frame(course, 0, &[header, key, value]),
            Course::Datagram { token, .. } => {
                self.post_frame(course, 0, &[&token.to_le_bytes(), header, key, value])
            }
            Course::Write { layout, .. } if !layout.checked => {
                let bytes = frame.bytes();
                let mark = Mark::new(sequence, attempt, bytes).0.to_le_bytes();
                let padding = &[0; 8][..bytes.wrapping_neg() % 8];
                let pieces = [header, key, value, padding, &mark];
                let offset = layout.end(layout.slot_of(sequence)) - layout.bytes_of(bytes);
                self.write_frame(course, offset, &pieces)
            }
            // Put together first, since the checksum is over one piece.
            Course::Write { layout, .. } => {
                let bytes = layout.bytes_of(frame.bytes());
                let offset = layout.end(layout.slot_of(sequence)) - bytes;
                if bytes <= SHORT_BYTES {
                    let whole = &mut [0; SHORT_BYTES][..bytes];
                    layout.assemble(frame, sequence, attempt, whole);
                    return self.write_frame(course, offset, &[whole]);
                }
                let mut scratch = std::mem::take(&mut self.scratch);
                if scratch.is_empty() {
                    scratch = vec![0; layout.slot_bytes()].into();
                }
                layout.assemble(frame, sequence, attempt, &mut scratch[..bytes]);
                let sent = self.write_frame(course, offset, &[&scratch[..bytes]]);
                self.scratch = scratch;
                sent
            }
        }
    }

    /// WRITEs a frame at once, or posts the WRITE.
    #[inline(always)]
    fn write_frame(
        &mut self,
        course: &Course<N>,
        offset: usize,
        pieces: &[&[u8]],
    ) -> Result<Sent, PostError> {
        if let Course::Write { region, immediate: false, .. } = course
            && self.pair.write_at_once(pieces, &RemoteSlice { region, offset })
        {
            return Ok(Sent::AtOnce);
        }
        self.post_frame(course, offset, pieces)
    }

    /// Posts the bytes of a frame, which a WRITE brings to an offset.
    #[inline]
    fn post_frame(&mut self, course: &Course<N>, offset: usize, parts: &[&[u8]]) -> Result<Sent, PostError> {
        if !self.room(1) {
            return Err(PostError::SendQueueFull(self.depth as usize));
        }
        if bytes_of(parts) <= self.inline_bytes {
            let signaled = self.signal_next();
            self.post(course.verb(offset, Payload::Inline(parts)), signaled)?;
        } else {
            self.post_buffered(course, offset, parts)?;
        }
        Ok(Sent::Posted)
    }

    #[cold]
    fn post_buffered(&mut self, course: &Course<N>, to: usize, parts: &[&[u8]]) -> Result<(), PostError> {
        let number = self.posted + 1;
        let full = PostError::SendQueueFull(self.depth as usize);
        let buffers = self.buffers.as_mut().ok_or(PostError::LocalRange)?;
        let (offset, bytes) = buffers.gather(parts, number, self.done).ok_or(full)?;
        let slice = LocalSlice { region: &buffers.region, offset, bytes };
        let verb = course.verb(to, Payload::Slice(slice));
        // Signaled, so that the buffer comes back. (Not through `post`, which borrows all of us.)
        let request = SendRequest { id: self.tag.send(number), verb, signaled: true };
        self.pair.post_send(&request)?;
        self.note_posted(number, true);
        Ok(())
    }

    /// Posts a WRITE of nothing with an immediate, which wakes whoever sleeps at the other end, unless one is under way. Each
    /// takes one of few RECVs: one that found none would wait, and all requests behind it.
    #[cold]
    pub fn wake(&mut self, region: &N::RemoteRegion) -> Result<(), PostError> {
        if self.woke > self.done || !self.room(1) {
            return Ok(());
        }
        let to = RemoteSlice { region, offset: 0 };
        self.post(Verb::Write { payload: Payload::Inline(&[]), to, immediate: Some(WAKE) }, true)?;
        self.woke = self.posted;
        Ok(())
    }

    /// Posts a READ, and gives the number that its completion has.
    pub fn read(&mut self, into: LocalSlice<'_, N>, from: RemoteSlice<'_, N>) -> Result<u32, PostError> {
        self.post(Verb::Read { into, from }, true)?;
        Ok(self.posted as u32)
    }

    /// Posts a WRITE from a region that the caller keeps as it is until it is done, or a later message of this queue pair is
    /// answered. Gives the number that its completion has, if it is signaled.
    pub fn write(
        &mut self,
        from: LocalSlice<'_, N>,
        to: RemoteSlice<'_, N>,
        signaled: bool,
    ) -> Result<u32, PostError> {
        let signaled = signaled || self.signal_next();
        self.post(Verb::Write { payload: Payload::Slice(from), to, immediate: None }, signaled)?;
        Ok(self.posted as u32)
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

    /// Whether the work request of this number is known to be done.
    pub fn is_done(&self, number: u32) -> bool {
        (self.done as u32).wrapping_sub(number) <= u32::MAX / 2
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
