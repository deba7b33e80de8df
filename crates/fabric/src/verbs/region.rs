//! Regions: memory of this process, registered with every protection domain that uses it, and memory of a peer.
//!
//! A link has a protection domain of its own, so that its keys open nothing to other peers. A region is therefore
//! registered once for each link that its queue pairs use it over, without rights for the peer, and once more for each
//! link that it is granted to. What is granted is taken back by undoing that registration: the NIC then refuses the key.

use super::{
    ffi,
    handle::{Domain, Registration},
};
use crate::{
    Access, FabricError, Facts, PagePolicy, Pages, Prefetch, Region, RemoteRegion, mapping,
    mapping::Mapping,
    words::{Words, words_of_region},
};
use std::sync::{
    Arc, Mutex, MutexGuard, PoisonError, Weak,
    atomic::{AtomicBool, AtomicU64, Ordering},
};

/// Registered memory of this process.
#[derive(Clone)]
pub struct VerbsRegion {
    words: Words,
    pub(crate) memory: Arc<Memory>,
}

/// What all clones of a region share.
pub(crate) struct Memory {
    /// Unique in this process.
    pub(crate) id: u64,
    mapping: Arc<Mapping>,
    access: Access,
    pages: Pages,
    revoked: AtomicBool,
    /// For our own verbs, one for each domain.
    locals: Mutex<Vec<(Weak<Domain>, Arc<Registration>)>>,
    /// For peers, one for each link that it was granted to.
    grants: Mutex<Vec<Weak<Grant>>>,
}

/// A region that a peer may use. The link holds it; the region can end it.
pub(crate) struct Grant {
    /// Of what memory.
    memory: u64,
    registration: Mutex<Option<Registration>>,
}

impl Grant {
    /// Whether it was not taken back.
    pub(crate) fn stands(&self) -> bool {
        lock(&self.registration).is_some()
    }

    /// Takes it back: when this returns, the key opens nothing.
    pub(crate) fn take_back(&self) {
        drop(lock(&self.registration).take());
    }

    /// What the peer must know, if it is of this memory and stands.
    pub(crate) fn facts(&self, memory: &Memory) -> Option<Facts> {
        if self.memory != memory.id {
            return None;
        }
        let key = lock(&self.registration).as_ref()?.remote_key();
        Some(RemoteFacts { bytes: memory.mapping.bytes() as u64, key }.encode())
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl VerbsRegion {
    /// Reserves memory. It is registered when it is first used or granted.
    pub(crate) fn register(bytes: usize, access: Access, policy: PagePolicy) -> Result<Self, FabricError> {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        let (bytes, huge) = mapping::plan(bytes, policy)?;
        let mapping = Mapping::private(bytes, huge)?;
        let refusal = if huge { mapping.collapse().err() } else { None };
        let pages = mapping::describe(&mapping, policy, huge, refusal);
        let mapping = Arc::new(mapping);
        // SAFETY: the memory keeps the mapping as long as the region, and gives the words only with it.
        let words = unsafe { Words::of(&mapping) };
        let memory = Memory {
            id: NEXT.fetch_add(1, Ordering::Relaxed),
            mapping,
            access,
            pages,
            revoked: AtomicBool::new(false),
            locals: Mutex::default(),
            grants: Mutex::default(),
        };
        Ok(Self { words, memory: Arc::new(memory) })
    }
}

impl Memory {
    /// The registration for our own verbs in a domain, made if there is none yet.
    pub(crate) fn local(&self, domain: &Arc<Domain>) -> Result<Arc<Registration>, FabricError> {
        let mut locals = lock(&self.locals);
        // The registration holds its domain, so it is the link's end that counts.
        locals.retain(|(domain, _)| domain.upgrade().is_some_and(|domain| !domain.has_ended()));
        let ours = locals.iter().find(|(other, _)| std::ptr::eq(other.as_ptr(), Arc::as_ptr(domain)));
        if let Some((_, registration)) = ours {
            return Ok(registration.clone());
        }
        let registration = Arc::new(Registration::new(domain, &self.mapping, ffi::ACCESS_LOCAL_WRITE)?);
        locals.push((Arc::downgrade(domain), registration.clone()));
        Ok(registration)
    }

    /// Lets the peer of a domain's link use the region.
    pub(crate) fn grant(&self, domain: &Arc<Domain>) -> Result<Arc<Grant>, FabricError> {
        let rights = ffi::ACCESS_LOCAL_WRITE
            | match self.access {
                Access::Local => {
                    return Err(FabricError::Unsupported("a local region cannot be granted to a peer"));
                }
                Access::RemoteRead => ffi::ACCESS_REMOTE_READ,
                Access::RemoteWrite => {
                    ffi::ACCESS_REMOTE_READ | ffi::ACCESS_REMOTE_WRITE | ffi::ACCESS_REMOTE_ATOMIC
                }
            };
        // Under the lock, so that a revocation either sees the grant or is seen.
        let mut grants = lock(&self.grants);
        if self.revoked.load(Ordering::Relaxed) {
            return Err(FabricError::State("the region was revoked"));
        }
        let registration = Registration::new(domain, &self.mapping, rights)?;
        let grant = Arc::new(Grant { memory: self.id, registration: Mutex::new(Some(registration)) });
        grants.retain(|grant| grant.strong_count() > 0);
        grants.push(Arc::downgrade(&grant));
        Ok(grant)
    }

    fn revoke(&self) {
        let grants = {
            let mut grants = lock(&self.grants);
            self.revoked.store(true, Ordering::Relaxed);
            std::mem::take(&mut *grants)
        };
        for grant in grants.iter().filter_map(Weak::upgrade) {
            grant.take_back();
        }
    }
}

impl Drop for Memory {
    /// With the last clone the region is taken back from its peers.
    fn drop(&mut self) {
        self.revoke();
    }
}

impl Region for VerbsRegion {
    words_of_region!();

    fn pages(&self) -> Pages {
        self.memory.pages.clone()
    }

    fn access(&self) -> Access {
        self.memory.access
    }

    fn revoke(&self) {
        self.memory.revoke();
    }
}

/// What a peer must know of a region. Its bytes are named by their offset.
struct RemoteFacts {
    bytes: u64,
    key: u32,
}

impl RemoteFacts {
    const KIND: u8 = b'R';
    const BYTES: usize = 13;

    fn encode(&self) -> Facts {
        let mut bytes = vec![Self::KIND];
        bytes.extend(self.bytes.to_le_bytes());
        bytes.extend(self.key.to_le_bytes());
        Facts { bytes, handles: Vec::new() }
    }

    fn decode(bytes: &[u8]) -> Result<Self, &'static str> {
        let bytes: &[u8; Self::BYTES] =
            bytes.try_into().map_err(|_| "the facts of a region are too long or short")?;
        let [kind, facts @ ..] = bytes;
        let (length, key) = facts.split_first_chunk::<8>().ok_or("no length")?;
        let facts = Self {
            bytes: u64::from_le_bytes(*length),
            key: u32::from_le_bytes(key.try_into().map_err(|_| "no key")?),
        };
        match *kind {
            Self::KIND if facts.bytes > 0 => Ok(facts),
            Self::KIND => Err("the region has no bytes"),
            _ => Err("these are not the facts of a region"),
        }
    }
}

/// Registered memory of a peer. Only queue pairs of the link that granted it reach it.
#[derive(Clone, Debug)]
pub struct VerbsRemoteRegion {
    pub(crate) bytes: usize,
    pub(crate) key: u32,
    /// The link that granted it.
    pub(crate) link: u64,
}

impl VerbsRemoteRegion {
    /// Takes a region that the peer of a link granted.
    pub(crate) fn import(facts: &Facts, link: u64) -> Result<Self, &'static str> {
        let facts = RemoteFacts::decode(&facts.bytes)?;
        let bytes = usize::try_from(facts.bytes).map_err(|_| "the region is too long")?;
        Ok(Self { bytes, key: facts.key, link })
    }
}

impl RemoteRegion for VerbsRemoteRegion {
    fn bytes(&self) -> usize {
        self.bytes
    }

    /// The bytes are at another machine: only a READ brings them nearer.
    #[inline(always)]
    fn ahead(&self, _offset: usize, _bytes: usize) -> Prefetch {
        Prefetch::NONE
    }
}
