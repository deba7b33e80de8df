//! Attends to one client's link: the handshake, then whatever the client asks for until it is gone.
//!
//! A thread per client, asleep in the kernel but for the moments in which a connection is set up. Whatever a client
//! sends here, it harms itself alone: a message that makes no sense ends the link, and is counted.

use super::{LOOK_AROUND, Shared, core::CoreJob};
use crate::{
    StoreError,
    control::{self, Answer, Ask},
};
use locus_fabric::{
    Access, Facts, Link, Nic, PagePolicy, QueuePair, QueuePairConfig,
    echo::{self, EchoEnd, EchoServer, EchoVerb},
};
use locus_rpc::SessionId;
use locus_runtime::{Idle, MonotonicClock, channel};
use std::{
    hint::black_box,
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

/// How long a stranger may take to say hello.
const HELLO_PATIENCE: Duration = Duration::from_secs(2);
/// How many large values of one client may be on their way.
const STAGING_SLOTS: usize = 2;

/// How many regions one answer tells of: a message carries 240 descriptors at most.
const REGIONS_PER_ANSWER: usize = 128;

pub(super) struct Attendant<N: Nic> {
    shared: Arc<Shared<N>>,
    link: N::Link,
    client: u64,
    /// The client's READs end here, and the WRITEs of values that go ahead of their requests. Nobody polls these: such verbs
    /// take nothing of this side's CPU.
    passive: Vec<(N::CompletionQueue, N::QueuePair)>,
    staging: Option<N::Region>,
    session: Option<SessionId>,
    /// The client only wants echoes.
    echo: Option<EchoServer<N>>,
}

impl<N: Nic> Drop for Attendant<N> {
    fn drop(&mut self) {
        self.link.close();
        for core in &self.shared.cores {
            core.send(CoreJob::Gone { client: self.client });
        }
        self.shared.crowd().remove(self.client);
    }
}

/// The parts of an attendant that may go to its thread.
pub(super) struct Arrival<N: Nic>(Arc<Shared<N>>, N::Link, u64);

impl<N: Nic> Attendant<N> {
    /// An attendant that is yet to start on a thread of its own.
    #[expect(clippy::new_ret_no_self, reason = "queue pairs stay on the thread that makes them")]
    pub(super) fn new(shared: Arc<Shared<N>>, link: N::Link, client: u64) -> Arrival<N> {
        Arrival(shared, link, client)
    }

    fn attend(&mut self) -> Result<(), StoreError> {
        let arrived = MonotonicClock::new();
        loop {
            if self.shared.stopping.load(Ordering::Relaxed) {
                return Ok(());
            }
            if let Some((message, facts)) = self.link.receive(LOOK_AROUND)? {
                let (answer, facts) = self.answer(&message, facts)?;
                self.link.send(&control::encode(&answer), facts)?;
                if let Some(echo) = self.echo.take() {
                    return self.answer_echoes(echo);
                }
            } else if self.session.is_none() && arrived.elapsed() > HELLO_PATIENCE {
                return Err(self.broken("it connected and said nothing"));
            }
        }
    }

    fn answer(&mut self, message: &[u8], facts: Vec<Facts>) -> Result<(Answer, Vec<Facts>), StoreError> {
        let ask: Ask = control::decode(message, &self.link.peer())?;
        let Some(session) = self.session else { return self.hello(ask).map(|answer| (answer, Vec::new())) };
        match ask {
            Ask::Hello { .. } => Err(self.broken("it said hello twice")),
            Ask::OpenChannel { core, window } => self.open_channel(session, core, window, facts),
            Ask::OpenReads => self.open_reads(facts),
            Ask::Regions { known } => {
                let mut regions = self.shared.regions.except(&known);
                // One message carries so many descriptors; the client asks until there are no more.
                regions.truncate(REGIONS_PER_ANSWER);
                let facts =
                    regions.iter().map(|(_, region)| self.link.grant(region)).collect::<Result<_, _>>()?;
                Ok((Answer::Regions(regions.into_iter().map(|(id, _)| id).collect()), facts))
            }
            Ask::OpenStaging => self.open_staging(facts),
            Ask::Statistics => {
                let statistics = self.shared.snapshots.take(|| self.shared.statistics());
                Ok((Answer::Statistics(statistics), Vec::new()))
            }
            Ask::OpenEcho { writes } => self.open_echo(writes, facts),
        }
    }

    fn hello(&mut self, ask: Ask) -> Result<Answer, StoreError> {
        let Ask::Hello { token, session, design } = ask else {
            return Err(self.broken("it did not say hello"));
        };
        let ours = &self.shared.config;
        if ours.token.as_ref().is_some_and(|ours| !same(ours, &token)) {
            let reason = "the token is missing or wrong: give the server's token file (--token-file)";
            return Err(self.refused(reason.into()));
        }
        if let Some(theirs) = design.filter(|theirs| *theirs != ours.design.name) {
            return Err(
                self.refused(format!("this server serves the design {}, not {theirs}", ours.design.name))
            );
        }
        let welcomed = self.shared.crowd().welcome(self.client, ours.clients_max);
        welcomed.map_err(|reason| self.refused(reason))?;
        self.session = Some(session);
        Ok(Answer::Welcome(self.shared.manifest.clone()))
    }

    fn open_channel(
        &self,
        session: SessionId,
        core: u16,
        window: u16,
        facts: Vec<Facts>,
    ) -> Result<(Answer, Vec<Facts>), StoreError> {
        let Some(core) = self.shared.cores.get(usize::from(core)) else {
            return Err(self.broken("it asked for a channel to no core"));
        };
        let (answer, answered) = channel::channel();
        // The first queue pair of a link takes this thread's time if its facts lead nowhere, and never a core's.
        if self.passive.is_empty() {
            return Err(self.broken("it asked for a channel before it asked for READs"));
        }
        core.send(CoreJob::Open {
            link: self.link.clone(),
            client: self.client,
            facts,
            session,
            window: window.into(),
            answer,
        });
        match answered.receive() {
            Ok(Ok(accepted)) => {
                let greeting = accepted.greeting.encode().to_vec();
                Ok((Answer::Channel { greeting }, accepted.facts))
            }
            Ok(Err(reason)) => Err(self.refused(reason)),
            Err(_) => Err(self.refused("the server is stopping".into())),
        }
    }

    fn open_reads(&mut self, mut facts: Vec<Facts>) -> Result<(Answer, Vec<Facts>), StoreError> {
        let (Some(facts), true) = (facts.pop(), self.passive.is_empty()) else {
            return Err(self.broken("it asked for a second queue pair for READs, or gave no facts"));
        };
        let ours = self.open_passive(facts)?;
        Ok((Answer::Reads, vec![ours]))
    }

    /// Connects a queue pair of the client with one that this side leaves alone. Gives the facts of that.
    fn open_passive(&mut self, facts: Facts) -> Result<Facts, StoreError> {
        let nic = &self.shared.nic;
        let queue = nic.create_completion_queue(16)?;
        let config = QueuePairConfig { send_depth: 1, receive_depth: 1, ..QueuePairConfig::default() };
        let mut pair = nic.create_queue_pair(&self.link, &config, &queue, &queue)?;
        let ours = pair.facts(&self.link)?;
        pair.connect(facts)?;
        self.passive.push((queue, pair));
        Ok(ours)
    }

    fn open_staging(&mut self, mut facts: Vec<Facts>) -> Result<(Answer, Vec<Facts>), StoreError> {
        if self.staging.is_some() || self.passive.is_empty() {
            return Err(
                self.broken("it asked for a second staging area, or for one before it asked for READs")
            );
        }
        let ahead = facts.pop().map(|facts| self.open_passive(facts)).transpose()?;
        let place_bytes = self.shared.config.value_bytes_max.next_multiple_of(64).max(64);
        let bytes = STAGING_SLOTS * place_bytes;
        let region = self.shared.nic.register(bytes, Access::RemoteWrite, PagePolicy::Base)?;
        for core in &self.shared.cores {
            core.send(CoreJob::Staging { client: self.client, region: region.clone() });
        }
        let facts = [Some(self.link.grant(&region)?), ahead];
        self.staging = Some(region);
        Ok((Answer::Staging { place_bytes: place_bytes as u32 }, facts.into_iter().flatten().collect()))
    }

    fn open_echo(&mut self, writes: bool, facts: Vec<Facts>) -> Result<(Answer, Vec<Facts>), StoreError> {
        let nic = &self.shared.nic;
        let queue = nic.create_completion_queue(EchoEnd::<N>::COMPLETIONS)?;
        let verb = if writes { EchoVerb::Write } else { EchoVerb::Send };
        let mut end = EchoEnd::new(nic, &self.link, queue, verb)?;
        let ours = end.facts()?;
        end.connect(facts)?;
        self.echo = Some(EchoServer::new(end));
        Ok((Answer::Echo, ours))
    }

    /// Answers echoes until the client is gone or the server stops.
    fn answer_echoes(&self, mut echo: EchoServer<N>) -> Result<(), StoreError> {
        let mut idle = Idle::default();
        idle.naps(echo.comes_silently().then_some(echo::NAP));
        while self.link.alive() && !self.shared.stopping.load(Ordering::Relaxed) {
            if echo.turn()? > 0 {
                idle.reset();
            } else {
                idle.step(echo.queue());
            }
        }
        Ok(())
    }

    fn broken(&self, what: &str) -> StoreError {
        StoreError::Protocol { peer: self.link.peer(), what: what.into() }
    }

    fn refused(&self, reason: String) -> StoreError {
        StoreError::Refused { peer: self.link.peer(), reason }
    }
}

/// Whether a token is the right one. Looks at all of it whatever it finds, so that the time it takes tells a stranger nothing
/// of where the first mistake is.
fn same(ours: &[u8], theirs: &[u8]) -> bool {
    let differences = ours.iter().zip(theirs).fold(0, |found, (one, other)| black_box(found | (one ^ other)));
    ours.len() == theirs.len() && differences == 0
}

impl<N: Nic> Arrival<N> {
    /// Attends until the client is gone or the server stops.
    pub(super) fn run(self) {
        let Self(shared, link, client) = self;
        let mut attendant =
            Attendant { shared, link, client, passive: Vec::new(), staging: None, session: None, echo: None };
        let Err(error) = attendant.attend() else { return };
        let reason = match error {
            StoreError::Fabric(locus_fabric::FabricError::PeerLost { .. }) => return,
            StoreError::Refused { reason, .. } => reason,
            error => error.to_string(),
        };
        attendant.shared.dropped.fetch_add(1, Ordering::Relaxed);
        // Its place is free by the time that it is told.
        attendant.shared.crowd().remove(attendant.client);
        refuse(&attendant.link, &reason);
    }
}

/// Tells a client why it may not stay, if it still listens.
pub(super) fn refuse(link: &impl Link, reason: &str) {
    let _ = link.send(&control::encode(&Answer::Refused(reason.to_owned())), Vec::new());
    link.close();
}

#[cfg(test)]
mod tests {
    use super::same;

    #[test]
    fn only_the_whole_token_is_the_right_one() {
        assert!(same(b"", b"") && same(b"secret", b"secret"));
        for wrong in [&b""[..], b"s", b"secre", b"secrets", b"Secret", b"secreT", b"\0\0\0\0\0\0"] {
            assert!(!same(b"secret", wrong), "{wrong:?}");
        }
    }
}
