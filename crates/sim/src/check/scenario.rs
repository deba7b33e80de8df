//! What happens in a world: all of it follows from the design and the seed, but can be made smaller afterwards.

use super::keys::{TWIN, key};
use locus_fabric::{
    ReadOrder,
    sim::{Adversary, Chance, NicModel, SimulationConfig},
};
use locus_store::{Design, Index};
use std::{fmt, str::FromStr, time::Duration};

/// One world to be run and judged.
#[derive(Clone, Debug, PartialEq)]
pub struct Scenario {
    /// The design of its server, by name.
    pub design: &'static str,
    /// Decides everything else.
    pub seed: u64,
    /// How many client processes there are.
    pub clients: usize,
    /// How many operations of one client are under way at once.
    pub lanes: usize,
    /// How many operations each lane does.
    pub operations: usize,
    /// How many keys they are about.
    pub keys: usize,
}

/// What the seed decides besides: the parts of a world that are not made smaller.
#[derive(Clone, Debug)]
pub(super) struct Circumstances {
    /// How many cores the server has.
    pub(super) cores: usize,
    /// How many other keys of the same partition there are at first.
    pub(super) preloaded: usize,
    /// One operation in so many puts or deletes one of the others, so that tables grow and rows are kicked out.
    pub(super) fills: u64,
    /// How many others there are: few keep a small table full, many make it grow.
    pub(super) others: usize,
    /// How often a get verifies again before it asks the server.
    pub(super) retries: usize,
    /// How long a client waits for an answer, if that is so short that it gives up now and then.
    pub(super) timeout: Option<Duration>,
    /// The longest value, in bytes.
    pub(super) value_bytes: usize,
    /// Whether gets run at the client or the server, where it is not what the design says.
    pub(super) mixes_reads: bool,
    /// The server's index has so few places that it forgets: so many bytes.
    pub(super) cache_bytes: Option<usize>,
    /// A client is killed after so long.
    pub(super) kills_client: Option<Duration>,
    /// The server is killed after so long, and an empty one takes its place.
    pub(super) kills_server: Option<Duration>,
    /// The world.
    pub(super) simulation: SimulationConfig,
}

/// The limits of what one world may take.
const EVENTS_MAX: u64 = 20_000_000;
/// Longer than any client waits for anything.
const VIRTUAL_NS_MAX: u64 = 100_000_000_000;

/// The longest value of a world with a small cache, in bytes.
pub(super) const SMALL_VALUE_BYTES_MAX: usize = 300;

/// A timeout that pauses and delays of the adversary exceed.
const SHORT_TIMEOUT: Duration = Duration::from_micros(20);

/// As many keys as fill a small cache.
const SMALL_PRELOADED: usize = 70;

/// A cache that forgets within tens of operations: a lossy index of 8 buckets and a log of 3.5 KiB, or 16 buckets of two places.
fn small_cache_bytes(index: Index) -> usize {
    if index == Index::Lossy { 4 << 10 } else { 1 << 10 }
}

impl Circumstances {
    /// The n-th key. Where tags are few enough to matter, two of the first have the same.
    pub(super) fn key(&self, number: usize) -> &'static [u8] {
        if self.cache_bytes.is_some() && number == 1 { TWIN } else { key(number) }
    }
}

impl Scenario {
    /// The world of a seed.
    pub fn of_seed(design: &'static str, seed: u64) -> Self {
        let mut chance = Chance::new(seed ^ 0x5CE4_A210);
        let mut from = |low: u64, high: u64| (low + chance.up_to(high - low)) as usize;
        Self {
            design,
            seed,
            clients: from(1, 4),
            lanes: from(1, 3),
            operations: from(6, 40),
            keys: from(1, 5),
        }
    }

    /// How many operations its clients do in all.
    pub fn size(&self) -> usize {
        self.clients * self.lanes * self.operations
    }

    /// The design's row.
    pub(super) fn row(&self) -> &'static Design {
        Design::find(self.design).expect("a design")
    }

    /// The longest value that fits a slot with the longest key, where values are in slots, or twice a small log with it.
    fn value_bytes_max(&self, is_small: bool) -> usize {
        match self.row().index {
            _ if is_small => SMALL_VALUE_BYTES_MAX,
            Index::HopscotchInline => 80,
            _ => usize::MAX,
        }
    }

    /// What else its seed decides, in words.
    pub fn describe(&self) -> String {
        format!("{:?}", self.circumstances())
    }

    pub(super) fn circumstances(&self) -> Circumstances {
        let mut chance = Chance::new(self.seed ^ 0xC14C_0357);
        let mut one_of = |choices: &[u64]| choices[chance.up_to(choices.len() as u64 - 1) as usize];
        // Drawn apart, so that worlds stay what they were before there was more to draw.
        let mut of_messages = Chance::new(self.seed ^ 0x3E55_A6E5);
        let mut one_in_four = |number: f64| if of_messages.up_to(3) == 0 { number } else { 0.0 };
        let pair = self.row().pair();
        let mut of_pair = Chance::new(self.seed ^ 0x9A12_0E55);
        let mut one_of_pair = |choices: &[u64]| choices[of_pair.up_to(choices.len() as u64 - 1) as usize];
        let mut of_cache = Chance::new(self.seed ^ 0x0DD5_CAC4);
        let is_small = self.row().index.forgets() && of_cache.up_to(1) == 0;
        let nic = NicModel {
            writes_wake: one_of_pair(&[0, 1, 1]) == 1,
            datagram_bytes_max: one_of_pair(&[1024, 4096]) as usize,
            read_order: if one_of(&[0, 1]) == 0 { ReadOrder::Increasing } else { ReadOrder::Unordered },
            read_atomicity_bytes: one_of(&[8, 8, 64]) as usize,
        };
        let adversary = Adversary {
            preempts: one_of(&[0, 2, 10, 30]) as f64 / 100.0,
            pause_ns: one_of(&[500, 4000, 20_000, 100_000]),
            samples: one_of(&[10, 50, 90]) as f64 / 100.0,
            delay_ns: one_of(&[100, 3000, 20_000]),
            // A queue pair that breaks is a fault of its own.
            breaks: if one_of(&[0, 0, 0, 1]) == 1 { 0.004 } else { 0.0 },
            scrambles_writes: one_of(&[0, 1]) == 1,
            outlives_ns: one_of(&[0, 300_000, 3_000_000]),
            unready: one_in_four(0.05),
            unready_ns: 30_000,
            // These are of UC and UD alone.
            loses: if pair.is_lossy() { one_of_pair(&[0, 10, 300]) as f64 / 1000.0 } else { 0.0 },
            reorders: one_of_pair(&[0, 1]) == 1,
            // Only such pairs send a value over one queue pair and its request over another.
            acknowledges_early: if pair.request.is_lossy() {
                one_of_pair(&[0, 50]) as f64 / 100.0
            } else {
                0.0
            },
        };
        // Values that go ahead of their requests are a protocol of their own.
        let goes_ahead = if pair.request.is_lossy() { one_of_pair(&[0, 12_000]) } else { 0 };
        let gives_up = Chance::new(self.seed ^ 0x71AE_0075).up_to(7) == 0;
        let fault = one_of(&[0, 0, 0, 0, 1, 2]);
        let after = Duration::from_nanos(one_of(&[20_000, 60_000, 200_000, 600_000]));
        Circumstances {
            cores: one_of(&[1, 1, 2]) as usize,
            preloaded: (one_of(&[0, 0, 5, 6, 20, 440]) as usize).max(if is_small {
                SMALL_PRELOADED
            } else {
                0
            }),
            fills: one_of(&[2, 4, 8, 1000]),
            others: one_of(&[6, 9, 12, 600]) as usize,
            retries: one_of(&[0, 1, 32, 32]) as usize,
            timeout: gives_up.then_some(SHORT_TIMEOUT),
            value_bytes: (one_of(&[40, 40, 200, 6000]).max(goes_ahead) as usize)
                .min(self.value_bytes_max(is_small)),
            mixes_reads: one_of(&[0, 0, 1]) == 1,
            cache_bytes: is_small.then(|| small_cache_bytes(self.row().index)),
            kills_client: (fault == 1).then_some(after),
            kills_server: (fault == 2).then_some(after),
            simulation: SimulationConfig {
                seed: self.seed,
                nic,
                adversary,
                events_max: EVENTS_MAX,
                virtual_ns_max: VIRTUAL_NS_MAX,
                ..SimulationConfig::default()
            },
        }
    }
}

/// As a line that [`FromStr`] understands, to run the same world again.
impl fmt::Display for Scenario {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { design, seed, clients, lanes, operations, keys } = self;
        write!(out, "{design}:{seed}:{clients}:{lanes}:{operations}:{keys}")
    }
}

impl FromStr for Scenario {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || {
            format!(
                "{text:?} is no world: DESIGN:SEED:CLIENTS:LANES:OPERATIONS:KEYS, as locus sim check prints it"
            )
        };
        let (design, rest) = text.split_once(':').ok_or_else(wrong)?;
        let design = Design::find(design)
            .ok_or_else(|| format!("there is no design {design:?}: see locus designs"))?
            .name;
        let numbers: Result<Vec<u64>, _> = rest.split(':').map(str::parse).collect();
        let numbers = numbers.map_err(|_| wrong())?;
        let [seed, clients, lanes, operations, keys] = <[u64; 5]>::try_from(numbers).map_err(|_| wrong())?;
        let within = |number: u64, most: u64| {
            if (1..=most).contains(&number) { Ok(number as usize) } else { Err(wrong()) }
        };
        Ok(Self {
            design,
            seed,
            clients: within(clients, 64)?,
            lanes: within(lanes, 16)?,
            operations: within(operations, 10_000)?,
            keys: within(keys, 64)?,
        })
    }
}
