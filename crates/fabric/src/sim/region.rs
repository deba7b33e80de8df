//! Regions: memory of a simulated process, and what a peer knows of it.

use super::{
    SimLink, SimNic,
    facts::Record,
    sampling,
    state::{State, try_with, with},
};
use crate::{
    Access, FabricError, Facts, PagePolicy, Pages, Prefetch, Status,
    mapping::{self, Mapping},
    words::{Words, words_of_region},
};
use std::sync::Arc;

/// Registered memory of a simulated process.
#[derive(Clone, Debug)]
pub struct SimRegion {
    pub(crate) words: Hooked,
    registration: Arc<Registration>,
}

#[derive(Debug)]
struct Registration {
    number: u64,
    access: Access,
    mapping: Arc<Mapping>,
}

impl Drop for Registration {
    fn drop(&mut self) {
        try_with(|state| {
            if !state.regions.get(&self.number).is_some_and(|region| state.processes[region.process].lingers)
            {
                state.drop_region(self.number);
            }
        });
    }
}

/// The words of a region, which the world is asked about before each store.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Hooked {
    words: Words,
    region: u64,
}

impl Hooked {
    fn bytes(&self) -> usize {
        self.words.bytes()
    }

    #[inline(always)]
    fn all(&self) -> &[std::sync::atomic::AtomicU64] {
        self.words.all()
    }

    #[inline(always)]
    fn store(&self, index: usize, word: u64) {
        sampling::before_store(self.region, index * 8, 8);
        self.words.store(index, word);
        sampling::after_store();
    }

    /// # Safety
    /// As with [`Region::slice`](crate::Region::slice).
    unsafe fn slice(&self, offset: usize, bytes: usize) -> &[u8] {
        // SAFETY: as the caller vouches.
        unsafe { self.words.slice(offset, bytes) }
    }

    fn copy_out(&self, offset: usize, into: &mut [u8]) {
        self.words.copy_out(offset, into);
    }

    fn copy_in(&self, offset: usize, from: &[u8]) {
        sampling::before_store(self.region, offset, from.len());
        self.words.copy_in(offset, from);
        sampling::after_store();
    }
}

/// Memory that a verb works on, for as long as it needs it.
#[derive(Clone, Debug)]
pub(crate) struct Memory {
    words: Words,
    _mapping: Arc<Mapping>,
    pub(crate) region: u64,
}

impl Memory {
    pub(crate) fn words(&self) -> &Words {
        &self.words
    }
}

/// A region as the world knows it.
#[derive(Debug)]
pub(crate) struct RegionState {
    pub(crate) memory: Memory,
    pub(crate) access: Access,
    pub(crate) process: usize,
    /// The secret that grants it; none before it was granted, and after it was revoked.
    grant: Option<u64>,
    revoked: bool,
}

impl SimRegion {
    pub(crate) fn register(bytes: usize, access: Access) -> Result<Self, FabricError> {
        let (bytes, _) = mapping::plan(bytes, PagePolicy::Base)?;
        // Simulated hosts share this machine's memory, and use little of what they reserve.
        let mapping = Arc::new(Mapping::on_demand(bytes)?);
        // SAFETY: the registration keeps the mapping as long as the region, and gives the words only with it; what is
        // posted keeps both.
        let words = unsafe { Words::of(&mapping) };
        let number = with(|state| {
            let number = state.next_region;
            state.next_region += 1;
            let memory = Memory { words, _mapping: mapping.clone(), region: number };
            state.regions.insert(
                number,
                RegionState { memory, access, process: state.threads.process(), grant: None, revoked: false },
            );
            number
        });
        let registration = Arc::new(Registration { number, access, mapping });
        Ok(Self { words: Hooked { words, region: number }, registration })
    }

    /// What a posted verb keeps.
    pub(crate) fn memory(&self) -> Memory {
        Memory {
            words: self.words.words,
            _mapping: self.registration.mapping.clone(),
            region: self.registration.number,
        }
    }

    pub(crate) fn grant(&self) -> Result<Facts, FabricError> {
        if self.registration.access == Access::Local {
            return Err(FabricError::Unsupported("a local region cannot be granted to a peer"));
        }
        with(|state| {
            let fresh = state.chance.number();
            let number = self.registration.number;
            let region = state.regions.get_mut(&number).expect("a region that lives");
            if region.revoked {
                return Err(FabricError::State("the region was revoked"));
            }
            let secret = *region.grant.get_or_insert(fresh);
            state.grants.insert(secret, number);
            Ok(Record::Region.encode(&[number, secret, self.words.bytes() as u64]))
        })
    }
}

impl crate::Region for SimRegion {
    words_of_region!();

    fn pages(&self) -> Pages {
        Pages::Base("simulated hosts have small pages".into())
    }

    fn access(&self) -> Access {
        self.registration.access
    }

    fn revoke(&self) {
        with(|state| state.revoke_region(self.registration.number));
    }
}

/// Registered memory of a simulated peer.
#[derive(Clone, Debug)]
pub struct SimRemoteRegion {
    pub(crate) secret: u64,
    pub(crate) bytes: usize,
    /// The link that granted it: only queue pairs of that link reach it.
    pub(crate) link: u64,
}

impl SimRemoteRegion {
    pub(crate) fn import(facts: &Facts, link: &SimLink) -> Result<Self, &'static str> {
        let [number, secret, bytes] = Record::Region.decode(facts)?;
        with(|state| {
            if state.grants.get(&secret) != Some(&number) {
                return Err("nobody granted such a region");
            }
            let region = state.regions.get(&number).ok_or("the region is gone")?;
            if region.memory.words.bytes() as u64 != bytes {
                return Err("the region has another length");
            }
            Ok(Self { secret, bytes: bytes as usize, link: link.number })
        })
    }
}

impl crate::RemoteRegion for SimRemoteRegion {
    fn bytes(&self) -> usize {
        self.bytes
    }

    fn ahead(&self, _: usize, _: usize) -> Prefetch {
        Prefetch::NONE
    }
}

/// A place in a region of a peer, as a message names it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Target {
    pub(crate) secret: u64,
    pub(crate) link: u64,
    pub(crate) offset: usize,
}

impl State {
    /// The memory that a peer names, if it may use it so.
    pub(crate) fn reach(
        &self,
        link: u64,
        target: Target,
        bytes: usize,
        stores: bool,
    ) -> Result<Memory, Status> {
        let region = self.grants.get(&target.secret).and_then(|number| self.regions.get(number));
        let region = region.filter(|region| !region.revoked).ok_or(Status::RemoteAccess)?;
        let length = region.memory.words.bytes();
        let inside = target.offset <= length && bytes <= length - target.offset;
        let allowed = match region.access {
            Access::Local => false,
            Access::RemoteRead => !stores,
            Access::RemoteWrite => true,
        };
        if inside && allowed && target.link == link {
            Ok(region.memory.clone())
        } else {
            Err(Status::RemoteAccess)
        }
    }

    pub(crate) fn drop_region(&mut self, number: u64) {
        if let Some(region) = self.regions.remove(&number)
            && let Some(secret) = region.grant
        {
            self.grants.remove(&secret);
        }
        self.fail_reads(number);
    }

    fn revoke_region(&mut self, number: u64) {
        if let Some(region) = self.regions.get_mut(&number) {
            region.revoked = true;
        }
        self.fail_reads(number);
    }
}

impl SimNic {
    pub(crate) fn protocol(link: &SimLink, what: &'static str) -> FabricError {
        FabricError::Protocol { peer: link.name(), what: what.into() }
    }
}
