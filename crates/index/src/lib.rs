//! Index structures over any memory: layout, traversal and mutation.
#![forbid(unsafe_code)]
