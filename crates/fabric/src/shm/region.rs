//! Regions: memory of this process that peers may be let into, and memory of a peer.
//!
//! A region that grants READ is a memfd mapped for stores by its owner and then sealed against any further writable
//! mapping, so that no peer can ever store to it. One that grants WRITE is mapped for stores by both. A local one is
//! private memory. What is granted can be taken back through the region's token.

use super::{
    control::{self, Control, PeerControl, Token},
    mapping::{self, Mapping, Rights},
    wire::Record,
};
use crate::{
    Access, FabricError, Facts, PagePolicy, Pages, Prefetch, Status,
    words::{Words, words_of_region},
};
use rustix::fd::{AsFd, OwnedFd};
use std::sync::{Arc, atomic::AtomicU64};

/// Registered memory of this process.
#[derive(Clone, Debug)]
pub struct ShmRegion {
    words: Words,
    registration: Arc<Registration>,
}

/// What all clones of a region share. Posted verbs keep the mapping alive, but not the registration: with the last
/// clone the region is taken back from its peers.
#[derive(Debug)]
struct Registration {
    mapping: Arc<Mapping>,
    access: Access,
    pages: Pages,
    shared: Option<(OwnedFd, Token)>,
}

impl ShmRegion {
    /// Reserves and registers memory.
    pub(crate) fn register(
        control: &Arc<Control>,
        bytes: usize,
        access: Access,
        policy: PagePolicy,
    ) -> Result<Self, FabricError> {
        let (bytes, huge) = mapping::plan(bytes, policy)?;
        let (mapping, shared) = match access {
            Access::Local => (Mapping::private(bytes, huge)?, None),
            Access::RemoteRead | Access::RemoteWrite => {
                let file = mapping::create_file(bytes, huge, "a region")?;
                let mapping = Mapping::of_file(file.as_fd(), bytes, Rights::Store)?;
                mapping::seal(file.as_fd(), access == Access::RemoteRead)?;
                (mapping, Some((file, control.take_token()?)))
            }
        };
        let refusal = if huge { mapping.collapse().err() } else { None };
        mapping.populate();
        let pages = mapping::describe(&mapping, policy, huge, refusal);
        let mapping = Arc::new(mapping);
        // SAFETY: the registration keeps the mapping as long as the region, and gives the words only with it.
        let words = unsafe { Words::of(&mapping) };
        Ok(Self { words, registration: Arc::new(Registration { mapping, access, pages, shared }) })
    }

    /// The mapping, which posted verbs hold.
    #[inline]
    pub(crate) fn mapping(&self) -> &Arc<Mapping> {
        &self.registration.mapping
    }

    /// What a peer needs to import it.
    pub(crate) fn grant(&self) -> Result<Facts, FabricError> {
        let Some((file, token)) = &self.registration.shared else {
            return Err(FabricError::Unsupported("a local region cannot be granted to a peer"));
        };
        if !token.stands() {
            return Err(FabricError::State("the region was revoked"));
        }
        let handle =
            file.try_clone().map_err(|source| FabricError::System { what: "a descriptor", source })?;
        let (index, value) = token.name();
        let writable = u64::from(self.registration.access == Access::RemoteWrite);
        let huge = u64::from(self.registration.pages == Pages::Huge);
        let words = [self.mapping().bytes() as u64, u64::from(index), value, writable, huge];
        let bytes = Record::Region.encode(&words);
        Ok(Facts { bytes, handles: vec![handle] })
    }
}

impl crate::Region for ShmRegion {
    words_of_region!();

    fn pages(&self) -> Pages {
        self.registration.pages.clone()
    }

    fn access(&self) -> Access {
        self.registration.access
    }

    fn revoke(&self) {
        if let Some((_, token)) = &self.registration.shared {
            token.revoke();
        }
    }
}

/// Registered memory of a peer.
#[derive(Clone, Debug)]
pub struct ShmRemoteRegion {
    pub(crate) inner: Arc<Imported>,
}

/// What all clones of a remote region share.
#[derive(Debug)]
pub(crate) struct Imported {
    mapping: Mapping,
    control: Arc<PeerControl>,
    token: usize,
    value: u64,
    /// The link that granted it: only queue pairs of that link reach it.
    link: u64,
}

impl ShmRemoteRegion {
    /// Takes a region that a peer granted; an error says what is wrong with the facts.
    pub(crate) fn import(facts: Facts, link: u64, control: &Arc<PeerControl>) -> Result<Self, &'static str> {
        let [bytes, index, value, writable, huge] = Record::Region.decode(&facts.bytes)?;
        let [file] =
            <[OwnedFd; 1]>::try_from(facts.handles).map_err(|_| "a region comes with one descriptor")?;
        let token = u32::try_from(index).ok().and_then(|index| control.token(index));
        let token = token.filter(|_| value != 0).ok_or("its token is outside of the control area")?;
        let rights = if writable == 1 { Rights::Store } else { Rights::Load };
        let bytes = usize::try_from(bytes).map_err(|_| "its memory is too long")?;
        let mapping = mapping::import(file.as_fd(), bytes, rights)?;
        if huge == 1 {
            // The pages are huge already; this maps them as such here too.
            let _ = mapping.collapse();
        }
        mapping.populate();
        Ok(Self { inner: Arc::new(Imported { mapping, control: control.clone(), token, value, link }) })
    }

    /// What pages this process sees it on.
    pub fn pages(&self) -> Pages {
        self.inner.mapping.pages()
    }
}

impl Imported {
    /// The peer's words.
    #[inline(always)]
    pub(crate) fn words(&self) -> &[AtomicU64] {
        self.mapping.words()
    }

    /// Whether what was copied from the region before this call was still the region's.
    #[inline(always)]
    pub(crate) fn stands(&self) -> bool {
        control::stands(self.control.word(self.token), self.value)
    }

    /// Whether a queue pair of a link may touch a range.
    #[inline]
    pub(crate) fn check(&self, link: u64, offset: usize, bytes: usize, store: bool) -> Status {
        let inside = offset <= self.mapping.bytes() && bytes <= self.mapping.bytes() - offset;
        let allowed = !store || self.mapping.rights() == Rights::Store;
        if inside && allowed && self.link == link { Status::Success } else { Status::RemoteAccess }
    }

    /// A range, which the caller has checked, to be prefetched.
    #[inline(always)]
    pub(crate) fn ahead(&self, offset: usize, bytes: usize) -> Prefetch {
        Prefetch::of(self.mapping.base().as_ptr().cast(), offset, bytes)
    }
}

impl crate::RemoteRegion for ShmRemoteRegion {
    fn bytes(&self) -> usize {
        self.inner.mapping.bytes()
    }

    #[inline(always)]
    fn ahead(&self, offset: usize, bytes: usize) -> Prefetch {
        if offset <= self.inner.mapping.bytes() && bytes <= self.inner.mapping.bytes() - offset {
            self.inner.ahead(offset, bytes)
        } else {
            Prefetch::NONE
        }
    }
}
