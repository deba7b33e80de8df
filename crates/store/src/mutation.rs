//! Every change is a [`Mutation`], and one function applies it, at the owner.

use locus_fabric::Region;
use locus_index::{Key, MutationError, Owner, Shard};

/// A change of one key: small, and deterministic given the shard's state, so that whoever applies the same
/// mutations in the same order has the same records with the same versions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mutation<'a> {
    /// Stores a value.
    Put {
        /// The key's bytes.
        key: &'a [u8],
        /// The value.
        value: &'a [u8],
    },
    /// Removes a key.
    Delete {
        /// The key's bytes.
        key: &'a [u8],
    },
}

/// What a mutation did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Applied {
    /// The version of the change; zero if there was nothing to change.
    pub version: u64,
    /// Whether the key was present before.
    pub present: bool,
}

impl Mutation<'_> {
    /// The key that it changes.
    pub fn key(&self) -> &[u8] {
        match self {
            Self::Put { key, .. } | Self::Delete { key } => key,
        }
    }

    /// Applies the mutation. On an error nothing has changed.
    pub fn apply<R: Region>(
        &self,
        owner: &mut Owner<R>,
        shard: &mut impl Shard<R>,
    ) -> Result<Applied, MutationError> {
        self.apply_hashed(&Key::new(self.key(), owner.seed), owner, shard)
    }

    /// The same for who has hashed its key, which is the mutation's.
    #[inline]
    pub(crate) fn apply_hashed<R: Region>(
        &self,
        key: &Key<'_>,
        owner: &mut Owner<R>,
        shard: &mut impl Shard<R>,
    ) -> Result<Applied, MutationError> {
        debug_assert_eq!(key.bytes(), self.key());
        Ok(match self {
            Self::Put { value, .. } => {
                let put = shard.put(owner, key, value)?;
                Applied { version: put.version, present: put.replaced }
            }
            Self::Delete { .. } => {
                let version = shard.delete(owner, key)?;
                Applied { version: version.unwrap_or(0), present: version.is_some() }
            }
        })
    }
}
