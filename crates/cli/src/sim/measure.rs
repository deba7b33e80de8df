//! `locus sim measure`: measures the raw verbs of a real fabric, and writes a preset from them.

use super::calibrate::table;
use crate::{Outcome, token};
use anyhow::{Context, bail};
use clap::Args;
use indicatif::{ProgressBar, ProgressStyle};
use locus_fabric::{
    Address, Nic,
    echo::{EchoVerb, Probe, READS_OUTSTANDING},
    verbs::VerbsNic,
};
use locus_sim::{
    Preset,
    calibrate::compare,
    measure::{Declared, Effort, Planned, STAGES, Taken, plan, preset, take},
};
use locus_store::{Client, ClientConfig};
use std::{
    fs::File,
    io::Write,
    path::{Path, PathBuf},
    time::Duration,
};

/// Which fabric, and where to write.
#[derive(Args, Debug)]
#[command(
    after_help = "Needs a server at the other end: `locus serve --listen ADDR` on another machine, of any design, at rest.
One thread of this machine posts READs, WRITEs and echoes by SEND, over RC, of several lengths, with one and with several
under way, over one queue pair and over four. The numbers of the model that these show are fitted to them; what they do
not show is taken from the preset apt, and the file says so of each number: put in what you know.

Exit status: 0 the model meets what was measured; 1 the preset is written, and some measurements are off (see the table).

Examples:
  locus sim measure rdma://10.0.0.7 --output my-cluster.toml
  locus sim bench --preset my-cluster.toml --servers 4 --clients 64"
)]
pub struct MeasureArgs {
    /// Address of the server, as it printed it
    #[arg(value_name = "ADDR")]
    address: Address,
    /// Where to write the preset; a file that is there is left alone
    #[arg(long, short, value_name = "FILE", default_value = "measured.toml")]
    output: PathBuf,
    /// How long each measurement lasts
    #[arg(long, value_name = "MS", default_value_t = 300, value_parser = clap::value_parser!(u64).range(1..=60_000))]
    milliseconds: u64,
    /// The server's token file, if it has one
    #[arg(long, value_name = "FILE")]
    token_file: Option<PathBuf>,
}

pub fn run(arguments: &MeasureArgs) -> anyhow::Result<Outcome> {
    let nic = match &arguments.address {
        Address::Rdma { nic, .. } => nic,
        Address::Shm(_) => bail!(
            "{}: over shared memory there is no NIC to model, the caller's core copies: measure an rdma:// address",
            arguments.address
        ),
        Address::Sim(_) => bail!(
            "{}: a simulated server is reached within its simulation alone: measure an rdma:// address",
            arguments.address
        ),
    };
    // Known before minutes were spent.
    let name = writable(&arguments.output)?;
    let nic = VerbsNic::open(nic)?;
    let token = arguments.token_file.as_deref().map(token::read).transpose()?.unwrap_or_default();
    let config = ClientConfig { token, ..ClientConfig::default() };
    let client = Client::connect(&nic, std::slice::from_ref(&arguments.address), config)?;
    let plan = plan();
    let bar = ProgressBar::new((plan.len() + STAGES) as u64);
    let style = ProgressStyle::with_template("[{bar:40}] {pos} of {len}  {msg}");
    bar.set_style(style.expect("a template that makes sense"));
    let effort = Effort::lasting(Duration::from_millis(arguments.milliseconds));
    let measured =
        measure(&client, &plan, &effort, &bar).with_context(|| format!("measuring {}", arguments.address))?;
    let declared = Declared {
        inline_bytes_max: nic.properties().inline_bytes_max,
        reads_outstanding: nic.properties().reads_outstanding_max.min(READS_OUTSTANDING),
        mtu_bytes: nic.properties().datagram_bytes_max,
        cores: std::thread::available_parallelism().map_or(1, Into::into),
    };
    bar.set_message("fitting the model");
    let source = format!("{}, from {}", arguments.address, nic.describe());
    let fitting = |stage: usize| bar.set_position((plan.len() + stage) as u64);
    let text = preset(&name, &declared, &measured, &source, &fitting)?;
    bar.finish_and_clear();
    write(&arguments.output, &text)?;
    report(&arguments.output)
}

/// The name of a preset that is to be written to a file that is not there.
fn writable(output: &Path) -> anyhow::Result<String> {
    let Some(name) = output.file_stem().and_then(|name| name.to_str()) else {
        bail!("{} names no file", output.display());
    };
    if output.exists() {
        bail!("{} is there already: name another file with --output", output.display());
    }
    let directory = output.parent().filter(|directory| !directory.as_os_str().is_empty());
    if let Some(directory) = directory
        && !directory.is_dir()
    {
        bail!("there is no directory {}", directory.display());
    }
    Ok(name.to_owned())
}

fn measure<N: Nic>(
    client: &Client<N>,
    plan: &[Planned],
    effort: &Effort,
    bar: &ProgressBar,
) -> anyhow::Result<Vec<(Planned, Taken)>> {
    // Queue pairs are made as they are needed, by verb, and go on to the next measurement.
    let (mut sends, mut writes): (Vec<Probe<N>>, Vec<Probe<N>>) = (Vec::new(), Vec::new());
    let mut measured = Vec::new();
    for planned in plan {
        bar.set_message(planned.what.clone());
        let point = &planned.point;
        let probes = if point.task().ends() == EchoVerb::Send { &mut sends } else { &mut writes };
        while probes.len() < point.queue_pairs {
            probes.push(client.probe(point.task())?);
        }
        let taken =
            take(&mut probes[..point.queue_pairs], point, effort).with_context(|| planned.what.clone())?;
        measured.push((planned.clone(), taken));
        bar.inc(1);
    }
    Ok(measured)
}

fn write(output: &Path, text: &str) -> anyhow::Result<()> {
    let written = File::create_new(output).and_then(|mut file| file.write_all(text.as_bytes()));
    written.with_context(|| format!("writing {}", output.display()))
}

/// Says how near the model of what was written comes to what was measured.
fn report(output: &Path) -> anyhow::Result<Outcome> {
    let path = output.to_str().with_context(|| format!("{} is no text", output.display()))?;
    let preset = Preset::find(path)?;
    let comparisons = compare(&preset, &|_| {})?;
    println!("{}", table(&comparisons));
    let off = comparisons.iter().filter(|comparison| !comparison.holds()).count();
    println!(
        "{path}: {} numbers fitted, {} of {} measurements met",
        preset.fitted.len(),
        comparisons.len() - off,
        comparisons.len()
    );
    Ok(if off == 0 { Outcome::Done } else { Outcome::Partly })
}
