//! Request and reply channels over pairs of verbs: framing, windows, retry, at-most-once.
//!
//! A client has one [`Channel`] to each server core, over queue pairs of its own, and all of a client core's channels
//! share a [`Hub`]. A server core has one [`Server`] for all its clients. Links, sessions' names and the order of the
//! handshake belong to the store: it makes a channel, sends its [`Channel::facts`] over the link, lets the server core
//! [`Server::accept`] them, and hands the answer to [`Channel::connect`].
#![forbid(unsafe_code)]

mod ahead;
mod channel;
mod counters;
mod doorbell;
mod end;
mod error;
mod frame;
mod greeting;
mod hub;
mod inbox;
mod line;
mod outbox;
mod pair;
mod server;
mod sessions;
mod slots;
mod staging;
mod tag;
mod window;

pub use ahead::Ahead;
pub use channel::{Call, Channel, ChannelConfig, Reply, Request, Step};
pub use counters::{ChannelCounters, ServerCounters};
pub use error::{CHANGE_PENDING, Loss, RpcError};
pub use frame::{
    FRAME_BYTES_MAX, FrameError, INLINE_VALUE_BYTES_MAX, KEY_BYTES_MAX, REPLY_HEADER_BYTES,
    REQUEST_HEADER_BYTES, ReplyHeader, RequestHeader, STAGED_BYTES_MAX, Staged, fold,
};
pub use greeting::Greeting;
pub use hub::Hub;
pub use pair::{Carrier, Pair, Way};
pub use server::{Accepted, Answer, BATCH_MAX, Batch, ChannelId, Dropped, Incoming, Server, ServerConfig};
pub use sessions::{SessionId, SessionLimits};
pub use staging::Staging;
