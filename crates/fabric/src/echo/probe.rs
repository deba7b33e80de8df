//! A client of echoes that also READs and WRITEs the server's memory: what one queue pair does is measured with it.
//!
//! READs and WRITEs go over ends that WRITE, which have memory of the server, and to the slots behind those that it looks
//! for messages in, so it never takes one for a message. They are all signaled, since each is waited for. Echoes go
//! over ends that SEND.

use super::{ECHO_BYTES_MAX, ECHO_WINDOW, EchoEnd, EchoVerb, Head, RECEIVES, message_bytes};
use crate::{
    Completion, CompletionQueue, FabricError, LocalSlice, Nic, Payload, QueuePair, RemoteRegion, RemoteSlice,
    SendRequest, Status, Verb,
};

/// What is done over and over.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Task {
    /// A READ.
    Read,
    /// A WRITE, inlined where the NIC takes that many bytes.
    Write,
    /// A message there and one back, by SEND.
    Echo {
        /// The length of the answer, in bytes.
        reply_bytes: usize,
    },
}

/// One queue pair with a server of echoes.
pub struct Probe<N: Nic> {
    end: EchoEnd<N>,
    /// The numbers of the next message, and of the next answer.
    next: u32,
    answer: u32,
    /// READs and WRITEs that have not completed.
    one_sided: usize,
}

impl Task {
    /// Which ends it goes over.
    pub fn ends(self) -> EchoVerb {
        match self {
            Self::Read | Self::Write => EchoVerb::Write,
            Self::Echo { .. } => EchoVerb::Send,
        }
    }
}

impl<N: Nic> Probe<N> {
    /// How many tasks may be under way.
    pub const WINDOW_MAX: usize = ECHO_WINDOW;
    /// The longest READ, WRITE or message, in bytes.
    pub const BYTES_MAX: usize = ECHO_BYTES_MAX;

    /// Over a connected end.
    pub fn new(end: EchoEnd<N>) -> Self {
        Self { end, next: 1, answer: 1, one_sided: 0 }
    }

    /// Where things complete: what to wait on.
    pub fn queue(&self) -> &N::CompletionQueue {
        self.end.queue()
    }

    /// Starts a task with so many bytes; false if there is no room yet.
    #[inline]
    pub fn start(&mut self, task: Task, bytes: usize) -> Result<bool, FabricError> {
        if task.ends() != self.end.verb {
            return Err(FabricError::State(
                "READs and WRITEs need an end that WRITEs, echoes one that SENDs",
            ));
        }
        let under_way = self.one_sided + self.next.wrapping_sub(self.answer) as usize;
        if under_way >= Self::WINDOW_MAX {
            return Ok(false);
        }
        match task {
            Task::Read | Task::Write => self.start_one_sided(task, bytes)?,
            Task::Echo { reply_bytes } => {
                if !self.end.room()? {
                    return Ok(false);
                }
                let (bytes, reply_bytes) = (message_bytes(bytes), message_bytes(reply_bytes));
                self.end.post(Head { number: self.next, bytes, reply_bytes })?;
                self.next = self.next.wrapping_add(1);
            }
        }
        self.end.ring()?;
        Ok(true)
    }

    fn start_one_sided(&mut self, task: Task, bytes: usize) -> Result<(), FabricError> {
        static ZEROS: [u8; 256] = [0; 256];
        let end = &mut self.end;
        let bytes = bytes.clamp(1, ECHO_BYTES_MAX);
        let slot = ECHO_WINDOW + end.posted as usize % (RECEIVES - ECHO_WINDOW);
        let offset = slot * ECHO_BYTES_MAX;
        let absent = || FabricError::State("an end is connected before it is used");
        let region = end.theirs.as_ref().ok_or_else(absent)?;
        if region.bytes() < offset + ECHO_BYTES_MAX {
            let what = format!("its memory for echoes has {} bytes only", region.bytes());
            return Err(FabricError::Protocol { peer: crate::Link::peer(&end.link), what });
        }
        let (remote, local) =
            (RemoteSlice { region, offset }, LocalSlice { region: &end.outgoing, offset, bytes });
        let pieces: [&[u8]; 1] = [&ZEROS[..bytes.min(ZEROS.len())]];
        let verb = match task {
            Task::Read => Verb::Read { into: local, from: remote },
            _ if bytes <= end.inline_bytes => {
                Verb::Write { payload: Payload::Inline(&pieces), to: remote, immediate: None }
            }
            _ => Verb::Write { payload: Payload::Slice(local), to: remote, immediate: None },
        };
        end.posted = end.posted.wrapping_add(1);
        end.unrung = true;
        let request = SendRequest { id: end.posted.into(), verb, signaled: true };
        end.pair.post_send(&request).map_err(|_| end.broken())?;
        self.one_sided += 1;
        Ok(())
    }

    /// Takes what has ended: how many tasks that were.
    #[inline]
    pub fn ended(&mut self) -> Result<usize, FabricError> {
        let mut count = 0;
        while self.answer != self.next && self.end.arrived(self.answer)?.is_some() {
            self.answer = self.answer.wrapping_add(1);
            count += 1;
        }
        if self.one_sided > 0 {
            let mut completions = [Completion::EMPTY; 16];
            let polled = self.end.sent.poll(&mut completions);
            for completion in &completions[..polled] {
                if completion.status != Status::Success {
                    return Err(self.end.broken());
                }
                self.end.done = completion.id as u32;
            }
            self.one_sided -= polled;
            count += polled;
        }
        Ok(count)
    }
}
