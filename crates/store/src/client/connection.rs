//! A client's connection to one server: the link, the manifest, the reader of its memory, and a channel to each core.

use super::ClientConfig;
use crate::{
    StoreError,
    control::{self, Answer, Ask, Manifest, Statistics},
};
use locus_fabric::{
    Facts, Link, Nic,
    echo::{EchoEnd, EchoVerb},
};
use locus_index::{
    PARTITIONS, PartitionId,
    cuckoo::{Table, Tables},
    directory::Directory,
    hopscotch::Shape,
};
use locus_memory::{RegionId, Remote, RemoteConfig};
use locus_rpc::{Ahead, Channel, ChannelConfig, ChannelCounters, Greeting, Hub, Pair, Staging};
use std::{
    cell::{Cell, OnceCell, RefCell},
    rc::Rc,
    time::Duration,
};

type Channels<N> = Rc<[OnceCell<Rc<Channel<N>>>]>;

/// A connection, until the server is lost.
pub(super) struct Connection<N: Nic> {
    hub: Hub<N>,
    pub(super) link: N::Link,
    pub(super) manifest: Manifest,
    pub(super) remote: Remote<N>,
    window: usize,
    pair: Pair,
    patience: Duration,
    timeout: Duration,
    directories: Vec<Directory>,
    /// The directory entries in use. One that was never read names no table.
    entries: Vec<Cell<Tables>>,
    /// Their tables once more, closer together, since most gets need no more. One that is not known has no rows.
    tables: Vec<Cell<Table>>,
    /// Names the channels to the server, so that it knows them when they come back over another link.
    session: u128,
    /// One per core. All connections of a session share them: its sequences go on where the last connection left them.
    channels: Channels<N>,
    staging: OnceCell<Staging<N>>,
    /// The numbers of the regions that were imported.
    known: RefCell<Vec<u16>>,
}

impl<N: Nic> Connection<N> {
    /// Shakes hands over a fresh link and sets up what reads need. If it leads to the server of a lost connection, the
    /// channels of that one, with the calls under way, go on over this one. Otherwise those calls end.
    pub(super) fn open(
        hub: &Hub<N>,
        link: N::Link,
        config: &ClientConfig,
        lost: Option<&Self>,
    ) -> Result<Self, StoreError> {
        // Sequences begin anew with a channel, so channels that do not go on need a session of their own.
        let session = lost.map_or_else(crate::random, |lost| Ok(lost.session))?;
        let manifest = say_hello(&link, config, session)?;
        let window = config.window.clamp(1, manifest.window.into());
        let reads = RemoteConfig { window: 4 * window, ..RemoteConfig::default() };
        let mut remote = hub.with_queue(|queue| Remote::beside(queue, hub.nic(), &link, reads))?;
        let (answer, mut facts) = ask(&link, &Ask::OpenReads, vec![remote.facts(&link)?], config.patience)?;
        let (Answer::Reads, Some(theirs)) = (answer, facts.pop()) else { return Err(unexpected(&link)) };
        remote.connect(theirs)?;
        let connection = Self {
            hub: hub.clone(),
            window,
            pair: pair(&manifest, &link)?,
            patience: config.patience,
            timeout: config.timeout,
            directories: directories(&manifest),
            entries: vec![Cell::new(Tables::default()); PARTITIONS],
            tables: vec![Cell::new(Table::NONE); PARTITIONS],
            channels: match lost {
                Some(lost) => lost.channels.clone(),
                None => manifest.directories.iter().map(|_| OnceCell::new()).collect(),
            },
            staging: OnceCell::new(),
            session,
            known: RefCell::default(),
            remote,
            manifest,
            link,
        };
        connection.fetch_all_regions()?;
        match lost {
            Some(lost) if lost.manifest == connection.manifest => connection.resume()?,
            Some(_) => return Err(StoreError::ServerLost { peer: connection.link.peer() }),
            None => {}
        }
        Ok(connection)
    }

    /// Connects the channels of the session anew, over this connection's link.
    fn resume(&self) -> Result<(), StoreError> {
        for (core, cell) in self.channels.iter().enumerate() {
            let Some(channel) = cell.get() else { continue };
            let had_staging = channel.has_staging();
            let facts = channel.reconnect(&self.link)?;
            if had_staging {
                self.provide_staging(channel)?;
            }
            self.connect_channel(core as u16, channel, facts, true)?;
        }
        Ok(())
    }

    /// Imports all regions of the server, which tells of a limited number at a time.
    fn fetch_all_regions(&self) -> Result<(), StoreError> {
        for _ in 0..RegionId::COUNT {
            if !self.fetch_regions()? {
                return Ok(());
            }
        }
        Err(unexpected(&self.link))
    }

    /// Ends all calls.
    pub(super) fn close_channels(&self) {
        self.channels.iter().filter_map(OnceCell::get).for_each(|channel| channel.close());
    }

    /// Imports the regions that the server has and we do not. Says whether there were any.
    pub(super) fn fetch_regions(&self) -> Result<bool, StoreError> {
        let mut known = self.known.borrow_mut();
        let (answer, facts) = self.ask(&Ask::Regions { known: known.clone() }, Vec::new())?;
        let Answer::Regions(ids) = answer else { return Err(unexpected(&self.link)) };
        if ids.len() != facts.len() {
            return Err(unexpected(&self.link));
        }
        for (&id, facts) in ids.iter().zip(facts) {
            let region = RegionId::new(id.into()).filter(|_| !known.contains(&id));
            let region = region.ok_or_else(|| unexpected(&self.link))?;
            self.remote.add_region(region, self.link.import(facts)?);
            known.push(id);
        }
        Ok(!ids.is_empty())
    }

    /// The directory that has a core's partitions.
    pub(super) fn directory(&self, core: u16) -> &Directory {
        &self.directories[usize::from(core)]
    }

    /// The directory entry in use for a partition.
    pub(super) fn entry(&self, partition: PartitionId) -> Tables {
        self.entries[partition.index()].get()
    }

    /// Uses this directory entry for a partition from now on.
    pub(super) fn set_entry(&self, partition: PartitionId, tables: Tables) {
        self.entries[partition.index()].set(tables);
        self.tables[partition.index()].set(tables.current.unwrap_or(Table::NONE));
    }

    /// The table of a partition by the directory entry in use.
    #[inline]
    pub(super) fn table(&self, partition: PartitionId) -> Option<Table> {
        let table = self.tables[partition.index()].get();
        (table.rows > 0).then_some(table)
    }

    /// What the channels that were opened did so far.
    pub(super) fn channel_counters(&self) -> impl Iterator<Item = ChannelCounters> {
        self.channels.iter().filter_map(OnceCell::get).map(|channel| channel.counters())
    }

    /// The channel to a core, opened on first use.
    #[inline]
    pub(super) fn channel(&self, core: u16) -> Result<&Rc<Channel<N>>, StoreError> {
        match self.channels[usize::from(core)].get() {
            Some(channel) => Ok(channel),
            None => self.open_channel(core),
        }
    }

    #[cold]
    fn open_channel(&self, core: u16) -> Result<&Rc<Channel<N>>, StoreError> {
        let config = ChannelConfig {
            window: self.window,
            pair: self.pair,
            timeout: self.timeout,
            hold_calls: true,
            ..ChannelConfig::default()
        };
        let channel = Channel::new(&self.hub, &self.link, config)?;
        let facts = channel.facts()?;
        self.connect_channel(core, &channel, facts, false)?;
        Ok(self.channels[usize::from(core)].get_or_init(|| Rc::new(channel)))
    }

    /// Connects a channel's end, which has these facts, with the core's.
    fn connect_channel(
        &self,
        core: u16,
        channel: &Channel<N>,
        facts: Vec<Facts>,
        goes_on: bool,
    ) -> Result<(), StoreError> {
        let ask = Ask::OpenChannel { core, window: self.window as u16 };
        let (answer, theirs) = self.ask(&ask, facts)?;
        let Answer::Channel { greeting } = answer else { return Err(unexpected(&self.link)) };
        let greeting = Greeting::parse(&greeting).ok_or_else(|| unexpected(&self.link))?;
        // A server that knows sequences of a channel that begins would answer new requests with old outcomes.
        if greeting.resumed && !goes_on {
            return Err(unexpected(&self.link));
        }
        Ok(channel.connect(theirs, &greeting)?)
    }

    /// Makes sure that a channel can carry values too long for a request.
    pub(super) fn provide_staging(&self, channel: &Channel<N>) -> Result<(), StoreError> {
        if channel.has_staging() {
            return Ok(());
        }
        let staging = match self.staging.get() {
            Some(staging) => staging,
            None => {
                let staging = self.open_staging()?;
                self.staging.get_or_init(|| staging)
            }
        };
        channel.set_staging(staging.clone());
        Ok(())
    }

    /// Asks for a staging area. Values for requests over UC and UD go there ahead of these.
    fn open_staging(&self) -> Result<Staging<N>, StoreError> {
        let ahead = self.pair.request.is_lossy().then(|| Ahead::new(&self.hub, &self.link));
        let mut ahead = ahead.transpose()?;
        let ours: Result<Vec<Facts>, _> = ahead.iter().map(|ahead| ahead.facts(&self.link)).collect();
        let (answer, theirs) = self.ask(&Ask::OpenStaging, ours?)?;
        let mut theirs = theirs.into_iter();
        let (Answer::Staging { place_bytes }, Some(region)) = (answer, theirs.next()) else {
            return Err(unexpected(&self.link));
        };
        if let Some(ahead) = &mut ahead {
            ahead.connect(theirs.next().ok_or_else(|| unexpected(&self.link))?)?;
        }
        let region = self.link.import(region)?;
        Ok(Staging::new(self.hub.nic(), region, place_bytes as usize, ahead)?)
    }

    /// The server's statistics.
    pub(super) fn statistics(&self) -> Result<Statistics, StoreError> {
        match self.ask(&Ask::Statistics, Vec::new())? {
            (Answer::Statistics(statistics), _) => Ok(statistics),
            _ => Err(unexpected(&self.link)),
        }
    }

    fn ask(&self, ask_: &Ask, facts: Vec<Facts>) -> Result<(Answer, Vec<Facts>), StoreError> {
        ask(&self.link, ask_, facts, self.patience)
    }
}

/// The handshake of every link.
fn say_hello<L: Link>(link: &L, config: &ClientConfig, session: u128) -> Result<Manifest, StoreError> {
    let hello = Ask::Hello { token: config.token.clone(), session, design: config.design.clone() };
    let (answer, _) = ask(link, &hello, Vec::new(), config.patience)?;
    let Answer::Welcome(manifest) = answer else { return Err(unexpected(link)) };
    check(&manifest, link)?;
    Ok(manifest)
}

/// Opens bare echoes over a fresh link.
pub(super) fn open_echo<N: Nic>(
    hub: &Hub<N>,
    link: &N::Link,
    config: &ClientConfig,
    verb: EchoVerb,
) -> Result<EchoEnd<N>, StoreError> {
    say_hello(link, config, crate::random()?)?;
    let completions = EchoEnd::<N>::COMPLETIONS;
    let queue = hub.with_queue(|queue| hub.nic().create_completion_queue_beside(queue, completions))?;
    let mut end = EchoEnd::new(hub.nic(), link, queue, verb)?;
    let open = Ask::OpenEcho { writes: verb == EchoVerb::Write };
    let (Answer::Echo, theirs) = ask(link, &open, end.facts()?, config.patience)? else {
        return Err(unexpected(link));
    };
    end.connect(theirs)?;
    Ok(end)
}

/// Asks a question on the link and waits for the answer.
fn ask<L: Link>(
    link: &L,
    ask: &Ask,
    facts: Vec<Facts>,
    patience: Duration,
) -> Result<(Answer, Vec<Facts>), StoreError> {
    let sent = link.send(&control::encode(ask), facts);
    // A server that refuses at once may close before it was asked; its reason is there to be read all the same.
    let (message, facts) = match (sent, link.receive(patience)) {
        (_, Ok(Some(frame))) => frame,
        (Err(error), _) | (_, Err(error)) => return Err(error.into()),
        (Ok(()), Ok(None)) => {
            // Its answer may come yet, and must not be taken for that to another question.
            link.close();
            let what = format!("it did not answer within {} ms", patience.as_millis());
            return Err(StoreError::Protocol { peer: link.peer(), what });
        }
    };
    match control::decode(&message, &link.peer())? {
        Answer::Refused(reason) => Err(StoreError::Refused { peer: link.peer(), reason }),
        answer => Ok((answer, facts)),
    }
}

fn unexpected(link: &impl Link) -> StoreError {
    StoreError::Protocol { peer: link.peer(), what: "an answer does not fit its question".into() }
}

/// A manifest is a peer's bytes: what will be used as an index or a length is checked here.
fn check(manifest: &Manifest, link: &impl Link) -> Result<(), StoreError> {
    let regions = manifest.directories.iter().all(|&id| usize::from(id) < RegionId::COUNT);
    let slots = manifest.slots.is_none() || shape(manifest).is_some();
    let sane = regions
        && slots
        && (1..=64).contains(&manifest.directories.len())
        && (1..=256).contains(&manifest.window);
    if sane { Ok(()) } else { Err(unexpected(link)) }
}

/// How messages travel, by the manifest.
fn pair(manifest: &Manifest, link: &impl Link) -> Result<Pair, StoreError> {
    let way = |name: &str| name.parse().map_err(|_| unexpected(link));
    Ok(Pair { request: way(&manifest.request)?, reply: way(&manifest.reply)? })
}

/// What the slots of a hopscotch table are like, if a manifest says that there are such.
pub(super) fn shape(manifest: &Manifest) -> Option<Shape> {
    let (bytes, neighbourhood) = manifest.slots?;
    let pointing = Shape::out_of_table(neighbourhood.into())?;
    if usize::from(bytes) == pointing.slot_bytes() {
        return Some(pointing);
    }
    Shape::inline_slots(neighbourhood.into(), bytes.into())
}

fn directories(manifest: &Manifest) -> Vec<Directory> {
    let region = |&id: &u16| RegionId::new(id.into()).expect("the manifest was checked");
    manifest.directories.iter().map(|id| Directory::new(region(id), manifest.incarnation)).collect()
}
