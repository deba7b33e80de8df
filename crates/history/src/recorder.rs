//! One client's records, kept while its operations are timed: memory is reserved beforehand, keys and values are copied
//! one after another into one buffer, and nothing is formatted.

use crate::{Action, HistoryError, Operation, Outcome};
use std::fmt;

/// How much a recorder takes. All of it is reserved when the recorder is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Capacity {
    /// Operations.
    pub operations_max: usize,
    /// Bytes of keys and values in all of them.
    pub bytes_max: usize,
}

impl Default for Capacity {
    fn default() -> Self {
        Self { operations_max: 1 << 20, bytes_max: 256 << 20 }
    }
}

impl fmt::Display for Capacity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} operations, {} bytes of keys and values", self.operations_max, self.bytes_max)
    }
}

/// An operation that was begun: to be handed back to its recorder with the result. If it never is, the operation never
/// returned.
#[derive(Debug)]
#[must_use = "an operation whose ticket is dropped never returns"]
pub struct Ticket(u32);

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Get,
    Put,
    Delete,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Status {
    Begun,
    Ok { found: bool },
    Unknown,
    Withdrawn,
}

struct Record {
    kind: Kind,
    status: Status,
    key_at: usize,
    key_bytes: u32,
    value_bytes: u32,
    value_at: usize,
    invoked_ns: u64,
    returned_ns: u64,
}

/// What one client does and sees.
///
/// Times are nanoseconds of one clock that never goes back, shared by all clients of a history. Read it before an
/// operation is begun and after its result is there: an interval that is too long hides mistakes, one that is too short
/// makes them up. Operations that touch at a moment count as overlapping. A key is absent at first, so whatever loads
/// keys is a client, too.
pub struct Recorder {
    client: u32,
    capacity: Capacity,
    records: Vec<Record>,
    bytes: Vec<u8>,
}

impl Recorder {
    /// A recorder for a client, with its memory reserved.
    pub fn new(client: u32, capacity: Capacity) -> Result<Self, HistoryError> {
        let Capacity { operations_max, bytes_max } = capacity;
        let (mut records, mut bytes) = (Vec::new(), Vec::new());
        let reserved =
            records.try_reserve_exact(operations_max).and_then(|()| bytes.try_reserve_exact(bytes_max));
        match reserved {
            Ok(()) => Ok(Self { client, capacity, records, bytes }),
            Err(_) => Err(HistoryError::Memory { operations: operations_max, bytes: bytes_max }),
        }
    }

    /// How many operations were begun.
    pub fn operations(&self) -> usize {
        self.records.len()
    }

    /// Begins a get.
    pub fn get(&mut self, key: &[u8], invoked_ns: u64) -> Result<Ticket, HistoryError> {
        self.begin(Kind::Get, key, &[], invoked_ns)
    }

    /// Begins a put.
    pub fn put(&mut self, key: &[u8], value: &[u8], invoked_ns: u64) -> Result<Ticket, HistoryError> {
        self.begin(Kind::Put, key, value, invoked_ns)
    }

    /// Begins a delete.
    pub fn delete(&mut self, key: &[u8], invoked_ns: u64) -> Result<Ticket, HistoryError> {
        self.begin(Kind::Delete, key, &[], invoked_ns)
    }

    /// Ends a get with what it found. If there is no room for that, the get counts as never returned.
    ///
    /// # Panics
    ///
    /// If the ticket is not that of a get.
    pub fn got(
        &mut self,
        ticket: Ticket,
        value: Option<&[u8]>,
        returned_ns: u64,
    ) -> Result<(), HistoryError> {
        let at = self.keep(value.unwrap_or_default())?;
        let record = self.end(ticket, Some(Kind::Get), Status::Ok { found: value.is_some() }, returned_ns);
        record.value_at = at;
        record.value_bytes = value.map_or(0, <[u8]>::len) as u32;
        Ok(())
    }

    /// Ends a put that the store acknowledged.
    ///
    /// # Panics
    ///
    /// If the ticket is not that of a put.
    pub fn acknowledged(&mut self, ticket: Ticket, returned_ns: u64) {
        self.end(ticket, Some(Kind::Put), Status::Ok { found: false }, returned_ns);
    }

    /// Ends a delete with whether it found the key.
    ///
    /// # Panics
    ///
    /// If the ticket is not that of a delete.
    pub fn deleted(&mut self, ticket: Ticket, found: bool, returned_ns: u64) {
        self.end(ticket, Some(Kind::Delete), Status::Ok { found }, returned_ns);
    }

    /// Ends an operation of which the client does not know whether it took effect, or ever will.
    pub fn unknown(&mut self, ticket: Ticket, returned_ns: u64) {
        self.end(ticket, None, Status::Unknown, returned_ns);
    }

    /// Takes back an operation that certainly had no effect and gave no answer: the history will not have it.
    pub fn withdraw(&mut self, ticket: Ticket) {
        self.end(ticket, None, Status::Withdrawn, 0);
    }

    fn begin(
        &mut self,
        kind: Kind,
        key: &[u8],
        value: &[u8],
        invoked_ns: u64,
    ) -> Result<Ticket, HistoryError> {
        let limit = self.capacity.operations_max.min(u32::MAX as usize);
        if self.records.len() >= limit {
            return Err(HistoryError::OperationsOfClient { client: self.client, limit });
        }
        let key_at = self.keep(key)?;
        let value_at = self.keep(value)?;
        let ticket = Ticket(self.records.len() as u32);
        self.records.push(Record {
            kind,
            status: Status::Begun,
            key_at,
            key_bytes: key.len() as u32,
            value_bytes: value.len() as u32,
            value_at,
            invoked_ns,
            returned_ns: 0,
        });
        Ok(ticket)
    }

    /// Copies bytes; gives where they are.
    fn keep(&mut self, bytes: &[u8]) -> Result<usize, HistoryError> {
        let at = self.bytes.len();
        let room = (self.capacity.bytes_max - at).min(u32::MAX as usize);
        if bytes.len() > room {
            return Err(HistoryError::BytesOfClient { client: self.client, limit: self.capacity.bytes_max });
        }
        self.bytes.extend_from_slice(bytes);
        Ok(at)
    }

    fn end(&mut self, ticket: Ticket, kind: Option<Kind>, status: Status, returned_ns: u64) -> &mut Record {
        let record = &mut self.records[ticket.0 as usize];
        assert!(
            record.status == Status::Begun && kind.is_none_or(|kind| kind == record.kind),
            "a ticket of another recorder, or of another kind of operation"
        );
        record.status = status;
        record.returned_ns = returned_ns;
        record
    }

    /// The operations that were not withdrawn, as they were begun.
    pub fn into_operations(self) -> impl Iterator<Item = Operation> {
        let Self { client, records, bytes, .. } = self;
        records.into_iter().filter(|record| record.status != Status::Withdrawn).map(move |record| {
            let text = |at: usize, length: u32| bytes[at..at + length as usize].to_vec();
            let value = text(record.value_at, record.value_bytes);
            let found = record.status == Status::Ok { found: true };
            Operation {
                client,
                key: text(record.key_at, record.key_bytes),
                action: match record.kind {
                    Kind::Get => Action::Get(found.then_some(value)),
                    Kind::Put => Action::Put(value),
                    Kind::Delete => Action::Delete { found },
                },
                invoked_ns: record.invoked_ns,
                returned_ns: (record.status != Status::Begun).then_some(record.returned_ns),
                outcome: match record.status {
                    Status::Ok { .. } => Outcome::Ok,
                    _ => Outcome::Unknown,
                },
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::History;

    fn recorder(operations_max: usize, bytes_max: usize) -> Recorder {
        Recorder::new(3, Capacity { operations_max, bytes_max }).unwrap()
    }

    #[test]
    fn what_was_recorded_comes_in_the_order_of_invocations() {
        let mut one = recorder(10, 100);
        let get = one.get(b"k", 10).unwrap();
        let put = one.put(b"k", b"v", 20).unwrap();
        let delete = one.delete(b"k", 40).unwrap();
        let lost = one.put(b"k", b"w", 50).unwrap();
        let refused = one.put(b"k", b"x", 60).unwrap();
        drop(one.get(b"l", 70).unwrap());
        one.deleted(delete, true, 45);
        one.got(get, Some(b"old"), 30).unwrap();
        one.acknowledged(put, 30);
        one.unknown(lost, 90);
        one.withdraw(refused);
        let mut other = Recorder::new(1, Capacity { operations_max: 1, bytes_max: 1 }).unwrap();
        let get = other.get(b"k", 20).unwrap();
        other.got(get, None, 21).unwrap();
        let history = History::merge([one, other]).unwrap();
        let seen: Vec<_> = history
            .operations()
            .iter()
            .map(|o| (o.client, &o.action, o.invoked_ns, o.returned_ns, o.outcome == Outcome::Ok))
            .collect();
        let put = |value: &[u8]| Action::Put(value.to_vec());
        assert_eq!(
            seen,
            [
                (3, &Action::Get(Some(b"old".to_vec())), 10, Some(30), true),
                (1, &Action::Get(None), 20, Some(21), true),
                (3, &put(b"v"), 20, Some(30), true),
                (3, &Action::Delete { found: true }, 40, Some(45), true),
                (3, &put(b"w"), 50, Some(90), false),
                (3, &Action::Get(None), 70, None, false),
            ]
        );
        assert_eq!(history.of_key(b"l").len(), 1);
    }

    #[test]
    fn a_full_recorder_says_which_limit_was_reached() {
        let mut recorder = recorder(2, 5);
        let get = recorder.get(b"key", 1).unwrap();
        let error = recorder.got(get, Some(b"123"), 2).unwrap_err();
        assert!(error.to_string().contains("Capacity::bytes_max"), "{error}");
        let put = recorder.put(b"k", b"v", 3).unwrap();
        recorder.acknowledged(put, 4);
        let error = recorder.get(b"", 5).unwrap_err();
        assert!(error.to_string().contains("Capacity::operations_max"), "{error}");
        assert_eq!(recorder.operations(), 2);
        let operations: Vec<_> = recorder.into_operations().collect();
        assert_eq!(operations[0].returned_ns, None);
        assert!(matches!(
            Recorder::new(0, Capacity { operations_max: usize::MAX, bytes_max: 1 }),
            Err(HistoryError::Memory { .. })
        ));
    }

    #[test]
    fn a_clock_that_goes_back_is_an_error() {
        let mut recorder = recorder(1, 10);
        let put = recorder.put(b"k", b"v", 30).unwrap();
        recorder.acknowledged(put, 29);
        let error = History::merge([recorder]).unwrap_err();
        assert!(matches!(error, HistoryError::Backwards { client: 3, .. }), "{error}");
    }

    #[test]
    #[should_panic(expected = "another kind of operation")]
    fn a_put_cannot_end_as_a_get() {
        let mut recorder = recorder(1, 10);
        let put = recorder.put(b"k", b"v", 1).unwrap();
        let _ = recorder.got(put, None, 2);
    }
}
