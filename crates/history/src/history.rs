//! The operations of all clients, in the order of their invocations.

use crate::{HistoryError, Operation, Recorder, text::Shown};
use std::collections::BTreeMap;
use std::fmt;

/// The most operations that a history has.
pub const OPERATIONS_MAX: usize = 1 << 28;

/// What all clients saw.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct History {
    operations: Vec<Operation>,
    of_cache: bool,
}

impl History {
    /// Orders operations by their invocations; those invoked at the same moment by client, then as they come. Refuses
    /// operations that return before they are invoked, and more than [`OPERATIONS_MAX`].
    pub fn new(mut operations: Vec<Operation>) -> Result<Self, HistoryError> {
        if operations.len() > OPERATIONS_MAX {
            return Err(HistoryError::Operations { limit: OPERATIONS_MAX });
        }
        for operation in &operations {
            if let Some(returned_ns) = operation.returned_ns.filter(|&ns| ns < operation.invoked_ns) {
                return Err(HistoryError::Backwards {
                    client: operation.client,
                    key: Shown(&operation.key).to_string(),
                    invoked_ns: operation.invoked_ns,
                    returned_ns,
                });
            }
        }
        operations.sort_by_key(|operation| (operation.invoked_ns, operation.client));
        Ok(Self { operations, of_cache: false })
    }

    /// The same of a cache, which may forget a key at any moment: the key is then absent until it is put again. So it may always
    /// be that nothing is found, but no value comes back that was replaced, deleted, or found to be gone.
    pub fn of_cache(self) -> Self {
        Self { of_cache: true, ..self }
    }

    /// Whether it is judged as that of a cache.
    pub fn is_of_cache(&self) -> bool {
        self.of_cache
    }

    /// What the clients' recorders hold.
    pub fn merge(recorders: impl IntoIterator<Item = Recorder>) -> Result<Self, HistoryError> {
        Self::new(recorders.into_iter().flat_map(Recorder::into_operations).collect())
    }

    /// The operations in the order of their invocations.
    pub fn operations(&self) -> &[Operation] {
        &self.operations
    }

    /// The operations on one key, in the order of their invocations.
    pub fn of_key(&self, key: &[u8]) -> Vec<Operation> {
        self.operations.iter().filter(|operation| operation.key == key).cloned().collect()
    }

    /// The operations on each key, in the order of their invocations; keys in the order of their bytes.
    pub(crate) fn by_key(&self) -> BTreeMap<&[u8], Vec<&Operation>> {
        let mut keys: BTreeMap<&[u8], Vec<&Operation>> = BTreeMap::new();
        for operation in &self.operations {
            keys.entry(&operation.key).or_default().push(operation);
        }
        keys
    }
}

/// A line for each operation, without its key: for a few operations on one key.
impl fmt::Display for History {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.operations.iter().try_for_each(|operation| writeln!(f, "  {operation}"))
    }
}
