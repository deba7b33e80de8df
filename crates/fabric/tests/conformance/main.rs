//! The conformance suite of the fabric: what every provider must do, written against the traits alone.
//!
//! The semantics are those of InfiniBand verbs as Mitchell (chapter 2) and Kalia (section 2) use them. Each case runs
//! once on each provider, as a test named `provider::subject::what_must_hold`. No case is ever skipped: what a NIC's
//! declared properties rule out is asserted to be refused. The runner counts the cases that ran on each provider and
//! fails when that is not the whole list.
//!
//! To hold another provider to it, implement [`Provider`] and add a line to `main`.

mod access;
mod at_once;
mod atomics;
mod datagram;
mod declared;
mod echo;
mod failure;
mod fixture;
mod hostile;
mod inline;
mod legality;
mod links;
mod messages;
mod messages_at_once;
mod park;
mod queues;
mod regions;
mod resources;
mod scope;
mod threads;
mod transfer;
mod unready;
#[path = "../shared/wait.rs"]
mod wait;

use fixture::Fixture;
use libtest_mimic::{Arguments, Trial};
use locus_fabric::{
    Address, Nic, ReadOrder,
    shm::ShmNic,
    sim::{
        Adversary, NicModel, SimHost, SimNic, SimProcess, SimulationConfig,
        performance::{LinkCosts, Machine, NicCosts, ProcessorCosts},
        simulate,
    },
    verbs::{VerbsConfig, VerbsNic},
};
use std::{
    collections::HashSet,
    process::ExitCode,
    sync::{
        Arc, PoisonError, RwLock,
        atomic::{AtomicUsize, Ordering},
    },
};

/// A kind of NIC that is held to the suite. Two linked ends come from its [`Nic::pair`]; nothing that they carry may be
/// lost on the way (a network that loses messages has to be quiet while the suite runs).
trait Provider {
    /// The NIC.
    type Nic: Nic;
    /// The first part of the name of each test.
    const NAME: &'static str;
    /// Opens the NIC, which all cases share.
    fn open() -> Self::Nic;
    /// Runs a case.
    fn run(nic: Option<Self::Nic>, case: fn(&mut Fixture<Self::Nic>)) {
        case(&mut Fixture::new(nic.expect("opened before")));
    }
    /// Whether cases share a NIC.
    const SHARES: bool = true;
}

struct Shm;

impl Provider for Shm {
    type Nic = ShmNic;
    const NAME: &'static str = "shm";

    fn open() -> ShmNic {
        ShmNic::open().expect("shared memory works everywhere")
    }
}

struct Verbs;

impl Provider for Verbs {
    type Nic = VerbsNic;
    const NAME: &'static str = "verbs";

    fn open() -> VerbsNic {
        let nic = VerbsNic::open(&chosen()).unwrap_or_else(|error| panic!("{error}"));
        println!("{}", nic.describe());
        nic
    }
}

/// A quiet simulated world per case, whose NIC keeps all promises that there are.
struct Sim;

impl Provider for Sim {
    type Nic = SimNic;
    const NAME: &'static str = "sim";
    const SHARES: bool = false;

    fn open() -> SimNic {
        SimNic::open()
    }

    fn run(_: Option<SimNic>, case: fn(&mut Fixture<SimNic>)) {
        let nic =
            NicModel { read_order: ReadOrder::Increasing, read_atomicity_bytes: 64, ..NicModel::default() };
        // Probes race with stores, so that stores must take time.
        let adversary = Adversary { preempts: 0.02, pause_ns: 100, samples: 0.5, ..Adversary::none() };
        in_a_world(SimulationConfig { nic, adversary, ..SimulationConfig::default() }, case);
    }
}

/// A few hostile worlds per case, whose NIC promises next to nothing.
struct HostileSim;

impl Provider for HostileSim {
    type Nic = SimNic;
    const NAME: &'static str = "hostile-sim";
    const SHARES: bool = false;

    fn open() -> SimNic {
        SimNic::open()
    }

    fn run(_: Option<SimNic>, case: fn(&mut Fixture<SimNic>)) {
        for seed in 0..HOSTILE_WORLDS {
            let adversary = Adversary { scrambles_writes: true, ..Adversary::of_memory() };
            in_a_world(SimulationConfig { seed, adversary, ..SimulationConfig::default() }, case);
        }
    }
}

/// A machine whose costs are modelled: every verb waits for units, PCIe and links, and the processor's time passes.
struct MachineSim;

impl Provider for MachineSim {
    type Nic = SimNic;
    const NAME: &'static str = "machine-sim";
    const SHARES: bool = false;

    fn open() -> SimNic {
        SimNic::open()
    }

    fn run(_: Option<SimNic>, case: fn(&mut Fixture<SimNic>)) {
        let adversary = Adversary { preempts: 0.02, pause_ns: 100, samples: 0.5, ..Adversary::none() };
        let outcome = simulate(SimulationConfig { adversary, ..SimulationConfig::default() }, move || {
            let host = SimHost::add_machine("machine", &apt());
            let main = move || {
                assert!(SimHost::of_caller().machine().is_some(), "nothing is modelled here");
                case(&mut Fixture::new(SimNic::open()));
            };
            SimProcess::spawn_on(host, "case", main).join();
        });
        outcome.unwrap_or_else(|error| panic!("{error}"));
    }
}

/// The machine of the preset `apt`.
fn apt() -> Arc<Machine> {
    /// What else is in the file does not matter here.
    #[derive(serde::Deserialize)]
    struct Preset {
        nic: NicCosts,
        link: LinkCosts,
        processor: ProcessorCosts,
    }
    let Preset { nic, link, processor } =
        toml::from_str(include_str!("../../../sim/presets/apt.toml")).expect("a preset that comes along");
    Arc::new(Machine { nic, link, processor })
}

/// How many hostile worlds see each case.
const HOSTILE_WORLDS: u64 = 3;

fn in_a_world(config: SimulationConfig, case: fn(&mut Fixture<SimNic>)) {
    let seed = config.seed;
    let outcome = simulate(config, move || case(&mut Fixture::new(SimNic::open())));
    outcome.unwrap_or_else(|error| panic!("seed {seed}: {error}"));
}

/// Which providers are held to the suite, by name: all but `verbs` unless this variable names others. RDMA needs a device; see
/// `vm/README.md` for one that needs no hardware.
const PROVIDERS: &str = "LOCUS_PROVIDERS";

/// Which NIC `verbs` is held to the suite on, as behind an address: `gid=2`. By default the first usable one.
const NIC: &str = "LOCUS_NIC";

fn chosen() -> VerbsConfig {
    let options = std::env::var(NIC).unwrap_or_default();
    match format!("rdma://localhost?{options}").parse() {
        Ok(Address::Rdma { nic, .. }) => nic,
        other => panic!("{NIC}={options}: {other:?}"),
    }
}

/// One thing that must hold.
struct Case<N: Nic> {
    /// `subject::what_must_hold`.
    name: &'static str,
    /// Whether no other case may run meanwhile, since it counts what the process holds.
    alone: bool,
    /// Panics when it does not hold.
    run: fn(&mut Fixture<N>),
}

/// Makes a list of cases of `"name" => function`.
macro_rules! list {
    ($($name:literal => $run:expr),* $(,)?) => {
        vec![$($crate::Case { name: $name, alone: false, run: $run }),*]
    };
}
pub(crate) use list;

/// All of them.
fn cases<N: Nic>() -> Vec<Case<N>> {
    let subjects = [
        legality::cases(),
        transfer::cases(),
        at_once::cases(),
        messages_at_once::cases(),
        inline::cases(),
        messages::cases(),
        unready::cases(),
        datagram::cases(),
        queues::cases(),
        access::cases(),
        atomics::cases(),
        failure::cases(),
        declared::cases(),
        regions::cases(),
        threads::cases(),
        park::cases(),
        links::cases(),
        echo::cases(),
        hostile::cases(),
        resources::cases(),
    ];
    subjects.into_iter().flatten().collect()
}

/// How many cases of a provider there are, and how many ran to their end.
struct Count {
    provider: &'static str,
    listed: usize,
    passed: Arc<AtomicUsize>,
}

/// Turns the cases into tests of one provider.
fn enlist<P: Provider>(trials: &mut Vec<Trial>, alone: &Arc<RwLock<()>>) -> Count {
    let nic = P::SHARES.then(P::open);
    let cases = cases::<P::Nic>();
    let names: HashSet<_> = cases.iter().map(|case| case.name).collect();
    assert_eq!(names.len(), cases.len(), "two cases have the same name");
    let passed = Arc::new(AtomicUsize::new(0));
    let count = Count { provider: P::NAME, listed: cases.len(), passed: passed.clone() };
    for case in cases {
        let (nic, alone, passed) = (nic.clone(), alone.clone(), passed.clone());
        trials.push(Trial::test(format!("{}::{}", P::NAME, case.name), move || {
            // A case that failed poisons the lock, which guards nothing but the time.
            let (shared, exclusive);
            if case.alone {
                exclusive = alone.write().unwrap_or_else(PoisonError::into_inner);
                P::run(nic, case.run);
                drop(exclusive);
            } else {
                shared = alone.read().unwrap_or_else(PoisonError::into_inner);
                P::run(nic, case.run);
                drop(shared);
            }
            passed.fetch_add(1, Ordering::Relaxed);
            Ok(())
        }));
    }
    count
}

fn main() -> ExitCode {
    let arguments = Arguments::from_args();
    let (mut trials, alone) = (Vec::new(), Arc::new(RwLock::new(())));
    let mut counts = Vec::new();
    for provider in
        std::env::var(PROVIDERS).as_deref().unwrap_or("shm,sim,hostile-sim,machine-sim").split(',')
    {
        counts.push(match provider {
            "shm" => enlist::<Shm>(&mut trials, &alone),
            "verbs" => enlist::<Verbs>(&mut trials, &alone),
            "sim" => enlist::<Sim>(&mut trials, &alone),
            "hostile-sim" => enlist::<HostileSim>(&mut trials, &alone),
            "machine-sim" => enlist::<MachineSim>(&mut trials, &alone),
            other => {
                panic!("{PROVIDERS}={other}: the providers are shm, verbs, sim, hostile-sim and machine-sim")
            }
        });
    }
    let conclusion = libtest_mimic::run(&arguments, trials);
    if arguments.list {
        return ExitCode::SUCCESS;
    }
    let partial = arguments.filter.is_some() || !arguments.skip.is_empty() || arguments.ignored;
    let mut complete = true;
    for Count { provider, listed, passed } in &counts {
        let passed = passed.load(Ordering::Relaxed);
        println!("{provider}: {passed} of {listed} cases passed{}", if partial { " (filtered)" } else { "" });
        complete &= passed == *listed;
    }
    if conclusion.has_failed() || (!partial && !complete) { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}
