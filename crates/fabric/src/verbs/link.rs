//! Links: a bootstrap connection over TCP to one peer process, and a protection domain for it alone.

use super::{VerbsNic, VerbsRegion, VerbsRemoteRegion, bootstrap::Connection, handle::Domain, region::Grant};
use crate::{ControlMessage, FabricError, Facts, Link};
use std::{
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

/// A bootstrap connection to one peer process.
#[derive(Clone)]
pub struct VerbsLink {
    pub(crate) inner: Arc<LinkInner>,
}

/// What all clones of a link share, queue pairs included.
pub(crate) struct LinkInner {
    /// Unique in this process.
    pub(crate) id: u64,
    pub(crate) nic: VerbsNic,
    pub(crate) connection: Connection,
    /// Regions that the peer may use.
    grants: Mutex<Vec<Arc<Grant>>>,
    pub(crate) domain: Arc<Domain>,
}

impl VerbsLink {
    pub(crate) fn new(nic: &VerbsNic, connection: Connection) -> Result<Self, FabricError> {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        let inner = Arc::new(LinkInner {
            id: NEXT.fetch_add(1, Ordering::Relaxed),
            nic: nic.clone(),
            connection,
            grants: Mutex::default(),
            domain: Domain::new(&nic.chosen().device)?,
        });
        // With the link the peer's rights end.
        let ended: Arc<dyn super::bootstrap::Ended> = inner.clone();
        inner.connection.on_end(Arc::downgrade(&ended));
        Ok(Self { inner })
    }
}

impl super::bootstrap::Ended for LinkInner {
    fn ended(&self) {
        self.forget_grants();
    }
}

impl LinkInner {
    #[inline]
    pub(crate) fn alive(&self) -> bool {
        self.connection.alive()
    }

    /// Who the peer is, for people.
    pub(crate) fn name(&self) -> String {
        self.connection.peer()
    }

    pub(crate) fn gone(&self) -> FabricError {
        FabricError::PeerLost { peer: self.name() }
    }

    fn forget_grants(&self) {
        let grants = std::mem::take(&mut *self.grants.lock().unwrap_or_else(PoisonError::into_inner));
        drop(grants);
    }
}

impl Drop for LinkInner {
    fn drop(&mut self) {
        self.connection.close();
    }
}

impl Link for VerbsLink {
    type Nic = VerbsNic;

    fn send(&self, message: &[u8], facts: Vec<Facts>) -> Result<(), FabricError> {
        if facts.iter().any(|facts| !facts.handles.is_empty()) {
            return Err(FabricError::Unsupported("descriptors do not travel between machines"));
        }
        let facts: Vec<Vec<u8>> = facts.into_iter().map(|facts| facts.bytes).collect();
        self.inner.connection.send(message, &facts)
    }

    fn receive(&self, timeout: Duration) -> Result<Option<ControlMessage>, FabricError> {
        let received = self.inner.connection.receive(timeout)?;
        Ok(received.map(|(message, facts)| {
            (message, facts.into_iter().map(|bytes| Facts { bytes, handles: Vec::new() }).collect())
        }))
    }

    fn grant(&self, region: &VerbsRegion) -> Result<Facts, FabricError> {
        let (facts, grant) = region.memory.grant(&self.inner.domain)?;
        let mut grants = self.inner.grants.lock().unwrap_or_else(PoisonError::into_inner);
        grants.retain(|grant| grant.stands());
        grants.push(grant);
        Ok(facts)
    }

    fn import(&self, facts: Facts) -> Result<VerbsRemoteRegion, FabricError> {
        VerbsRemoteRegion::import(&facts, self.inner.id)
            .map_err(|what| FabricError::Protocol { peer: self.inner.name(), what: what.into() })
    }

    #[inline]
    fn alive(&self) -> bool {
        self.inner.alive()
    }

    /// The bootstrap connection is watched by a thread of its own, so there is nothing to look for here.
    fn check(&self) -> bool {
        self.inner.alive()
    }

    fn close(&self) {
        self.inner.connection.close();
    }

    fn peer(&self) -> String {
        self.inner.name()
    }
}
