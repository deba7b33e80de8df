//! One operation as its client saw it.

use crate::text::Shown;
use std::fmt;

/// What a client did and what it saw.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Operation {
    /// Who.
    pub client: u32,
    /// On which key.
    pub key: Vec<u8>,
    /// What, and with what result.
    pub action: Action,
    /// When it began, in nanoseconds of a clock that all clients of the history share.
    pub invoked_ns: u64,
    /// When it ended; `None` if it never returned.
    pub returned_ns: Option<u64>,
    /// Whether its result is known.
    pub outcome: Outcome,
}

/// What an operation does, with its result. The result means something only if the operation [is
/// certain](Operation::is_certain).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// A get, and the value that it found; `None` if the key was absent.
    Get(Option<Vec<u8>>),
    /// A put of a value.
    Put(Vec<u8>),
    /// A delete.
    Delete {
        /// Whether it says that the key was present.
        found: bool,
    },
}

/// Whether the result of an operation is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The operation took effect between its invocation and its return.
    Ok,
    /// It may take effect at any time after its invocation, or never.
    Unknown,
}

impl Operation {
    /// Whether its result says that the key was absent.
    pub(crate) fn found_nothing(&self) -> bool {
        matches!(self.action, Action::Get(None) | Action::Delete { found: false })
    }

    /// Whether the operation took effect, with the result it says. One that never returned is as good as one whose
    /// outcome is unknown.
    pub fn is_certain(&self) -> bool {
        self.outcome == Outcome::Ok && self.returned_ns.is_some()
    }
}

impl fmt::Display for Operation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:>8}", self.invoked_ns)?;
        match self.returned_ns {
            Some(returned_ns) => write!(f, " .. {returned_ns:<8} ns")?,
            None => write!(f, " .. {:<8} ns", "never")?,
        }
        write!(f, "  client {:<3} ", self.client)?;
        match (&self.action, self.is_certain()) {
            (Action::Put(value), _) => write!(f, "put {}", Shown(value))?,
            (Action::Get(_), false) => write!(f, "get")?,
            (Action::Get(Some(value)), true) => write!(f, "get found {}", Shown(value))?,
            (Action::Get(None), true) => write!(f, "get found nothing")?,
            (Action::Delete { .. }, false) => write!(f, "delete")?,
            (Action::Delete { found: true }, true) => write!(f, "delete found the key")?,
            (Action::Delete { found: false }, true) => write!(f, "delete found nothing")?,
        }
        if !self.is_certain() {
            write!(f, " (outcome unknown)")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_operation_prints_what_was_seen() {
        let mut operation = Operation {
            client: 7,
            key: b"k".to_vec(),
            action: Action::Get(Some(b"v\n\xFF".to_vec())),
            invoked_ns: 10,
            returned_ns: Some(20),
            outcome: Outcome::Ok,
        };
        assert_eq!(operation.to_string(), "      10 .. 20       ns  client 7   get found \"hex:760aff\"");
        operation.action = Action::Put(vec![b'x'; 100]);
        operation.outcome = Outcome::Unknown;
        let text = operation.to_string();
        assert!(text.ends_with("xxx...\" (100 bytes) (outcome unknown)"), "{text}");
        operation.returned_ns = None;
        assert!(operation.to_string().contains(".. never"));
    }
}
