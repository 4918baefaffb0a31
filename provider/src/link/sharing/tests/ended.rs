//! Connections of ended processes: devices dropped with connections.

use roce_transport::{
    adapter::{Adapter, AdapterConfig},
    addr::PKey,
    cm::CmConfig,
    ids::Qpn,
};

use super::{super::record::OwnRecords, *};
use crate::link::partition;

const NOBODYS: u8 = 62;

/// A connection of a link's device, by its number.
fn connection(link: &Sharing, [local, remote]: [IpAddr; 2], number: u32) -> (ConnId, ConnRecord) {
    let record = ConnRecord {
        local,
        remote,
        pkey: PKey::DEFAULT,
        local_id: link.partition.unwrap().ids().start() + number,
        remote_id: 1,
        local_qpn: Qpn::new(0x111),
        remote_qpn: Qpn::new(0x222),
    };
    // any adapter with the address makes the ID, for a number that is not its own
    let cm = CmConfig { ids: partition(NOBODYS).ids(), ..CmConfig::default() };
    let mut adapter = Adapter::new(AdapterConfig { cm, ..AdapterConfig::new([0; 32]) });
    adapter.set_gids(vec![local.into()]);
    (adapter.cm_end_for_another(at(0), &record).unwrap(), record)
}

/// Reports during `time` ms.
fn news(link: &mut Sharing, from: u64, time: u64) -> Vec<Ended> {
    let mut news = Vec::new();
    for now in from..from + time {
        link.round(ms(now));
        news.extend(std::iter::from_fn(|| link.ended.pop_front()));
    }
    news
}

fn here(address: IpAddr, partition: IdPartition, records: &[ConnRecord]) -> Ended {
    Ended::Here { address, partition, records: records.to_vec() }
}

#[test]
fn a_peer_leaves_its_connections_to_the_owner() {
    let ends = addresses();
    let [address, _] = ends;
    let mut a = owner(address);
    let mut b = peer(&mut a, address).unwrap();
    let of_b = b.partition.unwrap();
    let records = [1, 2, 3].map(|number| {
        let (conn, record) = connection(&b, ends, number);
        b.keep_record(ms(0), conn, &record);
        (conn, record)
    });
    b.discard_record(records[1].0);
    assert_eq!(news(&mut a, 10, 100), []);
    drop(b);
    let left = here(address, of_b, &[records[0].1, records[2].1]);
    assert_eq!(news(&mut a, 200, 2000), [left], "once");
    // until then, its communication IDs are reserved
    let next = |a: &mut Sharing| peer(a, address).unwrap().partition.unwrap();
    assert_ne!(next(&mut a), of_b);
    a.settle(address, of_b);
    a.settle(address, of_b);
    assert_eq!(next(&mut a), of_b);
    assert_eq!(news(&mut a, 3000, 2000), []);
}

#[test]
fn an_owner_leaves_its_connections_to_the_next() {
    let ends = addresses();
    let [address, _] = ends;
    let mut a = owner(address);
    let mut b = peer(&mut a, address).unwrap();
    let (of_a, (conn, record)) = (a.partition.unwrap(), connection(&a, ends, 1));
    a.keep_record(ms(0), conn, &record);
    assert_eq!(news(&mut b, 10, 100), [], "it is not the owner's");
    drop(a);
    assert_eq!(news(&mut b, 200, 2000), [here(address, of_a, &[record])]);
    // an unsettled end passes to the next owner
    let mut c = peer(&mut b, address).unwrap();
    drop(b);
    assert_eq!(news(&mut c, 3000, 2000), [here(address, of_a, &[record])]);
}

/// Any process at the address can write any slot. A record counts only if the slot's process can
/// have had the connection, and only after that process's end.
#[test]
fn a_strangers_records() {
    let ends = addresses();
    let [address, far] = ends;
    let mut a = owner(address);
    let (b, mut c) = (peer(&mut a, address).unwrap(), peer(&mut a, address).unwrap());
    let of_b = b.partition.unwrap();
    let shared = a.at_mut(address).unwrap();
    let table = shared.common.claims.file.try_clone().unwrap();
    let forge = |owner: &Sharing, local, number, partition| {
        let (_, record) = connection(owner, [local, far], number);
        OwnRecords::default().keep(&table, partition, &record).unwrap();
        record
    };
    // connections of running processes
    for link in [&a, &b, &c] {
        forge(link, address, 5, link.partition.unwrap());
    }
    assert_eq!(news(&mut a, 10, 100), []);
    drop(peer(&mut a, address).unwrap()); // triggers a check
    assert_eq!(news(&mut a, 200, 2000), []);
    // another process's connection in the slots of a process that ends
    let (conn, _) = connection(&c, ends, 7);
    forge(&c, address, 7, of_b);
    drop(b);
    assert_eq!(news(&mut a, 3000, 2000), []);
    // unknown connections and ends are ignored
    c.discard_record(conn);
    a.settle(address, c.partition.unwrap());
    a.settle(far, of_b);
    assert_eq!(peer(&mut a, address).unwrap().partition, Some(of_b), "nothing is left of it");
}

#[test]
fn a_peer_at_another_address() {
    let ends = addresses();
    let [src, dst] = ends;
    for before in [true, false] {
        let (mut a, mut b) = (owner(src), owner(dst));
        let [(one, first), (other, stranger)] = [1, 2].map(|number| connection(&a, ends, number));
        let own = b.partition.unwrap();
        let first = ConnRecord { remote_id: own.ids().start() + 9, ..first };
        let stranger = ConnRecord { remote_id: *partition(NOBODYS).ids().start(), ..stranger };
        let to_b = packet(own);
        // the connection may come before the channel
        if before {
            reaches(&mut a, ms(0), ends, &to_b);
            b.round(ms(0));
            a.round(ms(0));
        }
        a.keep_record(ms(0), one, &first);
        a.keep_record(ms(0), other, &stranger);
        for now in 1..5 {
            b.round(ms(now));
            a.round(ms(now));
        }
        assert!(reaches(&mut a, ms(5), ends, &to_b));
        // a closed channel alone is no end
        b.inbox.rings.clear();
        assert_eq!(news(&mut a, 10, 2000), []);
        reaches(&mut a, ms(3000), ends, &to_b);
        for now in 3000..3010 {
            b.round(ms(now));
            a.round(ms(now));
        }
        assert!(reaches(&mut a, ms(3010), ends, &to_b));
        drop(b);
        assert_eq!(news(&mut a, 4000, 2000), [Ended::There(vec![one])]);
        assert_eq!(a.deadline(), None);
    }
}

#[test]
fn a_connection_that_has_ended_before() {
    let ends = addresses();
    let [src, dst] = ends;
    let (mut a, mut b) = (owner(src), owner(dst));
    let [(one, first), (other, second)] = [1, 2].map(|number| {
        let (conn, record) = connection(&a, ends, number);
        (conn, ConnRecord { remote_id: *b.partition.unwrap().ids().start(), ..record })
    });
    a.keep_record(ms(0), one, &first);
    a.keep_record(ms(0), other, &second);
    for now in 1..5 {
        b.round(ms(now));
        a.round(ms(now));
    }
    a.discard_record(one);
    drop(b);
    assert_eq!(news(&mut a, 10, 2000), [Ended::There(vec![other])]);
}
