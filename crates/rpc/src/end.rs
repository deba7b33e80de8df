//! The server's end of one client's connection: how its requests come, and how replies go to it. And the one UD queue pair
//! that a server core has for all its clients (Kalia §4.3).
//!
//! A client may WRITE into its own request slots and nowhere else: they are a region of that client at that core, granted
//! over its link alone. They are as long as the window times the longest request, 81 KiB with a window of 16.

use crate::{
    Greeting, Loss, Pair, RpcError,
    frame::{FRAME_BYTES_MAX, Frame, FrameError, REPLY_BYTES_MAX},
    inbox::Inbox,
    outbox::{Buffers, Course, Outbox, Sent, WAKE},
    pair::{Carrier, TOKEN_BYTES, Way},
    slots::{Arrivals, Layout, Look, TAIL_BYTES_MAX},
    tag::Tag,
};
use locus_fabric::{
    Access, Completion, FabricError, Facts, Link, Nic, Opcode, PagePolicy, PostError, QueuePair,
    QueuePairConfig, Region, Transport,
};

/// RECVs for what only wakes a core that sleeps: for all that a client sends while it has no answer, and a few that were not
/// taken yet. What found none would wait, and all requests behind it.
const WAKE_RECEIVES: usize = crate::channel::WAKES_MAX as usize + 4;
/// RECVs of a UD queue pair of a server core: what finds none is lost, and sent again.
const DATAGRAM_RECEIVES_MIN: usize = 256;
const DATAGRAM_RECEIVES_MAX: usize = 1024;

/// The server's end of a connection.
pub(crate) struct End<N: Nic> {
    pair: Pair,
    pub connected: Option<Outbox<N>>,
    inbox: Option<Inbox<N>>,
    /// Where requests are WRITten.
    pub arrivals: Option<Arrivals<N>>,
    /// Whether messages are taken at once.
    at_once: bool,
    reply: Return<N>,
}

/// How replies go.
enum Return<N: Nic> {
    /// They are posted.
    Posted(Course<N>),
    /// They are put into slots that the client READs.
    Kept { region: N::Region, layout: Layout, scratch: Box<[u8]> },
}

/// What a completion of a RECV brought.
pub(crate) enum Received {
    /// A frame of so many bytes, copied out.
    Frame(usize),
    /// Nothing: somebody wanted us awake.
    Woken,
}

/// The depths of the connected queue pair: of its send queue and its receive queue.
fn depths(pair: &Pair, window: usize) -> (usize, usize) {
    let receives = match pair.request.carrier {
        Carrier::Write => WAKE_RECEIVES,
        _ if pair.request.is_connected() => window,
        _ => 1,
    };
    (2 * window, receives)
}

/// Whether messages that go this way are taken at once, past the completion queue.
pub(crate) fn takes_at_once<N: Nic>(nic: &N, way: Way) -> bool {
    way.carrier == Carrier::Send && way.is_connected() && nic.properties().messages_at_once
}

/// The completions that a channel of this window may cause.
pub(crate) fn promise(pair: &Pair, window: usize) -> usize {
    let (sends, receives) = depths(pair, window);
    if pair.connected().is_some() { sends + receives } else { 0 }
}

impl<N: Nic> End<N> {
    /// Makes and connects the server's end of a channel whose client sent these facts. Gives its own.
    pub fn open(
        nic: &N,
        queue: &N::CompletionQueue,
        datagrams: Option<&Datagrams<N>>,
        link: &N::Link,
        facts: Vec<Facts>,
        (pair, window): (Pair, usize),
        (tag, greeting): (Tag, &Greeting),
    ) -> Result<(Self, Vec<Facts>), RpcError> {
        let mut theirs = facts.into_iter();
        let absent = || FabricError::Protocol { peer: link.peer(), what: "a channel without facts".into() };
        let mut ours = Vec::with_capacity(4);
        let mut inbox = None;
        let connected = match pair.connected() {
            None => None,
            Some(transport) => {
                let (mut outbox, receives) = open_pair(nic, queue, link, &pair, transport, window, tag)?;
                if pair.request.is_connected() {
                    // The RECVs of WRITEs take no bytes; but who knows what comes.
                    let bytes = if pair.request.carrier == Carrier::Send { FRAME_BYTES_MAX } else { 64 };
                    let receives = Inbox::new(nic, transport, receives, bytes)?;
                    receives
                        .post_all(&mut outbox.pair, tag)
                        .map_err(|_| FabricError::State("RECVs were refused"))?;
                    inbox = Some(receives);
                }
                ours.push(outbox.pair.facts(link)?);
                outbox.pair.connect(theirs.next().ok_or_else(absent)?)?;
                Some(outbox)
            }
        };
        if pair.request.transport == Transport::Ud {
            ours.push(datagrams.ok_or_else(absent)?.outbox.pair.facts(link)?);
        }
        let arrivals = match pair.request.carrier {
            Carrier::Write | Carrier::WriteImmediate => {
                let layout = Layout::new(window, FRAME_BYTES_MAX, greeting.checked);
                let arrivals = Arrivals::new(nic, layout, window, pair.is_lossy())?;
                ours.push(link.grant(&arrivals.region)?);
                Some(arrivals)
            }
            _ => None,
        };
        let reply = match pair.reply.carrier {
            Carrier::Read => {
                let layout = Layout::new(window, REPLY_BYTES_MAX, true);
                let region = nic.register(layout.region_bytes(), Access::RemoteRead, PagePolicy::Base)?;
                ours.push(link.grant(&region)?);
                Return::Kept { region, layout, scratch: vec![0; layout.slot_bytes()].into() }
            }
            Carrier::Send if pair.reply.transport == Transport::Ud => {
                let to = theirs.next().ok_or_else(absent)?;
                let to = datagrams.ok_or_else(absent)?.outbox.pair.address(link, to)?;
                Return::Posted(Course::Datagram { to, token: greeting.token })
            }
            Carrier::Send => Return::Posted(Course::Send),
            _ => {
                let region = link.import(theirs.next().ok_or_else(absent)?)?;
                let layout = Layout::new(window, REPLY_BYTES_MAX, greeting.checked);
                Return::Posted(Course::write(region, layout, false).ok_or_else(absent)?)
            }
        };
        let at_once = takes_at_once(nic, pair.request);
        Ok((Self { pair, connected, inbox, arrivals, at_once, reply }, ours))
    }

    /// Takes what a RECV was consumed for, and posts the RECV again.
    #[inline]
    pub fn receive(&mut self, slot: u32, completion: &Completion, into: &mut [u8]) -> Result<Received, Loss> {
        let (Some(inbox), Some(outbox)) = (&self.inbox, &mut self.connected) else {
            return Err(Loss::Refused(PostError::NotReady));
        };
        let tag = outbox.tag();
        if self.pair.request.carrier == Carrier::Send {
            let taken = inbox.take(&mut outbox.pair, tag, slot, completion.bytes, into);
            return taken.map(Received::Frame).map_err(Loss::Refused);
        }
        inbox.post(&mut outbox.pair, tag, slot).map_err(Loss::Refused)?;
        let immediate = completion.immediate.filter(|_| completion.opcode == Opcode::ReceiveWrite);
        match (immediate, &self.arrivals) {
            (Some(WAKE), _) => Ok(Received::Woken),
            (Some(slot), Some(arrivals)) if self.pair.request.carrier == Carrier::WriteImmediate => {
                match arrivals.look_named(slot as usize, into) {
                    Look::Frame(bytes) => Ok(Received::Frame(bytes)),
                    Look::Broken(error) => Err(Loss::Malformed(error)),
                    // Over UC it may be a part of what was sent.
                    Look::Nothing if self.pair.is_lossy() => Ok(Received::Woken),
                    Look::Nothing => Err(Loss::Malformed(FrameError::Immediate(slot))),
                }
            }
            (immediate, _) => Err(Loss::Malformed(FrameError::Immediate(immediate.unwrap_or_default()))),
        }
    }

    /// Whether requests come that raise no completion.
    #[inline]
    pub fn comes_silently(&self) -> bool {
        self.pair.request.carrier == Carrier::Write || self.at_once
    }

    /// Looks for a request that has come and raised no completion. `around` looks behind gaps, too.
    #[inline]
    pub fn look(&mut self, around: bool, into: &mut [u8]) -> Look {
        match (&self.arrivals, &mut self.connected) {
            (Some(arrivals), _) if around => arrivals.look_around(into),
            (Some(arrivals), _) => arrivals.look_ahead(into),
            (None, Some(outbox)) if self.at_once => {
                outbox.pair.receive_at_once(into).map_or(Look::Nothing, Look::Frame)
            }
            _ => Look::Nothing,
        }
    }

    /// Whether it is worth a look.
    #[inline]
    pub fn expects(&self, around: bool) -> bool {
        match &self.arrivals {
            Some(arrivals) if around => arrivals.has_any(),
            Some(arrivals) => arrivals.expects(),
            None => self.at_once && !around,
        }
    }

    /// Sends a reply, or puts it where it is READ.
    #[inline(always)]
    pub fn send(
        &mut self,
        datagrams: Option<&mut Datagrams<N>>,
        sequence: u64,
        frame: &Frame<'_>,
    ) -> Result<Sent, PostError> {
        match &mut self.reply {
            Return::Posted(course) => {
                let outbox = match course {
                    Course::Datagram { .. } => datagrams.map(|datagrams| &mut datagrams.outbox),
                    _ => self.connected.as_mut(),
                };
                let Some(outbox) = outbox else { return Err(PostError::NotReady) };
                outbox.send(course, sequence, 0, frame)
            }
            Return::Kept { region, layout, scratch } => {
                let whole = &mut scratch[..layout.bytes_of(frame.bytes())];
                layout.assemble(frame, sequence, 0, whole);
                region.copy_in(layout.end(layout.slot_of(sequence)) - whole.len(), whole);
                Ok(Sent::AtOnce)
            }
        }
    }

    /// Whether a client asks again when a reply does not come. One whose requests may be lost does so too, and for each time
    /// that it asks there may be a reply: more than its window has slots.
    pub fn is_asked_again(&self) -> bool {
        self.pair.is_lossy()
    }

    /// Whether more than half of the places for replies are taken, as far as is known.
    #[inline]
    pub fn is_half_full(&self, datagrams: Option<&Datagrams<N>>) -> bool {
        match &self.reply {
            Return::Posted(Course::Datagram { .. }) => {
                datagrams.is_some_and(|datagrams| datagrams.outbox.is_half_full())
            }
            _ => self.connected.as_ref().is_some_and(Outbox::is_half_full),
        }
    }

    /// Starts what was posted.
    #[inline]
    pub fn ring(&mut self) -> Result<(), PostError> {
        self.connected.as_mut().map_or(Ok(()), Outbox::ring)
    }
}

impl<N: Nic> Drop for End<N> {
    fn drop(&mut self) {
        if let Some(outbox) = &mut self.connected {
            outbox.pair.fail();
        }
    }
}

/// Makes the connected queue pair of a channel; gives the depth of its receive queue, too.
fn open_pair<N: Nic>(
    nic: &N,
    queue: &N::CompletionQueue,
    link: &N::Link,
    pair: &Pair,
    transport: Transport,
    window: usize,
    tag: Tag,
) -> Result<(Outbox<N>, usize), FabricError> {
    let (send_depth, receive_depth) = depths(pair, window);
    let longest = FRAME_BYTES_MAX + 8 + TAIL_BYTES_MAX;
    let config = QueuePairConfig {
        transport,
        send_depth,
        receive_depth,
        inline_bytes: longest.min(nic.properties().inline_bytes_max),
        message_bytes: FRAME_BYTES_MAX,
        ..QueuePairConfig::default()
    };
    let queue_pair = nic.create_queue_pair(link, &config, queue, queue)?;
    let longest = REPLY_BYTES_MAX + 8 + TAIL_BYTES_MAX;
    let buffers = Buffers::new(nic, window, longest, config.inline_bytes)?;
    Ok((Outbox::new(queue_pair, tag, send_depth, config.inline_bytes, buffers), receive_depth))
}

/// The UD queue pair of a server core.
pub(crate) struct Datagrams<N: Nic> {
    pub outbox: Outbox<N>,
    inbox: Option<Inbox<N>>,
}

impl<N: Nic> Datagrams<N> {
    /// How many completions it may have outstanding.
    pub fn promise(channels_max: usize) -> usize {
        2 * (4 * channels_max).clamp(DATAGRAM_RECEIVES_MIN, DATAGRAM_RECEIVES_MAX)
    }

    /// Makes it over the link of the first client; it is for all.
    pub fn open(
        nic: &N,
        queue: &N::CompletionQueue,
        link: &N::Link,
        pair: &Pair,
        channels_max: usize,
    ) -> Result<Self, FabricError> {
        let properties = nic.properties();
        let depth = (Self::promise(channels_max) / 2).min(properties.queue_depth_max);
        let longest = properties.datagram_bytes_max.min(FRAME_BYTES_MAX + TOKEN_BYTES);
        let config = QueuePairConfig {
            transport: Transport::Ud,
            send_depth: depth,
            receive_depth: depth,
            inline_bytes: longest.min(properties.inline_bytes_max),
            message_bytes: longest,
            ..QueuePairConfig::default()
        };
        let mut queue_pair = nic.create_queue_pair(link, &config, queue, queue)?;
        let tag = Tag::new(Self::PLACE, 0);
        let inbox = match pair.request.transport {
            Transport::Ud => {
                let inbox = Inbox::new(nic, Transport::Ud, depth, longest)?;
                inbox.post_all(&mut queue_pair, tag).map_err(|_| FabricError::State("RECVs were refused"))?;
                Some(inbox)
            }
            _ => None,
        };
        queue_pair.activate()?;
        let buffers = Buffers::new(nic, depth.min(64), longest, config.inline_bytes)?;
        Ok(Self { outbox: Outbox::new(queue_pair, tag, depth, config.inline_bytes, buffers), inbox })
    }

    /// The owner in the ids of its work requests: no channel has this place.
    pub const PLACE: u16 = u16::MAX;

    /// Takes a datagram: its token, and how many bytes its frame has.
    pub fn receive(&mut self, slot: u32, bytes: u32, into: &mut [u8]) -> Result<(u64, usize), PostError> {
        let Some(inbox) = &self.inbox else { return Err(PostError::NotReady) };
        let (tag, token) = (self.outbox.tag(), inbox.token(slot, bytes).unwrap_or(0));
        let bytes = inbox.take(&mut self.outbox.pair, tag, slot, bytes, into)?;
        Ok((token, bytes))
    }
}
