//! The server and the client of a store: partitions, mutations, dispatch, growth, and the table of designs.
#![forbid(unsafe_code)]
