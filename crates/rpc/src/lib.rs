//! Request and reply channels over pairs of verbs: framing, windows, retry, at-most-once.
#![forbid(unsafe_code)]
