//! A network interface that does what a test tells it: holds completions back, fails them, and notes what is called.
//! Only what reads need works.

use locus_fabric::{
    Access, Address, Atomicity, Completion, CompletionQueue, FabricError, Facts, Link, Listener, LocalSlice,
    Nic, Opcode, PagePolicy, Park, PostError, Prefetch, Properties, QueuePair, QueuePairConfig,
    QueuePairState, ReadOrder, Region, RemoteRegion, RemoteSlice, SendRequest, Status, Verb,
};
use locus_memory::testing::HeapRegion;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

/// What was called, in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Call {
    /// Of how many bytes at which offset.
    Prefetch(usize, usize),
    AtOnce,
    Post,
    Ring,
    /// With how many completions.
    Poll(usize),
}

struct Posted {
    id: u64,
    into: HeapRegion,
    into_offset: usize,
    bytes: usize,
    from: HeapRegion,
    from_offset: usize,
}

/// What the interface does next, and did.
pub struct Script {
    posted: VecDeque<Posted>,
    /// How many READs may still complete.
    pub allowed: usize,
    /// What becomes of those that complete.
    pub status: Status,
    pub calls: Vec<Call>,
    pairs: u32,
}

#[derive(Clone)]
pub struct ScriptedNic {
    pub script: Arc<Mutex<Script>>,
    properties: Arc<Properties>,
    pub alive: Arc<AtomicBool>,
}

impl ScriptedNic {
    pub fn new(transfer_bytes_max: usize) -> Self {
        Self::with(transfer_bytes_max, false)
    }

    /// One that can carry out READs at once.
    pub fn at_once(transfer_bytes_max: usize) -> Self {
        Self::with(transfer_bytes_max, true)
    }

    fn with(transfer_bytes_max: usize, reads_at_once: bool) -> Self {
        let properties = Properties {
            provider: "scripted",
            read_order: ReadOrder::Unordered,
            read_atomicity_bytes: 8,
            writes_wake: true,
            write_in_order: false,
            atomics: Atomicity::None,
            inline_bytes_max: 0,
            message_bytes_max: 0,
            datagram_bytes_max: 0,
            transfer_bytes_max,
            queue_depth_max: 4096,
            completions_max: 4096,
            reads_outstanding_max: 16,
            loses_messages: false,
            dear_doorbells: false,
            prefetches: true,
            reads_at_once,
            writes_at_once: false,
            messages_at_once: false,
        };
        let script = Script {
            posted: VecDeque::new(),
            allowed: usize::MAX,
            status: Status::Success,
            calls: Vec::new(),
            pairs: 0,
        };
        Self {
            script: Arc::new(Mutex::new(script)),
            properties: Arc::new(properties),
            alive: Arc::new(AtomicBool::new(true)),
        }
    }

    pub fn script(&self) -> MutexGuard<'_, Script> {
        self.script.lock().unwrap()
    }

    pub fn calls(&self) -> Vec<Call> {
        std::mem::take(&mut self.script().calls)
    }
}

#[derive(Clone)]
pub struct Remotely(pub HeapRegion, pub Arc<Mutex<Script>>);

impl RemoteRegion for Remotely {
    fn bytes(&self) -> usize {
        self.0.bytes()
    }
    fn ahead(&self, offset: usize, bytes: usize) -> Prefetch {
        self.1.lock().unwrap().calls.push(Call::Prefetch(offset, bytes));
        Prefetch::NONE
    }
}

pub struct Pair {
    nic: ScriptedNic,
    number: u32,
    connected: bool,
}

pub struct Queue(ScriptedNic);

#[derive(Clone)]
pub struct ScriptedLink(pub ScriptedNic);

pub struct NoListener;

impl Nic for ScriptedNic {
    type Region = HeapRegion;
    type RemoteRegion = Remotely;
    type Link = ScriptedLink;
    type Listener = NoListener;
    type CompletionQueue = Queue;
    type QueuePair = Pair;
    type AddressHandle = ();

    fn properties(&self) -> &Properties {
        &self.properties
    }
    fn register(&self, bytes: usize, _: Access, _: PagePolicy) -> Result<HeapRegion, FabricError> {
        Ok(HeapRegion::new(bytes))
    }
    fn create_completion_queue(&self, _: usize) -> Result<Queue, FabricError> {
        Ok(Queue(self.clone()))
    }
    fn create_completion_queue_beside(&self, _: &Queue, _: usize) -> Result<Queue, FabricError> {
        Ok(Queue(self.clone()))
    }
    fn create_queue_pair(
        &self,
        _: &ScriptedLink,
        _: &QueuePairConfig,
        _: &Queue,
        _: &Queue,
    ) -> Result<Pair, FabricError> {
        let mut script = self.script();
        script.pairs += 1;
        // As a real queue pair that is gone, an earlier one touches no memory any more.
        script.posted.clear();
        Ok(Pair { nic: self.clone(), number: script.pairs, connected: false })
    }
    fn listen(&self, _: &Address) -> Result<NoListener, FabricError> {
        unimplemented!()
    }
    fn connect(&self, _: &Address) -> Result<ScriptedLink, FabricError> {
        unimplemented!()
    }
    fn pair(&self) -> Result<(ScriptedLink, ScriptedLink), FabricError> {
        unimplemented!()
    }
}

impl QueuePair for Pair {
    type Nic = ScriptedNic;
    fn number(&self) -> u32 {
        self.number
    }
    fn state(&self) -> QueuePairState {
        if self.nic.script().status == Status::Success {
            QueuePairState::Ready
        } else {
            QueuePairState::Error
        }
    }
    fn facts(&self, _: &ScriptedLink) -> Result<Facts, FabricError> {
        Ok(Facts::default())
    }
    fn connect(&mut self, _: Facts) -> Result<(), FabricError> {
        self.connected = true;
        Ok(())
    }
    fn activate(&mut self) -> Result<(), FabricError> {
        unimplemented!()
    }
    fn address(&self, _: &ScriptedLink, _: Facts) -> Result<(), FabricError> {
        unimplemented!()
    }
    fn post_send(&mut self, request: &SendRequest<'_, ScriptedNic>) -> Result<(), PostError> {
        if !self.connected {
            return Err(PostError::NotReady);
        }
        let Verb::Read { into, from } = &request.verb else { return Err(PostError::Illegal("not a READ")) };
        let mut script = self.nic.script();
        script.calls.push(Call::Post);
        assert!(into.bytes <= self.nic.properties.transfer_bytes_max && request.signaled);
        script.posted.push_back(Posted {
            id: request.id,
            into: into.region.clone(),
            into_offset: into.offset,
            bytes: into.bytes,
            from: from.region.0.clone(),
            from_offset: from.offset,
        });
        Ok(())
    }
    fn read_at_once(&mut self, into: &mut [u8], from: &RemoteSlice<'_, ScriptedNic>) -> bool {
        let mut script = self.nic.script();
        if !self.connected || !self.nic.properties.reads_at_once || script.status != Status::Success {
            return false;
        }
        assert!(script.posted.is_empty(), "something is unfinished");
        script.calls.push(Call::AtOnce);
        from.region.0.copy_out(from.offset, into);
        true
    }
    fn ring(&mut self) -> Result<(), PostError> {
        self.nic.script().calls.push(Call::Ring);
        Ok(())
    }
    fn post_receive(&mut self, _: u64, _: LocalSlice<'_, ScriptedNic>) -> Result<(), PostError> {
        unimplemented!()
    }
    fn fail(&mut self) {}
}

impl CompletionQueue for Queue {
    fn poll(&mut self, into: &mut [Completion]) -> usize {
        let mut script = self.0.script();
        let count = into.len().min(script.posted.len()).min(script.allowed);
        script.allowed -= if script.allowed == usize::MAX { 0 } else { count };
        let (status, queue_pair) = (script.status, script.pairs);
        for completion in &mut into[..count] {
            let posted = script.posted.pop_front().unwrap();
            if status == Status::Success {
                let mut bytes = vec![0; posted.bytes];
                posted.from.copy_out(posted.from_offset, &mut bytes);
                posted.into.copy_in(posted.into_offset, &bytes);
            }
            *completion = Completion {
                id: posted.id,
                queue_pair,
                status,
                opcode: Opcode::Read,
                bytes: 0,
                immediate: None,
            };
        }
        script.calls.push(Call::Poll(count));
        count
    }
}

impl Park for Queue {
    fn prepare(&self) -> bool {
        self.0.script().posted.is_empty()
    }
    fn park(&self, _: Duration) {
        unimplemented!()
    }
    fn waker(&self) -> Arc<dyn Fn() + Send + Sync> {
        unimplemented!()
    }
}

impl Link for ScriptedLink {
    type Nic = ScriptedNic;
    fn send(&self, _: &[u8], _: Vec<Facts>) -> Result<(), FabricError> {
        unimplemented!()
    }
    fn receive(&self, _: Duration) -> Result<Option<(Vec<u8>, Vec<Facts>)>, FabricError> {
        unimplemented!()
    }
    fn grant(&self, _: &HeapRegion) -> Result<Facts, FabricError> {
        unimplemented!()
    }
    fn import(&self, _: Facts) -> Result<Remotely, FabricError> {
        unimplemented!()
    }
    fn alive(&self) -> bool {
        self.0.alive.load(SeqCst)
    }
    fn check(&self) -> bool {
        self.alive()
    }
    fn close(&self) {}
    fn peer(&self) -> String {
        "a script".into()
    }
}

impl Listener for NoListener {
    type Link = ScriptedLink;
    fn accept(&self, _: Duration) -> Result<Option<ScriptedLink>, FabricError> {
        unimplemented!()
    }
    fn address(&self) -> Address {
        unimplemented!()
    }
}
