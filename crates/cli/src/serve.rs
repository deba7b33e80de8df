//! `locus serve`: a server, until it is told to stop.

use crate::{Outcome, choices::Choices, connect::default_address, output::aligned, size, token};
use anyhow::Context;
use clap::{
    Args,
    builder::{PossibleValue, PossibleValuesParser, TypedValueParser},
};
use locus::{DESIGNS, Design, PagePolicy, Server, ServerConfig};
use locus_store::combinations;
use signal_hook::{
    consts::{SIGINT, SIGTERM},
    iterator::Signals,
};
use std::{
    io::Write,
    path::PathBuf,
    sync::{Arc, atomic::AtomicBool, mpsc},
    time::Duration,
};

/// What to serve, and where.
#[derive(Args, Debug)]
#[command(after_help = "The data is kept in memory only: it is gone when the server ends.
Only processes of the same user reach the socket (mode 0600). With --token-file a client must also show the
content of that file; if it does not exist, it is made, with mode 0600 and a random token.

Examples:
  locus serve
  locus serve --design pilaf-vo --listen shm:/tmp/locus.sock --cores 2 --memory 16GiB
  locus serve --design pilaf-vo --request uc-write --reply ud-send
  locus serve --design pilaf-vo --index lossy --memory 2GiB
  locus serve --token-file ~/.locus-token     (then: locus get --token-file ~/.locus-token KEY)")]
pub struct ServeArgs {
    /// Which design; `locus designs` explains them
    #[arg(long, value_name = "NAME", default_value = "pilaf", value_parser = designs())]
    design: &'static Design,
    #[command(flatten)]
    choices: Choices,
    /// Where to listen; may be given several times
    /// [default: shm:$XDG_RUNTIME_DIR/locus.sock, or shm:/tmp/locus-UID.sock without that]
    #[arg(long, value_name = "ADDR")]
    listen: Vec<String>,
    /// Cores that serve; each owns a share of the keys
    #[arg(long, value_name = "N", default_value_t = ServerConfig::default().cores)]
    cores: usize,
    /// How much memory the data may take; it is reserved as needed
    #[arg(long, value_name = "SIZE", default_value = "4GiB", value_parser = size::parse)]
    memory: usize,
    /// The longest value
    #[arg(long, value_name = "SIZE", default_value = "1MiB", value_parser = size::parse)]
    value_bytes_max: usize,
    /// How many slots a neighbourhood of a hopscotch table has
    #[arg(long, value_name = "N", default_value_t = ServerConfig::default().neighbourhood)]
    neighbourhood: u32,
    /// How long the slots of a hopscotch table are that hold keys and values: a power of two
    #[arg(long, value_name = "BYTES", default_value_t = ServerConfig::default().slot_bytes)]
    slot_bytes: usize,
    /// How many clients may be connected at once
    #[arg(long, value_name = "N", default_value_t = ServerConfig::default().clients_max)]
    clients_max: usize,
    /// How many requests of one client may be unanswered per core
    #[arg(long, value_name = "N", default_value_t = ServerConfig::default().window)]
    window: usize,
    /// Keep the data on pages of the base size, not on huge ones, for comparison
    #[arg(long)]
    small_pages: bool,
    /// A file with a token that clients must show; made if it does not exist
    #[arg(long, value_name = "FILE")]
    token_file: Option<PathBuf>,
}

fn designs() -> impl TypedValueParser<Value = &'static Design> {
    let rows = DESIGNS.iter().map(|design| PossibleValue::new(design.name).help(design.summary));
    let others = combinations().iter().map(|design| PossibleValue::new(design.name).hide(true));
    PossibleValuesParser::new(rows.chain(others))
        .map(|name| Design::find(&name).expect("one of the possible values"))
}

/// Serves until SIGINT or SIGTERM.
pub fn run(mut arguments: ServeArgs) -> anyhow::Result<Outcome> {
    arguments.design = arguments.choices.instead_of(arguments.design)?;
    // Taken before anything is made that a signal should clean up.
    let stopping = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM] {
        // The second signal ends the process at once, the first only says so.
        signal_hook::flag::register_conditional_shutdown(signal, 128 + signal, stopping.clone())?;
        signal_hook::flag::register(signal, stopping.clone())?;
    }
    let mut signals = Signals::new([SIGINT, SIGTERM]).context("watching for signals")?;
    let (token, made) = match arguments.token_file.as_deref().map(token::read_or_make).transpose()? {
        Some((token, made)) => (Some(token), made),
        None => (None, false),
    };
    let addresses =
        if arguments.listen.is_empty() { vec![default_address()] } else { arguments.listen.clone() };
    let server = start(&arguments, token, &addresses)?;
    // A server goes on when nobody reads what it says.
    let _ = std::io::stdout().lock().write_all(describe(&arguments, &server, made).as_bytes());
    let _ = std::io::stdout().flush();
    let (stop, stopped) = mpsc::channel();
    std::thread::Builder::new()
        .name("locus-signals".into())
        .spawn(move || stop.send(signals.forever().next()))?;
    let signal = watch(&server, &stopped);
    drop(server);
    let name = signal.and_then(signal_hook::low_level::signal_name).unwrap_or("a signal");
    eprintln!("locus: stopped by {name}");
    Ok(Outcome::Done)
}

/// A server that takes longer to start says what it does.
const LONG_START: Duration = Duration::from_secs(1);

/// Starts the server. Some indexes take their memory at once, for whose pages the system may need seconds per GiB.
fn start(arguments: &ServeArgs, token: Option<Vec<u8>>, addresses: &[String]) -> anyhow::Result<Server> {
    let memory = size::show(arguments.memory as u64);
    let (started, starting) = mpsc::channel::<()>();
    let patience = std::thread::Builder::new().name("locus-starting".into()).spawn(move || {
        if starting.recv_timeout(LONG_START) == Err(mpsc::RecvTimeoutError::Timeout) {
            // It goes on when nobody reads what it says.
            let _ = writeln!(
                std::io::stderr(),
                "locus: reserving memory (of the {memory} that --memory allows) ..."
            );
        }
    })?;
    let server = Server::start(config(arguments, token), addresses);
    drop(started);
    let _ = patience.join();
    Ok(server?)
}

/// How often it is looked whether the server is in trouble.
const LOOK: Duration = Duration::from_millis(500);

/// Says when the server is in trouble and when that is over, until a signal comes.
fn watch(server: &Server, stopped: &mpsc::Receiver<Option<i32>>) -> Option<i32> {
    let mut troubled = false;
    loop {
        match stopped.recv_timeout(LOOK) {
            Err(mpsc::RecvTimeoutError::Timeout) => {}
            signal => return signal.ok().flatten(),
        }
        let trouble = server.trouble();
        if trouble.is_some() == troubled {
            continue;
        }
        troubled = !troubled;
        // It goes on when nobody reads what it says.
        let _ = match trouble {
            Some(trouble) => writeln!(std::io::stderr(), "locus: no clients for now: {trouble}"),
            None => writeln!(std::io::stderr(), "locus: clients are served again"),
        };
    }
}

fn config(arguments: &ServeArgs, token: Option<Vec<u8>>) -> ServerConfig {
    let defaults = ServerConfig::default();
    // The first regions of all cores must fit a small limit, too.
    let share = arguments.memory / arguments.cores.max(1) / 4;
    ServerConfig {
        design: arguments.design,
        cores: arguments.cores,
        memory_bytes: arguments.memory,
        region_bytes: share.clamp(1 << 20, defaults.region_bytes),
        value_bytes_max: arguments.value_bytes_max,
        neighbourhood: arguments.neighbourhood,
        cache_bytes: None,
        slot_bytes: arguments.slot_bytes,
        clients_max: arguments.clients_max,
        window: arguments.window,
        pages: if arguments.small_pages { PagePolicy::Base } else { PagePolicy::PreferHuge },
        token,
    }
}

fn describe(arguments: &ServeArgs, server: &Server, token_made: bool) -> String {
    let statistics = server.stats();
    let design = arguments.design;
    let mut rows = vec![("design", format!("{}: {}", design.name, design.summary))];
    rows.push(("channels", design.pair().to_string()));
    rows.extend(server.addresses().iter().map(|address| ("address", address.clone())));
    rows.push(("cores", arguments.cores.to_string()));
    rows.push((
        "memory",
        format!(
            "up to {}; {} reserved so far, on {}",
            size::show(statistics.memory_limit_bytes),
            size::show(statistics.region_bytes),
            statistics.pages
        ),
    ));
    rows.push((
        "limits",
        format!(
            "keys of 1 B to 1 KiB, values to {}, {} clients",
            size::show(arguments.value_bytes_max as u64),
            arguments.clients_max
        ),
    ));
    let token = arguments.token_file.as_ref().map(|path| path.display());
    // A socket file is this user's alone; a TCP port is everybody's who reaches it.
    let network = server.addresses().iter().any(|address| !address.starts_with("shm:"));
    let who = if network { "whoever reaches the port" } else { "this user" };
    rows.push((
        "access",
        match &token {
            Some(path) if token_made => format!("{who}, with the token in {path} (made just now)"),
            Some(path) => format!("{who}, with the token in {path}"),
            None if network => format!("{who}: give a token with --token-file"),
            None => who.to_owned(),
        },
    ));
    let with_token = token.map_or(String::new(), |path| format!(" --token-file {path}"));
    let address = server.addresses().first().map_or("", |address| address.as_str());
    rows.push(("try", format!("locus put --connect {address}{with_token} greeting 'hello, world'")));
    let version = env!("CARGO_PKG_VERSION");
    format!(
        "locus {version}\n{}serving (process {}); the data is in memory only, and Ctrl-C ends both\n",
        aligned(rows),
        std::process::id()
    )
}
