//! The limits under gets and puts: two dependent READs of the same sizes, or one, at random places of the same memory, and
//! bare echoes.

use super::{
    Client,
    connection::{self, Connection},
};
use crate::StoreError;
use locus_fabric::{
    Nic,
    echo::{self, EchoClient, EchoEnd, EchoVerb, Probe, Task},
};
use locus_index::{
    LookupError, PARTITIONS, PartitionId,
    cuckoo::{ROW_BYTES, Row, State},
};
use locus_memory::{Memory, Pointer};
use locus_runtime::yield_now;
use std::{
    cell::{Cell, RefCell},
    rc::Rc,
};

/// What is read at once of a longer record.
const SCRATCH_BYTES: usize = 4 << 10;

/// Bare READs over the first server's tables: of a row, then of the extent that it points to. Nothing is hashed, verified
/// or compared.
pub struct RawReads<N: Nic> {
    connection: Rc<Connection<N>>,
    /// Rows that hold records, in random order.
    rows: Vec<Pointer>,
    next: Cell<usize>,
    /// Where READs that are over at once go.
    scratch: RefCell<Box<[u8; SCRATCH_BYTES]>>,
    /// Zero, which the compiler does not know: see [`RawReads::read`].
    nothing: u8,
}

impl<N: Nic> Client<N> {
    /// Finds up to `count` full rows, all over the tables of the first server, by this random seed. The store must be at
    /// rest, and stay so.
    pub fn raw_reads(&self, count: usize, seed: u64) -> Result<RawReads<N>, StoreError> {
        if self.index != crate::Index::Cuckoo {
            return Err(StoreError::Config(
                "bare READs go over the rows of a cuckoo table: serve pilaf".into(),
            ));
        }
        let connection = self.connection(0)?;
        let rows = self.block_on(self.full_rows(&connection, count, seed))?;
        if rows.is_empty() {
            return Err(StoreError::Config("there are no records to read".into()));
        }
        let scratch = RefCell::new(Box::new([0; SCRATCH_BYTES]));
        Ok(RawReads { connection, rows, next: Cell::new(0), scratch, nothing: std::hint::black_box(0) })
    }

    /// Bare echoes with the first server, over a link of their own.
    pub fn echoes(&self, verb: EchoVerb) -> Result<EchoClient<N>, StoreError> {
        let echoes = EchoClient::new(self.echo_end(verb)?);
        if verb == EchoVerb::Write {
            // An answer that is WRITten wakes nobody.
            self.idle.borrow_mut().naps(Some(echo::NAP));
        }
        Ok(echoes)
    }

    /// A queue pair to measure with, over a link of its own.
    pub fn probe(&self, task: Task) -> Result<Probe<N>, StoreError> {
        Ok(Probe::new(self.echo_end(task.ends())?))
    }

    fn echo_end(&self, verb: EchoVerb) -> Result<EchoEnd<N>, StoreError> {
        let Some(address) = &self.servers[0].address else {
            return Err(StoreError::Config("a server in this process answers no echoes".into()));
        };
        let link = self.hub.nic().connect(address)?;
        connection::open_echo(&self.hub, &link, &self.config, verb)
    }

    async fn full_rows(
        &self,
        connection: &Rc<Connection<N>>,
        count: usize,
        seed: u64,
    ) -> Result<Vec<Pointer>, StoreError> {
        let mut tables = Vec::new();
        for partition in (0..PARTITIONS).filter_map(PartitionId::new) {
            let owner = self.map.owner(partition);
            if owner.server == 0 {
                let directory = connection.directory(owner.core);
                let entry = directory.read(&connection.remote, partition, &self.effort).await;
                tables.extend(entry.map_err(lookup_error)?.current);
            }
        }
        let mut rows = Vec::with_capacity(count);
        let mut random = seed | 1;
        // Tables are never less than a quarter full for long; a bound that a store at rest does not reach.
        for _ in 0..count * 16 {
            if rows.len() == count || tables.is_empty() {
                break;
            }
            // Marsaglia's xorshift: any spread will do here.
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            let table = &tables[(random >> 32) as usize % tables.len()];
            let at = table.row_at(random as u32 % table.rows);
            let bytes = connection.remote.read(at, ROW_BYTES).await?;
            if Row::decode(&bytes, at, table.epoch).is_some_and(|row| row.state() == State::Full) {
                rows.push(at);
            }
        }
        Ok(rows)
    }
}

impl<N: Nic> RawReads<N> {
    /// The two READs; the bytes of the second go to `found`. Where the next ones go depends on these bytes, so that the
    /// processor does not begin them before these have arrived: it does not with gets either. With `in_turns` they
    /// overlap with those of others.
    #[inline]
    pub async fn read<T>(&self, in_turns: bool, found: impl FnOnce(&[u8]) -> T) -> Result<T, StoreError> {
        let number = self.next.get();
        self.next.set(if number + 1 < self.rows.len() { number + 1 } else { 0 });
        let (at, remote) = (self.rows[number], &self.connection.remote);
        if !remote.reads_at_once() {
            let _overlap = in_turns.then(|| remote.overlap());
            let extent = Row::unverified(&remote.read(at, ROW_BYTES).await?).expect("32 bytes").0.extent();
            return Ok(self.taken(&remote.read(extent.at, extent.bytes).await?, found));
        }
        if in_turns {
            remote.prefetch(at, ROW_BYTES);
            yield_now().await;
        }
        let mut row = [0; ROW_BYTES];
        if !remote.read_at_once(at, &mut row) {
            return Err(refused());
        }
        let extent = Row::unverified(&row).expect("32 bytes").0.extent();
        if in_turns {
            remote.prefetch(extent.at, extent.bytes);
            yield_now().await;
        }
        let mut scratch = self.scratch.borrow_mut();
        let bytes = &mut scratch[..extent.bytes.min(SCRATCH_BYTES)];
        if !remote.read_at_once(extent.at, bytes) {
            return Err(refused());
        }
        Ok(self.taken(bytes, found))
    }

    /// One READ of so many bytes (at most 4 KiB), always of the same ones: what the fabric takes and memory does not.
    #[inline]
    pub async fn read_one(&self, in_turns: bool, bytes: usize) -> Result<(), StoreError> {
        let (row, remote) = (self.rows[0], &self.connection.remote);
        // Aligned, so that it does not reach beyond the region.
        let bytes = bytes.clamp(1, 4096);
        let at = Pointer::new(row.region(), row.offset() & !(bytes.next_power_of_two() - 1));
        let _overlap = (in_turns && !remote.reads_at_once()).then(|| remote.overlap());
        std::hint::black_box(&*remote.read(at, bytes).await?);
        Ok(())
    }

    #[inline]
    fn taken<T>(&self, bytes: &[u8], found: impl FnOnce(&[u8]) -> T) -> T {
        self.next.set(self.next.get() + usize::from(bytes[0] & self.nothing));
        found(bytes)
    }
}

fn refused() -> StoreError {
    StoreError::Config("the fabric refused a bare READ: is the server gone?".into())
}

fn lookup_error(error: LookupError) -> StoreError {
    match error {
        LookupError::Memory(error) => StoreError::Memory(error),
        error => StoreError::Config(format!("the directory cannot be read: {error}")),
    }
}
