//! The two ends of a ring between queue pairs, with the bells that wake sleepers.

use super::{
    completion_queue::Queue,
    control::PeerControl,
    light_fence,
    link::LinkInner,
    mapping::{self, Mapping, Rights, page_bytes},
    message::{Header, MESSAGE_BYTES_MAX},
    ring::{Consumer, HEAD_WORDS, LINE_BYTES, Producer, Ring, Violation, lines_of},
    sleep,
    wire::Record,
};
use crate::{FabricError, Facts, Prefetch, QueuePairConfig, Status, Transport};
use rustix::{
    fd::{AsFd, OwnedFd},
    net::{SendFlags, SocketType},
};
use std::{
    rc::Rc,
    sync::{Arc, atomic::AtomicU64},
};

/// The shortest ring, in lines.
const LINES_MIN: u64 = 512;
/// The longest ring, in lines: four of the longest messages.
const LINES_MAX: u64 = (4 * MESSAGE_BYTES_MAX / LINE_BYTES) as u64;
/// How many descriptors a queue pair's facts carry: the ring, and the bells of its receive and its send queue.
const HANDLES: usize = 3;

/// What a consumer says to its producer, at most once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u64)]
pub(crate) enum Verdict {
    /// No RECV was posted for a message that does not wait.
    NotReady = 1,
    /// A message was longer than its RECV.
    TooLong = 2,
    /// The producer broke the rules of the ring.
    Violation = 3,
    /// The consumer's queue pair is in error or gone.
    Closed = 4,
}

/// What a verdict means for the oldest message that was not consumed.
pub(crate) fn status_of(verdict: u64) -> Status {
    match verdict {
        1 => Status::ReceiverNotReady,
        2 => Status::RemoteInvalidRequest,
        _ => Status::PeerLost,
    }
}

/// Wakes one completion queue of a peer.
#[derive(Debug)]
pub(crate) struct Bell {
    control: Arc<PeerControl>,
    flag: usize,
    socket: OwnedFd,
    woken: u64,
    fence: bool,
}

impl Bell {
    /// To be called after something was published: wakes the peer if it sleeps.
    #[inline(always)]
    pub(crate) fn ring(&mut self) {
        light_fence(self.fence);
        if sleep::must_wake(self.control.word(self.flag), &mut self.woken) {
            self.wake();
        }
    }

    #[cold]
    fn wake(&self) {
        // A socket rather than an eventfd: MSG_DONTWAIT holds whatever the peer did to the descriptor that it gave us,
        // so that no peer can block us. It fails only when the peer is gone or has been rung already.
        let _ = rustix::net::send(&self.socket, &[1], SendFlags::DONTWAIT | SendFlags::NOSIGNAL);
    }
}

/// The words of a queue pair's record.
struct Described {
    number: u64,
    transport: Transport,
    lines: u64,
    message_bytes: u64,
    /// The sleep flags of the completion queues of its RECVs and of its sends.
    sleepers: [u16; 2],
}

impl Described {
    fn encode(&self) -> Vec<u8> {
        let transport = self.transport as u64;
        let [receive, send] = self.sleepers.map(u64::from);
        Record::QueuePair.encode(&[self.number, transport, self.lines, self.message_bytes, receive, send])
    }

    /// Checks what a peer says; an error says what is wrong.
    fn decode(bytes: &[u8], transport: Transport) -> Result<Self, &'static str> {
        let [number, theirs, lines, message_bytes, receive, send] = Record::QueuePair.decode(bytes)?;
        if theirs != transport as u64 {
            return Err("its queue pair is of another transport");
        }
        if !lines.is_power_of_two() || !(LINES_MIN..=LINES_MAX).contains(&lines) {
            return Err("its ring has an impossible size");
        }
        if message_bytes > MESSAGE_BYTES_MAX as u64 || 2 * (lines_of(message_bytes as usize) + 1) > lines {
            return Err("its messages do not fit its ring");
        }
        let narrow =
            |word: u64| u16::try_from(word).map_err(|_| "its sleep flag is outside of the control area");
        Ok(Self { number, transport, lines, message_bytes, sleepers: [narrow(receive)?, narrow(send)?] })
    }
}

fn file_bytes(lines: u64) -> usize {
    (HEAD_WORDS * 8 + lines as usize * LINE_BYTES).next_multiple_of(page_bytes())
}

/// Where messages of one peer arrive.
#[derive(Debug)]
pub(crate) struct Inbound {
    pub(crate) link: Arc<LinkInner>,
    file: OwnedFd,
    mapping: Mapping,
    lines: u64,
    consumer: Consumer,
    /// Lines that were consumed when the producer was last told.
    told: u64,
    spoken: bool,
    /// The ends of our bells that the peer rings, and where they are kept.
    bells: [OwnedFd; 2],
    numbers: [(Rc<Queue>, usize); 2],
}

impl Inbound {
    /// Makes a ring for the messages of a link's peer.
    pub(crate) fn create(
        link: &Arc<LinkInner>,
        config: &QueuePairConfig,
        receive: &Rc<Queue>,
        send: &Rc<Queue>,
    ) -> Result<Self, FabricError> {
        let messages = match config.transport {
            // What finds no room is lost: there should be room for a small message per RECV.
            Transport::Uc | Transport::Ud => 2 * config.receive_depth as u64,
            Transport::Rc => 0,
        };
        let longest = 2 * (lines_of(config.message_bytes) + 1);
        let lines = longest.max(messages).max(LINES_MIN).next_power_of_two().min(LINES_MAX);
        let bytes = file_bytes(lines);
        let file = mapping::create_file(bytes, false, "a ring")?;
        let mapping = Mapping::of_file(file.as_fd(), bytes, Rights::Store)?;
        mapping.populate();
        mapping::seal(file.as_fd(), false)?;
        let (receive_number, receive_bell) = receive.channel.make_bell()?;
        let (send_number, send_bell) = send.channel.make_bell()?;
        Ok(Self {
            link: link.clone(),
            file,
            mapping,
            lines,
            consumer: Consumer::default(),
            told: 0,
            spoken: false,
            bells: [receive_bell, send_bell],
            numbers: [(receive.clone(), receive_number), (send.clone(), send_number)],
        })
    }

    /// What the peer needs to send into it.
    pub(crate) fn facts(&self, number: u32, config: &QueuePairConfig) -> Result<Facts, FabricError> {
        let sleepers = [0, 1].map(|index: usize| self.numbers[index].0.channel.sleeper.line());
        let described = Described {
            number: u64::from(number),
            transport: config.transport,
            lines: self.lines,
            message_bytes: config.message_bytes as u64,
            sleepers,
        };
        let copy = |file: &OwnedFd| {
            file.try_clone().map_err(|source| FabricError::System { what: "a descriptor", source })
        };
        let handles = vec![copy(&self.file)?, copy(&self.bells[0])?, copy(&self.bells[1])?];
        Ok(Facts { bytes: described.encode(), handles })
    }

    #[inline(always)]
    fn ring(&self) -> Ring<'_, AtomicU64> {
        Ring::new(self.mapping.words(), self.lines)
    }

    /// Whether there is something to peek at.
    #[inline(always)]
    pub(crate) fn has_message(&self) -> bool {
        self.consumer.peek(&self.ring()) != 0
    }

    /// The next message's header, if there is a message, checked.
    #[inline(always)]
    pub(crate) fn peek(&self, message_bytes: usize) -> Result<Option<Header>, Violation> {
        match self.consumer.peek(&self.ring()) {
            0 => Ok(None),
            word => Header::decode(word, message_bytes).map(Some),
        }
    }

    /// The payload of the message that was peeked at, in one or two pieces.
    #[inline]
    pub(crate) fn payload(&self, header: Header) -> [(&[AtomicU64], usize); 2] {
        let data = self.ring().data;
        let start = self.ring().word_of(self.consumer.position()) + 1;
        let bytes = header.payload_bytes();
        let first = bytes.min((data.len() - start) * 8);
        [(&data[start..], first), (data, bytes - first)]
    }

    /// Asks the processor for the beginning of the message after the one that was peeked at: it is looked at next, and comes
    /// while this one is copied.
    #[inline(always)]
    pub(crate) fn ahead(&self, header: Header) {
        let (ring, next) = (self.ring(), self.consumer.position() + lines_of(header.payload_bytes()));
        Prefetch::of(ring.data[ring.word_of(next)].as_ptr().cast(), 0, 8).start();
    }

    /// Goes past the message that was peeked at.
    #[inline]
    pub(crate) fn advance(&mut self, header: Header) {
        self.consumer.advance(lines_of(header.payload_bytes()));
    }

    /// Tells the producer what was consumed; true if so much was that it may be waiting for room.
    #[inline]
    pub(crate) fn publish(&mut self) -> bool {
        if self.told == self.consumer.position() {
            return false;
        }
        self.consumer.publish(&self.ring());
        let quarter = self.lines / 4;
        let crossed = self.told / quarter != self.consumer.position() / quarter;
        self.told = self.consumer.position();
        crossed
    }

    /// Speaks the verdict, if none was spoken before.
    pub(crate) fn speak(&mut self, verdict: Verdict) {
        if !self.spoken {
            self.publish();
            self.ring().set_verdict(verdict as u64);
            self.spoken = true;
        }
    }

    /// Whether a verdict was spoken: then nothing more is taken from this ring.
    #[inline(always)]
    pub(crate) fn spoken(&self) -> bool {
        self.spoken
    }
}

impl Drop for Inbound {
    fn drop(&mut self) {
        self.speak(Verdict::Closed);
        for (queue, number) in &self.numbers {
            queue.channel.drop_bell(*number);
        }
    }
}

/// So many lines of the next message are asked for ahead, at the most, beside its first.
const TAKEN_MAX: u64 = 3;

/// Where messages to one queue pair of a peer go.
#[derive(Debug)]
pub(crate) struct Outbound {
    mapping: Mapping,
    lines: u64,
    producer: Producer,
    /// The longest message that the peer takes, in bytes.
    pub(crate) message_bytes: usize,
    receive_bell: Bell,
    send_bell: Bell,
}

impl Outbound {
    /// Takes the facts of a peer's queue pair; an error says what is wrong with them. `fence`: the two processes cannot
    /// rely on membarrier.
    pub(crate) fn import(
        facts: Facts,
        link: &LinkInner,
        transport: Transport,
        fence: bool,
    ) -> Result<Self, &'static str> {
        let described = Described::decode(&facts.bytes, transport)?;
        let handles = <[OwnedFd; HANDLES]>::try_from(facts.handles);
        let [file, receive, send] = handles.map_err(|_| "a queue pair comes with three descriptors")?;
        let mapping = mapping::import(file.as_fd(), file_bytes(described.lines), Rights::Store)?;
        mapping.populate();
        let control = &link.peer.control;
        let bell = |line, socket: OwnedFd| {
            if rustix::net::sockopt::socket_type(&socket) != Ok(SocketType::STREAM) {
                return Err("its bell is not a socket");
            }
            let flag = control.sleeper(line).ok_or("its sleep flag is outside of the control area")?;
            Ok::<_, &'static str>(Bell { control: control.clone(), flag, socket, woken: 0, fence })
        };
        let receive_bell = bell(described.sleepers[0], receive)?;
        let send_bell = bell(described.sleepers[1], send)?;
        let message_bytes = described.message_bytes as usize;
        let producer = Producer::default();
        Ok(Self { mapping, lines: described.lines, producer, message_bytes, receive_bell, send_bell })
    }

    #[inline(always)]
    fn ring(&self) -> Ring<'_, AtomicU64> {
        Ring::new(self.mapping.words(), self.lines)
    }

    /// Sends a message; false if there is no room for it now.
    #[inline]
    pub(crate) fn send(
        &mut self,
        header: Header,
        fill: impl FnOnce(&mut super::copy::Sink<'_>),
    ) -> Result<bool, Violation> {
        let ring = Ring::new(self.mapping.words(), self.lines);
        let lines = lines_of(header.payload_bytes());
        if !self.producer.reserve(&ring, lines)? {
            return Ok(false);
        }
        if header.payload_bytes() > 0 {
            let start = ring.word_of(self.producer.position()) + 1;
            let mut sink = super::copy::Sink::ring(ring.data, start);
            fill(&mut sink);
            sink.finish();
        }
        self.producer.publish(&ring, lines, header.encode());
        // The first line of the next message is on its way here, as a header of zero was just stored there; the others, if it is
        // as long, were read by the consumer.
        for line in 1..lines.min(1 + TAKEN_MAX) {
            crate::prefetch::take(&ring.data[ring.word_of(self.producer.position() + line)]);
        }
        self.receive_bell.ring();
        Ok(true)
    }

    /// Where the next message will start, in lines.
    #[inline]
    pub(crate) fn position(&self) -> u64 {
        self.producer.position()
    }

    /// Looks what the consumer says: its verdict or zero, and how many lines it has consumed.
    #[inline]
    pub(crate) fn consumed(&mut self) -> Result<(u64, u64), Violation> {
        let ring = Ring::new(self.mapping.words(), self.lines);
        // The verdict first: with it, the position is the last one.
        let verdict = ring.verdict();
        Ok((verdict, self.producer.consumed(&ring)?))
    }

    /// The consumer's verdict, or zero.
    #[inline]
    pub(crate) fn verdict(&self) -> u64 {
        self.ring().verdict()
    }

    /// Wakes the peer if it sleeps until something arrives.
    #[inline]
    pub(crate) fn wake_receiver(&mut self) {
        self.receive_bell.ring();
    }

    /// Wakes the peer if it waits for us to consume its messages.
    #[inline]
    pub(crate) fn wake_sender(&mut self) {
        self.send_bell.ring();
    }

    /// Wakes the peer whatever it waits for.
    pub(crate) fn wake(&mut self) {
        self.receive_bell.ring();
        self.send_bell.ring();
    }
}
