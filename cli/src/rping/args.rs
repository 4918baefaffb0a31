use std::fmt::Arguments;

use crate::{common::LinkArgs, output::outln};

/// Let a server read and write a client's memory
///
/// On one host, in two terminals:
///
///     roce rping -s
///     roce rping -c -a 127.0.0.1 -C 10 -v
///
/// The other side can be rdma-core's rping, on rxe or an RDMA network adapter; its options are the
/// same.
#[derive(clap::Args)]
#[command(verbatim_doc_comment)]
#[command(group(clap::ArgGroup::new("role").required(true).args(["server", "client"])))]
pub(crate) struct Args {
    /// Be the server: wait for a client
    #[arg(short)]
    pub(super) server: bool,
    /// Be the client: connect to the server at ADDRESS
    #[arg(short, requires = "address")]
    pub(super) client: bool,
    /// The server's address, at both ends
    ///
    /// Without it the server listens on every IPv4 address; `-a ::0` for every IPv6 one.
    #[arg(short, value_name = "ADDRESS")]
    pub(super) address: Option<String>,
    /// The client's own address
    #[arg(short = 'I', value_name = "ADDRESS", conflicts_with = "server")]
    pub(super) source: Option<String>,
    /// The server's port
    #[arg(short, default_value_t = 7174)]
    pub(super) port: u16,
    /// Number of pings; default: unlimited
    #[arg(short = 'C', value_name = "COUNT", value_parser = clap::value_parser!(u32).range(1..))]
    pub(super) count: Option<u32>,
    /// Buffer size, 23 to 65535 bytes
    ///
    /// The server's must not be smaller than the client's.
    #[arg(short = 'S', value_name = "SIZE", default_value_t = 64)]
    pub(super) size: usize,
    /// Print the ping data
    #[arg(short)]
    pub(super) verbose: bool,
    /// Validate every byte
    #[arg(short = 'V')]
    pub(super) validate: bool,
    /// Print each step
    #[arg(short)]
    pub(super) debug: bool,
    /// Serve many clients, also at once
    #[arg(short = 'P', conflicts_with = "client")]
    pub(super) persistent: bool,
    /// Move the queue pair here, not in rdma_cm
    #[arg(short = 'q')]
    pub(super) own_qp: bool,
    #[command(flatten)]
    pub(super) link: LinkArgs,
}

impl Args {
    pub(super) fn debug(&self, text: Arguments<'_>) {
        if self.debug {
            outln!("{text}");
        }
    }
}
