//! `issfa watch`: the page of a run, alive while the fit goes on.

use crate::{Outcome, words};
use clap::Args;
use issfa::Error;
use issfa_report::watch::Watch;
use std::net::IpAddr;
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
    /// The address to listen on (default 127.0.0.1: this machine only); others can then read the run
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1")]
    listen: String,
}

pub fn run(options: Options) -> Outcome {
    let listen: IpAddr = options
        .listen
        .parse()
        .map_err(|_| Error::setting("listen", &options.listen, "write an address in numbers, such as 127.0.0.1"))?;
    let watch = Watch::start(&options.run, listen, options.port, words::text)?;
    if !listen.is_loopback() {
        err!("warning: everybody who reaches {listen} can read this run");
    }
    out!("{} shows {}; Ctrl-C ends it (the fit goes on)", watch.address(), options.run.display());
    watch.serve();
    Ok(())
}
