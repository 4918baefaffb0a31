#![allow(unsafe_code, reason = "what signals do has no safe interface")]

use std::{
    collections::BTreeMap,
    env, io,
    net::IpAddr,
    os::fd::{AsFd, OwnedFd},
    path::Path,
    process::Command,
    sync::Arc,
    thread,
    time::Duration,
};

use roce_transport::{
    addr::PKey,
    cm::{CmMad, ConnRecord, Message, PrivateData, Rtu, ServiceId},
    ids::Qpn,
    share::IdPartition,
    wire::{FrameFields, Ident, NetHeader},
};
use tempfile::TempDir;

use super::{
    admission,
    client::{Client, Control},
    message::{JoinRequest, Request},
    service::Service,
    table,
};
use crate::{
    clock,
    link::{DatagramMeta, DatagramRun, Ended, conn_record, name::Name},
    own_test,
    readiness::is_readable,
};

const HERE: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(10, 0, 0, 1));
const PEER: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(10, 0, 0, 2));

fn net() -> NetHeader {
    NetHeader {
        src: PEER,
        dst: HERE,
        src_port: 61_000,
        traffic_class: 1,
        hop_limit: 64,
        ident: Ident::Likely(0),
        frame: FrameFields::default(),
    }
}

struct Host {
    directory: TempDir,
    service: Option<Service>,
}

impl Host {
    fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let service = Some(Self::service(directory.path()));
        Self { directory, service }
    }

    fn service(directory: &Path) -> Service {
        Service::new(&directory.join("share"), &[(HERE, 0)], usize::MAX).unwrap()
    }

    fn restart(&mut self) {
        self.service = None;
        self.service = Some(Self::service(self.directory.path()));
    }

    fn service_mut(&mut self) -> &mut Service {
        self.service.as_mut().unwrap()
    }

    fn share(&self) -> std::path::PathBuf {
        self.directory.path().join("share")
    }

    /// Runs `wait` while the service works.
    fn serve<T: Send>(&mut self, wait: impl FnOnce(&Path) -> T + Send) -> T {
        let directory = self.share();
        thread::scope(|scope| {
            let waiting = scope.spawn(move || wait(&directory));
            while !waiting.is_finished() {
                self.attend();
                thread::yield_now();
            }
            waiting.join().unwrap()
        })
    }

    fn attend(&mut self) {
        let service = self.service_mut();
        service.look();
        service.attend(clock::now());
    }

    /// Returns the run's datagrams that the service keeps.
    fn arrive(&mut self, run: &DatagramRun<'_>) -> Vec<Vec<u8>> {
        let mut own = Vec::new();
        self.service_mut().forward(run, &mut |run| own.push(run.bytes.to_vec()));
        own
    }

    fn join(&mut self) -> (Client, IdPartition) {
        let client = self.serve(|directory| Client::join(directory, HERE, 0, None));
        let client = client.unwrap().unwrap();
        let partition = client.partition;
        (client, partition)
    }
}

/// A datagram for a partition, filled with `what`.
fn datagram(partition: IdPartition, what: u8) -> Vec<u8> {
    let mut bytes = vec![what; 64];
    bytes[..8].copy_from_slice(&[4, 0, 0xFF, 0xFF, 0, partition.get() << 2, 0, 1]);
    bytes
}

/// UDP payload of a CM message that responds to `id`.
fn management(id: u32) -> Vec<u8> {
    let data = PrivateData::default();
    let rtu = Message::Rtu(Rtu { local_id: 1, remote_id: id, private_data: data });
    let mad = CmMad { transaction: 1, modifier: 0, message: rtu }.encode();
    let header = [0x64, 0, 0xFF, 0xFF, 0, 0, 0, 1, 0, 0, 0, 0, 0x80, 1, 0, 0, 0, 0, 0, 1];
    [&header[..], &mad[..], &[0; 4]].concat()
}

fn run<'a>(net: &'a NetHeader, bytes: &'a [u8], segment: usize) -> DatagramRun<'a> {
    DatagramRun { net, bytes, segment, meta: DatagramMeta::default() }
}

/// Received runs: bytes, segment, congestion.
fn received(client: &mut Client) -> Vec<(Vec<u8>, usize, bool)> {
    let mut all = Vec::new();
    while client.receive(clock::now(), &mut |run| {
        all.push((run.bytes.to_vec(), run.segment, run.meta.congested));
    }) > 0
    {}
    all
}

#[test]
fn what_is_for_a_client_comes_to_it() {
    let mut host = Host::new();
    let ((mut one, first), (mut other, second)) = (host.join(), host.join());
    assert_ne!(first, second);
    let own = IdPartition::new(table::OWN).unwrap();
    let (net, to) = (net(), |partition, what| datagram(partition, what));
    assert!(host.arrive(&run(&net, &to(first, 1), 64)).is_empty());
    assert_eq!(host.arrive(&run(&net, &to(own, 2), 64)), [to(own, 2)]);
    // merged runs, for one process and for several
    let same = [to(second, 3), to(second, 4)].concat();
    assert!(host.arrive(&run(&net, &same, 64)).is_empty());
    let mixed = [to(second, 5), to(own, 6), to(first, 7)].concat();
    assert_eq!(host.arrive(&run(&net, &mixed, 64)), [to(own, 6)]);
    assert_eq!(received(&mut one), [(to(first, 1), 64, false), (to(first, 7), 64, false)]);
    assert_eq!(received(&mut other), [(same, 64, false), (to(second, 5), 64, false)]);
    assert_eq!(host.service_mut().forwarded, 5);
}

#[test]
fn a_client_that_reads_nothing_loses_what_is_its_own() {
    let mut host = Host::new();
    let ((mut slow, first), (mut other, second)) = (host.join(), host.join());
    let net = net();
    let mut lost = 0;
    while lost < 3 {
        host.arrive(&run(&net, &datagram(first, 1), 64));
        lost = host.service_mut().lost;
    }
    host.arrive(&run(&net, &datagram(second, 2), 64));
    assert_eq!(received(&mut other).len(), 1);
    let kept = received(&mut slow);
    assert!(kept.len() > 100 && kept.iter().all(|(.., congested)| !congested));
    for congested in [true, false] {
        host.arrive(&run(&net, &datagram(first, 3), 64));
        assert_eq!(received(&mut slow), [(datagram(first, 3), 64, congested)]);
    }
}

#[test]
fn a_service_is_one_clients() {
    let mut host = Host::new();
    let ((mut one, _), (other, _)) = (host.join(), host.join());
    let service = ServiceId(0x0106_1C06);
    let [control, others] = [&one, &other].map(|client| client.control().unwrap().clone());
    let ask = |host: &mut Host, control: &Arc<Control>, claim| {
        let control = control.clone();
        host.serve(move |_| control.ask(service, claim)).map_err(|error| error.kind())
    };
    assert_eq!(ask(&mut host, &others, false), Ok(()));
    assert_eq!(ask(&mut host, &control, true), Ok(()));
    one.claim(service);
    assert_eq!(ask(&mut host, &others, false), Err(io::ErrorKind::AddrInUse));
    assert_eq!(ask(&mut host, &others, true), Err(io::ErrorKind::AddrInUse));
    assert_eq!(ask(&mut host, &control, false), Ok(()));
    one.release(service);
    host.attend();
    assert_eq!(ask(&mut host, &others, true), Ok(()));
}

/// A response to a request that timed out answers no other request.
#[test]
fn a_late_response_is_passed_over() {
    let mut host = Host::new();
    let ((mut one, _), (other, _)) = (host.join(), host.join());
    one.claim(ServiceId(1));
    host.attend();
    let control = other.control().unwrap();
    assert!(control.send(7, &Request::Query(ServiceId(1).0)));
    host.attend();
    let control = control.clone();
    host.serve(move |_| control.ask(ServiceId(2), false)).unwrap();
}

#[test]
fn who_waits_for_a_response_has_it_whoever_reads_it() {
    let mut host = Host::new();
    let (client, _) = host.join();
    let control = client.control().unwrap();
    let start = clock::now();
    let ask = || (0..200).for_each(|number| control.ask(ServiceId(number), false).unwrap());
    thread::scope(|scope| {
        let asking = [(); 3].map(|()| scope.spawn(ask));
        while !asking.iter().all(|asking| asking.is_finished()) {
            host.attend();
        }
    });
    // a request times out after 600 ms
    assert!(clock::now().since(start) < Duration::from_secs(10));
}

fn rejoin(host: &mut Host, client: &mut Client) {
    let end = clock::now().plus(Duration::from_secs(20));
    while client.control().is_none() {
        assert!(clock::now() < end, "it does not come");
        client.update(clock::now(), &BTreeMap::new());
        host.attend();
    }
    host.attend();
}

#[test]
fn a_client_goes_on_by_the_next_service() {
    let mut host = Host::new();
    let (mut client, partition) = host.join();
    let service = ServiceId(7);
    client.claim(service);
    host.attend();
    assert!(host.service_mut().is_claimed(service, HERE));
    for _ in 0..2 {
        host.restart();
        assert_eq!(received(&mut client), []);
        assert!(client.control().is_none() && !host.service_mut().is_claimed(service, HERE));
        rejoin(&mut host, &mut client);
        assert!(host.service_mut().is_claimed(service, HERE));
        host.arrive(&run(&net(), &datagram(partition, 1), 64));
        assert_eq!(received(&mut client).len(), 1);
    }
}

/// No kernel delivers a descriptor, which the service would have to close.
#[test]
fn no_descriptor_reaches_the_service() {
    use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags};

    let mut host = Host::new();
    let (client, _) = host.join();
    let descriptors: [OwnedFd; 1] = [std::fs::File::open("/dev/null").unwrap().into()];
    let data = client.descriptor().unwrap();
    let borrowed = descriptors.each_ref().map(AsFd::as_fd);
    for with in [true, false] {
        let mut space = [std::mem::MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut ancillary = SendAncillaryBuffer::new(&mut space);
        if with {
            ancillary.push(SendAncillaryMessage::ScmRights(&borrowed));
        }
        let sent = rustix::net::sendmsg(
            data,
            &[io::IoSlice::new(b"x")],
            &mut ancillary,
            SendFlags::NOSIGNAL | SendFlags::DONTWAIT,
        );
        assert_eq!(sent, Err(rustix::io::Errno::PIPE));
    }
}

#[test]
fn a_client_that_makes_no_sense_is_ended() {
    let mut host = Host::new();
    let nonsense = [vec![9; 40], vec![1; 39], vec![1; 41], vec![255; 40]];
    for bytes in nonsense {
        let (client, partition) = host.join();
        rustix::io::write(&client.control().unwrap().requests, &bytes).unwrap();
        host.attend();
        host.attend();
        assert!(is_readable(client.descriptor().unwrap()), "{bytes:?}");
        assert_eq!(host.arrive(&run(&net(), &datagram(partition, 1), 64)).len(), 1);
    }
}

/// However often a user asks to join, it gets no more than its partitions.
#[test]
fn who_joins_without_end_keeps_nobody_out() {
    let mut host = Host::new();
    let listeners: Vec<_> = (0..200)
        .map(|number| {
            let join = JoinRequest::new([number; 16], [number; 16], 0);
            let listener = Name::listen(join.name().as_bytes()).unwrap();
            admission::request(&host.share(), HERE, 0, &join).unwrap();
            host.attend();
            listener
        })
        .collect();
    let most = if rustix::process::geteuid().is_root() { 61 } else { table::MAX_OF_USER };
    assert_eq!(host.service_mut().clients.len(), most);
    let refused = host.serve(|directory| Client::join(directory, HERE, 0, None).map(drop));
    assert_eq!(refused.unwrap_err().kind(), io::ErrorKind::AddrInUse);
    drop(listeners);
    (0..10).for_each(|_| host.attend());
    assert_eq!(host.service_mut().clients.len(), 0);
    host.join();
}

#[test]
fn a_request_of_nobody_costs_nothing() {
    let mut host = Host::new();
    for number in 0..50 {
        let join = JoinRequest::new([number; 16], [0; 16], 0);
        admission::request(&host.share(), HERE, 0, &join).unwrap();
    }
    for _ in 0..10 {
        host.attend();
    }
    assert!(host.join().0.control().is_some());
}

/// Only hosts that have sent the client CM messages are notified.
#[test]
fn the_peers_of_a_client_that_ends_are_told() {
    let mut host = Host::new();
    let (mut client, partition) = host.join();
    let record = |number: u32, remote| ConnRecord {
        local: HERE,
        remote,
        pkey: PKey::DEFAULT,
        local_id: partition.ids().start() + number,
        remote_id: 7,
        local_qpn: Qpn::new(2),
        remote_qpn: Qpn::new(3),
    };
    let keep = |record| Request::Keep(conn_record::encode(&record));
    let kept = record(1, PEER);
    client.submit(keep(kept));
    host.attend();
    assert!(host.arrive(&run(&net(), &management(kept.local_id), 280)).is_empty());
    client.submit(keep(kept));
    client.submit(keep(record(2, PEER)));
    client.submit(Request::Erase(record(2, PEER).local_id));
    client.submit(keep(record(3, [10, 0, 0, 3].into()))); // has sent nothing
    client.submit(keep(record(0x400_0000, PEER))); // another's
    host.attend();
    drop(client);
    host.attend();
    let ended = Ended::Here { address: HERE, partition, records: vec![kept] };
    assert_eq!(
        (host.service_mut().poll_ended(), host.service_mut().poll_ended()),
        (Some(ended), None)
    );
}

const INSIDE: &str = "ROCE_TEST_SIGPIPE";

/// A program with the default action of SIGPIPE, as in C, survives the service's end.
#[test]
fn a_program_outlives_the_service() {
    if env::var_os(INSIDE).is_none() {
        let name = own_test::named("link::share::tests::a_program_outlives_the_service");
        let mut command = Command::new(env::current_exe().unwrap());
        command.args(["--exact", name, "--nocapture"]).env(INSIDE, "1");
        assert!(command.status().unwrap().success());
        return;
    }
    // SAFETY: The signal's action is this process's, and no other test runs here.
    unsafe { libc::signal(libc::SIGPIPE, libc::SIG_DFL) };
    let mut host = Host::new();
    let (mut client, _) = host.join();
    host.service = None;
    client.claim(ServiceId(7));
    assert_eq!(received(&mut client), []);
    // nor does a client's end kill the service
    host.service = Some(Host::service(host.directory.path()));
    rejoin(&mut host, &mut client);
    client.claim(ServiceId(8));
    drop(client);
    host.attend();
}
