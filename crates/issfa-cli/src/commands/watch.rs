//! `issfa watch`: the page of a run, alive while the fit goes on.

use crate::{Outcome, words};
use clap::Args;
use issfa_report::watch::Watch;
use std::path::PathBuf;

/// Show the page of a run while its fit goes on, in this process or any other; the run is only read
#[derive(Args)]
#[command(
    after_help = "Example:\n  issfa watch run\nthen open the address that it prints. On another machine: ssh -L 8765:127.0.0.1:8765 NAME issfa watch run --port 8765"
)]
pub struct Options {
    /// The run folder
    run: PathBuf,
    /// The port to listen on (default: any that is free)
    #[arg(long, value_name = "N", default_value_t = 0)]
    port: u16,
    /// The address to listen on, or a name of this machine (default 127.0.0.1: this machine only); others can then read the
    /// run, by an address in numbers, by the machine's own name, or by the name given
    #[arg(long, value_name = "ADDRESS|NAME", default_value = "127.0.0.1")]
    listen: String,
}

pub fn run(options: Options) -> Outcome {
    let watch = Watch::start(&options.run, &options.listen, options.port, words::text)?;
    if watch.is_open() {
        err!("warning: everybody who reaches {} can read this run", options.listen);
    }
    out!("{} shows {}; Ctrl-C ends it (the fit goes on)", watch.address(), options.run.display());
    watch.serve(|text| err!("warning: {text}"));
    Ok(())
}
