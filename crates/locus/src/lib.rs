//! Locus, an in-memory store for machines that can read each other's memory.
#![forbid(unsafe_code)]
