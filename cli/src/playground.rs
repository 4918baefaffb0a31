//! `roce playground`: serves the playground's page to this host.

mod pages;
mod serve;

use std::{
    env, fs,
    net::{Ipv4Addr, TcpListener},
    path::PathBuf,
};

use crate::{failure::Failure, output::outln};
use pages::Pages;

/// Serve the playground, the protocol in a browser.
///
/// A page shows two to four adapters and a network between them, as in `roce demo`. It goes step by
/// step and back; one can lose, hold, double or damage packets. The page needs no network, and
/// sends nothing anywhere. It is served to this host alone, until Ctrl-C.
///
/// The page is looked for beside the tool: in ../share/roce/playground, and where `cargo xtask
/// playground` has built it in the checkout that the tool is from.
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
            "the playground's page is not beside this tool: `cargo xtask playground` in a checkout \
             builds it, and --page names its directory",
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
