//! Connection records exchanged between processes.

use std::net::{IpAddr, Ipv6Addr};

use roce_transport::{
    addr::{Gid, PKey},
    cm::ConnRecord,
    ids::Qpn,
    share::IdPartition,
};

pub(super) const LEN: usize = 32;

/// Neither the first nor the last bytes are zero. The reader knows the local address.
pub(super) fn encode(record: &ConnRecord) -> [u8; LEN] {
    let &ConnRecord { remote, pkey, local_id, remote_id, local_qpn, remote_qpn, .. } = record;
    let mut bytes = [0; LEN];
    bytes[..4].copy_from_slice(&local_id.to_be_bytes()); // the first is never 0
    bytes[4..20].copy_from_slice(&Gid::from(remote).0);
    bytes[20..24].copy_from_slice(&remote_id.to_be_bytes());
    bytes[24..27].copy_from_slice(&local_qpn.get().to_be_bytes()[1..]);
    bytes[27..30].copy_from_slice(&remote_qpn.get().to_be_bytes()[1..]);
    bytes[30..].copy_from_slice(&pkey.0.to_be_bytes());
    bytes
}

/// Decodes a record of `local` that an adapter with this partition can have.
pub(super) fn decode(
    bytes: &[u8; LEN],
    partition: IdPartition,
    local: IpAddr,
) -> Option<ConnRecord> {
    let (local_id, rest) = bytes.split_first_chunk()?;
    let (remote, rest) = rest.split_first_chunk::<16>()?;
    let (remote_id, rest) = rest.split_first_chunk()?;
    let qpn = |at: usize| Qpn::new(u32::from_be_bytes([0, rest[at], rest[at + 1], rest[at + 2]]));
    let remote = Ipv6Addr::from(*remote).to_canonical();
    let pkey = PKey(u16::from_be_bytes([rest[6], rest[7]]));
    let record = ConnRecord {
        local,
        remote,
        pkey,
        local_id: u32::from_be_bytes(*local_id),
        remote_id: u32::from_be_bytes(*remote_id),
        local_qpn: qpn(0),
        remote_qpn: qpn(3),
    };
    partition.can_have(&record).then_some(record)
}

/// Records that cannot be of the good one's adapter.
#[cfg(test)]
pub(super) fn strangers(good: ConnRecord) -> [ConnRecord; 7] {
    [
        ConnRecord { local_id: 0, ..good },
        ConnRecord { local_id: *super::partition(8).ids().start(), ..good },
        ConnRecord { remote: [0; 4].into(), ..good },
        ConnRecord { remote: [224, 0, 0, 1].into(), ..good },
        ConnRecord { remote: [255; 4].into(), ..good },
        ConnRecord { remote: "fd00::2".parse().unwrap(), ..good },
        ConnRecord { pkey: PKey(0), ..good },
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::link::partition;

    fn record() -> ConnRecord {
        ConnRecord {
            local: [10, 0, 0, 1].into(),
            remote: [10, 0, 0, 2].into(),
            pkey: PKey(0x8001),
            local_id: *partition(62).ids().end(),
            remote_id: 0x1234_5678,
            local_qpn: Qpn::new(0xF8_0001),
            remote_qpn: Qpn::new(0x12_3456),
        }
    }

    #[test]
    fn what_cannot_be_a_record_is_none() {
        let (good, local, partition) = (record(), IpAddr::from([10, 0, 0, 1]), partition(62));
        assert_eq!(decode(&encode(&good), partition, local), Some(good));
        for stranger in strangers(good) {
            assert_eq!(decode(&encode(&stranger), partition, local), None, "{stranger:?}");
        }
    }
}
