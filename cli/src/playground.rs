mod pages;
mod serve;

use std::{
    env, fs,
    net::{Ipv4Addr, TcpListener},
    path::PathBuf,
};

use crate::{failure::Failure, output::outln};
use pages::Pages;

/// Serve the protocol's playground to a browser.
///
/// The page shows two to four adapters and a network, as in `roce demo`. It steps forwards and
/// back; you drop, hold, duplicate or corrupt packets. It is served to this host alone, until
/// Ctrl-C, and sends nothing to other hosts.
///
/// Its files are in ../share/roce/playground beside the tool, or where `cargo xtask playground`
/// builds them in the tool's checkout.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Port on 127.0.0.1; 0 for any that is free
    #[arg(long, default_value_t = 8791)]
    port: u16,
    /// The page's directory
    #[arg(long, value_name = "DIR")]
    page: Option<PathBuf>,
}

pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    let directory = match &args.page {
        Some(directory) => directory.clone(),
        None => find().ok_or(
            "the playground's page is missing beside this tool; build it in a checkout (`cargo \
             xtask playground`), or name its directory with --page",
        )?,
    };
    let pages = Pages::read(&directory)
        .map_err(|error| format!("cannot read the page in {}: {error}", directory.display()))?;
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, args.port)).map_err(|error| {
        format!(
            "cannot listen on port {} of 127.0.0.1: {error}; --port 0 takes a free one",
            args.port
        )
    })?;
    outln!("http://127.0.0.1:{}/", listener.local_addr()?.port());
    serve::serve(&listener, pages)
}

fn find() -> Option<PathBuf> {
    let tool = fs::canonicalize(env::current_exe().ok()?).ok()?;
    let folder = tool.parent()?;
    ["../share/roce/playground", "../playground/page"]
        .into_iter()
        .map(|place| folder.join(place))
        .find(|place| place.join("index.html").is_file())
}
