//! Links: a bootstrap connection over TCP to one peer process, and a protection domain for it alone.

use super::{
    VerbsNic, VerbsRegion, VerbsRemoteRegion, bootstrap::Connection, device, ffi, handle::Domain,
    opening::Opening, region::Grant,
};
use crate::{ControlMessage, FabricError, Facts, Link};
use std::{
    sync::{
        Arc, Mutex, OnceLock, PoisonError,
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
    /// Where the peer is, as its first queue pair said.
    gid: OnceLock<ffi::Gid>,
    /// The device, as it was when it was first asked for, and the domain: a peer that comes while there is none can be told.
    port: OnceLock<(Arc<Opening>, Arc<Domain>)>,
}

impl VerbsLink {
    pub(crate) fn new(nic: &VerbsNic, connection: Connection) -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        let inner = Arc::new(LinkInner {
            id: NEXT.fetch_add(1, Ordering::Relaxed),
            nic: nic.clone(),
            connection,
            grants: Mutex::default(),
            gid: OnceLock::new(),
            port: OnceLock::new(),
        });
        // With the link the peer's rights end.
        let ended: Arc<dyn super::bootstrap::Ended> = inner.clone();
        inner.connection.on_end(Arc::downgrade(&ended));
        Self { inner }
    }
}

impl super::bootstrap::Ended for LinkInner {
    /// Deregistering takes its time, of which the thread that watches all links has none.
    fn ended(&self) {
        self.end_domain();
        let grants = std::mem::take(&mut *self.grants.lock().unwrap_or_else(PoisonError::into_inner));
        if grants.is_empty() {
            return;
        }
        let take_back = move || grants.iter().for_each(|grant| grant.take_back());
        // Without a thread they are taken back here after all, as the closure is dropped.
        let _ = std::thread::Builder::new().name("locus-verbs-grants".into()).spawn(take_back);
    }
}

impl LinkInner {
    #[inline]
    pub(crate) fn alive(&self) -> bool {
        self.connection.alive()
    }

    /// Who the peer is, for people.
    pub(crate) fn name(&self) -> String {
        let peer = self.connection.peer();
        match self.port.get() {
            Some((opening, _)) if opening.is_gone() => {
                format!(
                    "{peer} (reached over the RDMA device {}, which was taken away)",
                    opening.chosen().name
                )
            }
            _ => peer,
        }
    }

    /// The device and the domain of the link's queue pairs.
    pub(crate) fn port(self: &Arc<Self>) -> Result<&(Arc<Opening>, Arc<Domain>), FabricError> {
        let port = match self.port.get() {
            Some(port) => port,
            None => {
                let opening = self.nic.opening()?;
                let domain = Domain::new(&opening.chosen().device).map_err(|error| opening.explain(error))?;
                // Of two threads that come at once one finds the other's.
                let port = self.port.get_or_init(|| (opening, domain));
                port.0.events().add_link(self);
                port
            }
        };
        if port.0.is_gone() { Err(port.0.taken_away()) } else { Ok(port) }
    }

    fn end_domain(&self) {
        if let Some((_, domain)) = self.port.get() {
            domain.end();
        }
    }

    pub(crate) fn gone(&self) -> FabricError {
        FabricError::PeerLost { peer: self.name() }
    }

    /// All queue pairs of a peer are at one place. A place that nobody is at takes the kernel a second to find out, in
    /// which the thread that connects stands still: so much for the first queue pair of a link, and not for others.
    pub(crate) fn check_gid(self: &Arc<Self>, gid: ffi::Gid) -> Result<(), FabricError> {
        device::meets(&self.port()?.0.chosen().gid, gid)?;
        if *self.gid.get_or_init(|| gid) == gid {
            return Ok(());
        }
        Err(FabricError::Protocol { peer: self.name(), what: "its queue pairs are at several places".into() })
    }
}

impl Drop for LinkInner {
    fn drop(&mut self) {
        self.end_domain();
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
        let grants = || self.inner.grants.lock().unwrap_or_else(PoisonError::into_inner);
        // However often a peer asks, a region is registered for it once.
        if let Some(facts) = grants().iter().find_map(|grant| grant.facts(&region.memory)) {
            return Ok(facts);
        }
        let (opening, domain) = self.inner.port()?;
        let grant = region.memory.grant(domain).map_err(|error| opening.explain(error))?;
        let facts = grant.facts(&region.memory).ok_or(FabricError::State("the region was revoked"))?;
        let mut grants = grants();
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
