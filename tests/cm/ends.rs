//! Programs at one address exit with their connection: datagrams for others are not lost.

use std::{
    env,
    net::{IpAddr, SocketAddr},
    process::{Child, Command},
    time::{Duration, Instant},
};

use roce::{
    Context, Device, OpenOptions,
    cm::{CmQpAttr, ConnParam, EventChannel, EventKind, PortSpace},
};

use super::{PATIENCE, accept, expect, next, own_test, port, resolve};

const CLIENT: &str = "ROCE_TEST_ENDS";
const CLIENTS: usize = 4;
const ROUNDS: usize = 12;

fn open(address: IpAddr) -> Context {
    // The network stack lies between server and clients, as between hosts.
    let is_server = env::var_os(CLIENT).is_none();
    let options = OpenOptions { sockets_only: is_server, ..OpenOptions::default() };
    Device::at(address).unwrap().open(options).unwrap()
}

/// Connects, waits for the server's disconnect, and exits.
fn be_client(told: &str) -> ! {
    let (server, address) = told.split_once(' ').unwrap();
    let context = open(address.parse().unwrap());
    let channel = EventChannel::new().unwrap();
    let id = channel.create_id(PortSpace::Tcp);
    id.set_context(&context).unwrap();
    resolve(&channel, &id, server.parse().unwrap());
    id.create_qp(None, &CmQpAttr::default()).unwrap();
    id.connect(&ConnParam::default()).unwrap();
    expect(&channel, EventKind::Established);
    expect(&channel, EventKind::Disconnected);
    id.disconnect().unwrap();
    drop((id, channel, context)); // as the C library at exit
    std::process::exit(0);
}

fn serve(channel: &EventChannel) {
    let mut ids = Vec::new();
    let mut established = 0;
    while established < CLIENTS {
        let event = next(channel);
        match event.kind() {
            EventKind::ConnectRequest => ids.push(accept(&event)),
            EventKind::Established => established += 1,
            kind => assert_eq!(kind, EventKind::TimewaitExit),
        }
    }
    for id in &ids {
        id.disconnect().unwrap();
    }
}

fn await_end(client: &mut Child, round: usize) {
    let start = Instant::now();
    loop {
        if let Some(status) = client.try_wait().unwrap() {
            assert!(status.success(), "round {round}: {status}");
            return;
        }
        assert!(start.elapsed() < PATIENCE, "round {round}: a client has not heard of its end");
        std::thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn each_hears_of_its_end_whoever_ends_first() {
    if let Ok(told) = env::var(CLIENT) {
        be_client(&told);
    }
    let name = own_test::named("ends::each_hears_of_its_end_whoever_ends_first");
    let process = std::process::id();
    let [address, clients_address] =
        [1, 2].map(|last| IpAddr::from([127, 83, process as u8, last]));
    for round in 0..ROUNDS {
        let server = SocketAddr::new(address, port());
        let told = format!("{server} {clients_address}");
        let mut clients: Vec<_>;
        {
            let context = open(address);
            let channel = EventChannel::new().unwrap();
            let listener = channel.create_id(PortSpace::Tcp);
            listener.set_context(&context).unwrap();
            listener.bind_addr(server).unwrap();
            listener.listen(CLIENTS).unwrap();
            let start = || {
                let mut command = Command::new(env::current_exe().unwrap());
                command.args(["--exact", name]).env(CLIENT, &told).spawn().unwrap()
            };
            clients = (0..CLIENTS).map(|_| start()).collect();
            serve(&channel);
        }
        clients.iter_mut().for_each(|client| await_end(client, round));
    }
}
