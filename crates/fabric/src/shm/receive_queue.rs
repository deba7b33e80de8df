//! The receive queue: RECVs wait here for messages, and messages in the rings for RECVs; they meet when the receiver
//! polls.

use super::{
    ShmNic,
    channel::Verdict,
    copy::{self, Neighbours, Sink},
    message::Header,
    queue_pair::{Core, Range},
};
use crate::{Completion, LocalSlice, Opcode, PostError, QueuePairState, Status, Transport, checks};

/// The GRH that precedes each datagram in its buffer, in bytes. Here it is all zeroes.
pub(crate) const GRH_BYTES: usize = 40;

/// How many messages of one ring are taken per poll. A peer could otherwise hold us here: old headers that it makes valid
/// again come round without end.
const MESSAGES_MAX: usize = 256;

/// A posted RECV.
#[derive(Clone, Copy, Debug)]
struct Receive {
    id: u64,
    buffer: Range,
}

/// Posted RECVs, oldest first.
#[derive(Debug)]
pub(crate) struct Receives {
    /// A power of two of places, of which `depth` are used.
    places: Box<[Receive]>,
    depth: usize,
    head: usize,
    tail: usize,
}

impl Receives {
    pub(crate) fn new(depth: usize) -> Self {
        let empty = Receive { id: 0, buffer: Range { held: 0, offset: 0, bytes: 0 } };
        Self { places: vec![empty; depth.max(1).next_power_of_two()].into(), depth, head: 0, tail: 0 }
    }

    #[inline]
    fn place(&mut self, number: usize) -> &mut Receive {
        let mask = self.places.len() - 1;
        &mut self.places[number & mask]
    }

    #[inline]
    fn oldest(&mut self) -> Option<Receive> {
        (self.head != self.tail).then(|| *self.place(self.head))
    }
}

/// What became of a message.
enum Outcome {
    /// It was taken, delivered or dropped.
    Taken,
    /// It waits for a RECV.
    Waits,
    /// The queue pair broke.
    Broke,
}

impl Core {
    #[inline]
    pub(crate) fn post_receive(&mut self, id: u64, buffer: &LocalSlice<'_, ShmNic>) -> Result<(), PostError> {
        checks::range(buffer)?;
        if self.receives.tail - self.receives.head >= self.receives.depth {
            return Err(PostError::ReceiveQueueFull(self.receives.depth));
        }
        let buffer = self.hold(buffer.region, buffer.offset, buffer.bytes);
        let tail = self.receives.tail;
        *self.receives.place(tail) = Receive { id, buffer };
        self.receives.tail += 1;
        Ok(())
    }

    /// Takes all messages that can be taken.
    #[inline]
    pub(crate) fn advance_receives(&mut self) {
        let mut index = 0;
        while let Some(inbound) = self.inbound.get(index) {
            if inbound.has_message() {
                self.drain(index);
            }
            index += 1;
        }
    }

    /// Takes messages from one ring.
    fn drain(&mut self, index: usize) {
        let mut acknowledge = false;
        let mut taken = false;
        for _ in 0..MESSAGES_MAX {
            let Some(inbound) = self.inbound.get(index).filter(|inbound| !inbound.spoken()) else { return };
            match inbound.peek(self.config.message_bytes) {
                Ok(None) => break,
                Ok(Some(header)) => match self.deliver(index, header) {
                    Outcome::Taken => {
                        acknowledge |= header.acknowledge;
                        taken = true;
                    }
                    Outcome::Waits => break,
                    Outcome::Broke => return,
                },
                Err(_) => return self.accuse(index),
            }
        }
        if taken {
            // Told after each batch: the producer hardly ever looks, so this line stays in our cache.
            acknowledge |= self.inbound[index].publish();
            if acknowledge && let Some(outbound) = &mut self.outbound {
                outbound.wake_sender();
            }
        }
    }

    /// Takes a message past the RECVs: as if the oldest had been posted again. None if there is none, or it is not simply that.
    #[inline]
    pub(crate) fn receive_at_once(&mut self, into: &mut [u8]) -> Option<usize> {
        let inbound = self.inbound.first_mut().filter(|inbound| inbound.has_message())?;
        let plain = self.state == QueuePairState::Ready
            && self.config.transport != Transport::Ud
            && !inbound.spoken();
        let header = if plain { inbound.peek(self.config.message_bytes).ok()?? } else { return None };
        let bytes = header.payload_bytes();
        let room = self.receives.oldest()?.buffer.bytes.min(into.len());
        if header.write || header.immediate.is_some() || bytes > room {
            return None;
        }
        inbound.ahead(header);
        let mut rest = &mut into[..bytes];
        for (piece, bytes) in inbound.payload(header) {
            let (front, back) = rest.split_at_mut(bytes);
            copy::copy_out(piece, 0, front);
            rest = back;
        }
        inbound.advance(header);
        if (inbound.publish() || header.acknowledge)
            && let Some(outbound) = &mut self.outbound
        {
            outbound.wake_sender();
        }
        Some(bytes)
    }

    /// Gives one message to the oldest RECV.
    #[inline]
    fn deliver(&mut self, index: usize, header: Header) -> Outcome {
        let Some(receive) = self.receives.oldest() else { return self.miss(index, header) };
        let front = if self.config.transport == Transport::Ud { GRH_BYTES } else { 0 };
        let bytes = header.payload_bytes() + front;
        if bytes > receive.buffer.bytes {
            return self.overrun(index, header, receive);
        }
        if bytes > 0 {
            let words = self.local.get(receive.buffer.held).words();
            let Range { offset, bytes: room, .. } = receive.buffer;
            // A buffer of whole words shares none of them with anybody.
            let whole = offset.is_multiple_of(8) && room.is_multiple_of(8);
            let mut sink = Sink::new(words, offset, if whole { Neighbours::Quiet } else { Neighbours::Busy });
            sink.zeroes(front);
            for (piece, bytes) in self.inbound[index].payload(header) {
                sink.words(piece, 0, bytes);
            }
            sink.finish();
        }
        self.inbound[index].advance(header);
        self.retire_receive(receive);
        self.receive_queue.push(Completion {
            id: receive.id,
            queue_pair: self.number,
            status: Status::Success,
            opcode: if header.write { Opcode::ReceiveWrite } else { Opcode::Receive },
            bytes: (header.bytes + front) as u32,
            immediate: header.immediate,
        });
        Outcome::Taken
    }

    fn retire_receive(&mut self, receive: Receive) {
        self.local.release(receive.buffer.held);
        self.receives.head += 1;
    }

    /// A message finds no RECV.
    fn miss(&mut self, index: usize, header: Header) -> Outcome {
        match self.config.transport {
            Transport::Rc if header.fail_if_not_ready => {
                self.inbound[index].speak(Verdict::NotReady);
                if let Some(outbound) = &mut self.outbound {
                    outbound.wake_sender();
                }
                Outcome::Broke
            }
            Transport::Rc => Outcome::Waits,
            Transport::Uc | Transport::Ud => {
                self.inbound[index].advance(header);
                Outcome::Taken
            }
        }
    }

    /// A message is longer than its RECV.
    fn overrun(&mut self, index: usize, header: Header, receive: Receive) -> Outcome {
        if self.config.transport != Transport::Rc {
            // Dropped; the RECV stays, so that no stranger can break a datagram queue pair.
            self.inbound[index].advance(header);
            return Outcome::Taken;
        }
        self.inbound[index].speak(Verdict::TooLong);
        self.retire_receive(receive);
        self.receive_queue.push(self.failed(receive.id, Status::LocalLength));
        self.fail(Status::Flushed);
        Outcome::Broke
    }

    /// A peer stored something in its ring that no peer stores.
    #[cold]
    fn accuse(&mut self, index: usize) {
        self.inbound[index].speak(Verdict::Violation);
        if self.config.transport == Transport::Ud {
            // Only this peer is not heard any more.
            return;
        }
        if let Some(receive) = self.receives.oldest() {
            self.retire_receive(receive);
            self.receive_queue.push(self.failed(receive.id, Status::ProtocolViolation));
        }
        self.fail(Status::ProtocolViolation);
    }

    /// Ends posted RECVs of a queue pair in error.
    pub(crate) fn flush_receives(&mut self) {
        debug_assert!(self.state == QueuePairState::Error);
        while self.receive_queue.has_room()
            && let Some(receive) = self.receives.oldest()
        {
            self.retire_receive(receive);
            self.receive_queue.push(self.failed(receive.id, Status::Flushed));
        }
    }
}
