use std::{thread, time::Duration};

use roce::{Context, Device, OpenOptions, devices};
use sd_notify::NotifyState;

use crate::{
    failure::Failure,
    output::{errln, outln},
};

/// The program with the device's address may end.
const RETRY: Duration = Duration::from_secs(1);

/// Share this host's addresses among all users.
///
/// Without this command an address belongs to the first program that opens it, and to other
/// programs of that user. Start it first, as root: it then owns the addresses. Each program of any
/// user gets the packets of its queue pairs and listeners, and no others.
///
/// It runs until Ctrl-C. Programs then wait for its next start, and continue. If another program
/// owns an address, this command waits for it. roce_lo is not shared: each program there has its
/// own address.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Devices: names from `roce devinfo`, or udp:ADDRESS; by default all but roce_lo
    #[arg(value_name = "DEV")]
    devices: Vec<String>,
}

pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    let named: Result<Vec<Device>, _> =
        args.devices.iter().map(|name| Device::named(name)).collect();
    let all = || devices().into_iter().filter(|device| device.name() != "roce_lo").collect();
    let devices = if args.devices.is_empty() { all() } else { named? };
    if devices.is_empty() {
        return Err("no interface of this host has an address; udp:ADDRESS names one".into());
    }
    OpenOptions::from_environment()?;
    let (mut open, mut ready) = (Vec::new(), false);
    let mut missing: Vec<_> = devices.into_iter().map(|device| (device, String::new())).collect();
    loop {
        missing.retain_mut(|(device, reported)| {
            let options = OpenOptions::from_environment().unwrap_or_default(); // checked above
            match device.open(OpenOptions { receives_for_users: true, ..options }) {
                Ok(context) => {
                    outln!("{}: {}", device.name(), addresses(&context));
                    open.push(context);
                    false
                }
                Err(error) => {
                    let error = error.to_string();
                    if *reported != error {
                        errln!("roce: {}: {error}", device.name());
                        *reported = error;
                    }
                    true
                }
            }
        });
        if !ready {
            ready = true;
            let _ = sd_notify::notify(&[NotifyState::Ready]); // for a service manager
        }
        if missing.is_empty() {
            thread::park();
        } else {
            thread::sleep(RETRY);
        }
    }
}

fn addresses(context: &Context) -> String {
    let mut addresses: Vec<String> = Vec::new();
    for gid in context.gids().into_iter().filter(|gid| !gid.is_zero()) {
        let address = gid.to_ip().to_string();
        if !addresses.contains(&address) {
            addresses.push(address);
        }
    }
    addresses.join(", ")
}
