//! Which core of which server owns each partition. Every request carries the map's epoch, so that moving a partition is
//! a change of the map: who holds an old one is told.

use locus_index::{PARTITIONS, PartitionId};
use serde::{Deserialize, Serialize};

/// The most servers that one map can name.
pub const SERVERS_MAX: usize = 256;

/// The owner of a partition.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Owner {
    /// Which server, in the order in which the client was given their addresses.
    pub server: u16,
    /// Which of its cores.
    pub core: u16,
}

/// The owner of every partition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PartitionMap {
    /// Which version of the map this is.
    pub epoch: u32,
    owners: Vec<Owner>,
    /// The owner of all of them, if there is one: looking a partition up is a cache miss more often than not.
    sole: Option<Owner>,
}

impl PartitionMap {
    /// Spreads the partitions evenly over servers with these numbers of cores. The server follows from the partition's
    /// lower bits and the identical list that every client has (Mitchell §5.2); the core follows from the upper bits and
    /// the server's own number of cores, so that a server knows its cores' partitions whatever list it stands in.
    ///
    /// # Panics
    /// Without servers, with too many, or with a server without cores: the caller has checked what its peers said.
    pub fn even(cores: &[u16]) -> Self {
        assert!(!cores.is_empty() && cores.len() <= SERVERS_MAX && cores.iter().all(|&cores| cores > 0));
        let owners: Vec<Owner> = (0..PARTITIONS)
            .map(|partition| {
                let server = partition % cores.len();
                Owner {
                    server: server as u16,
                    core: (partition * usize::from(cores[server]) / PARTITIONS) as u16,
                }
            })
            .collect();
        let sole = (cores == [1]).then_some(owners[0]);
        Self { epoch: 1, owners, sole }
    }

    /// The owner of a partition.
    #[inline]
    pub fn owner(&self, partition: PartitionId) -> Owner {
        match self.sole {
            Some(owner) => owner,
            None => self.owners[partition.index()],
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn every_core_owns_its_share(cores in prop::collection::vec(1u16..9, 1..9)) {
            let map = PartitionMap::even(&cores);
            let mut counts: Vec<Vec<usize>> = cores.iter().map(|&cores| vec![0; cores.into()]).collect();
            for partition in 0..PARTITIONS {
                let owner = map.owner(PartitionId::new(partition).unwrap());
                counts[usize::from(owner.server)][usize::from(owner.core)] += 1;
            }
            for (server, counts) in counts.iter().enumerate() {
                let fair = PARTITIONS / cores.len() / usize::from(cores[server]);
                prop_assert!(counts.iter().all(|&count| count + 2 >= fair && count <= fair + 2), "{counts:?}");
            }
        }
    }
}
