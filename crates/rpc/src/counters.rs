//! Counters that explain what a channel and a server did. Cheap enough to stay on.

use crate::Loss;

/// What a client's channel did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ChannelCounters {
    /// Requests sent, resent ones included.
    pub requests: u64,
    /// Requests sent again after a reconnect.
    pub resent: u64,
    /// Requests sent again because they, or their replies, seemed lost.
    pub repeated: u64,
    /// Replies that answered a call.
    pub replies: u64,
    /// Replies whose call had been dropped, or had waited too long.
    pub unclaimed_replies: u64,
    /// Replies that answered nothing under way: repeated, or foreign.
    pub foreign_replies: u64,
    /// Calls that had to wait for a slot.
    pub slot_waits: u64,
    /// Polls at which the send queue had no room.
    pub send_waits: u64,
    /// Times the server was lost.
    pub losses: u64,
    /// Polls that found nothing.
    pub empty_polls: u64,
}

/// What a server core did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ServerCounters {
    /// Requests handed out for execution.
    pub requests: u64,
    /// Replies sent, repeated ones included.
    pub replies: u64,
    /// Replies to clients that were gone.
    pub undelivered: u64,
    /// Mutations that arrived again and were answered from memory.
    pub duplicates: u64,
    /// Mutations that arrived again while they were being executed.
    pub duplicates_under_way: u64,
    /// Messages that are dropped and harm nobody: datagrams of strangers, old requests that were overtaken.
    pub stray: u64,
    /// Times that a sleeping core was woken by a client whose requests wake nobody.
    pub woken: u64,
    /// Replies that had to wait, because the client's send queue was full.
    pub backpressure: u64,
    /// Channels accepted.
    pub accepted: u64,
    /// Of these, how many resumed a session.
    pub resumed: u64,
    /// Channels dropped, by the kind of their [`Loss`].
    pub dropped: [u64; Loss::KINDS],
    /// Sessions forgotten: their time was over, or others needed the room.
    pub forgotten: u64,
    /// Polls that found nothing.
    pub empty_polls: u64,
}
