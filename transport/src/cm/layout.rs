//! Where the fields of the messages stand in the bytes after a MAD's header (12.6.5, 12.6.8).

use super::{
    message::{PrivateData, Rep, Req, ReqPath},
    service::ServiceId,
};
use crate::{
    addr::{Gid, PKey, Qpn},
    psn::Psn,
    wire::MAD_DATA_LEN,
};

/// Where the two ways stand in a REQ.
const PRIMARY: usize = 52;
const ALTERNATE: usize = 96;

/// The bytes after a MAD's header, big-endian. Offsets are constants well inside.
pub(super) struct Fields<'a>(pub(super) &'a [u8; MAD_DATA_LEN]);

impl Fields<'_> {
    pub(super) const fn u8(&self, at: usize) -> u8 {
        self.0[at]
    }

    pub(super) fn u16(&self, at: usize) -> u16 {
        u16::from_be_bytes(self.data(at).0)
    }

    pub(super) const fn u24(&self, at: usize) -> u32 {
        u32::from_be_bytes([0, self.0[at], self.0[at + 1], self.0[at + 2]])
    }

    pub(super) fn u32(&self, at: usize) -> u32 {
        u32::from_be_bytes(self.data(at).0)
    }

    pub(super) fn u64(&self, at: usize) -> u64 {
        u64::from_be_bytes(self.data(at).0)
    }

    pub(super) fn data<const N: usize>(&self, at: usize) -> PrivateData<N> {
        PrivateData(core::array::from_fn(|i| self.0[at + i]))
    }

    pub(super) fn path(&self, at: usize) -> ReqPath {
        ReqPath {
            local_lid: self.u16(at),
            remote_lid: self.u16(at + 2),
            local_gid: Gid(self.data(at + 4).0),
            remote_gid: Gid(self.data(at + 20).0),
            flow_label: self.u32(at + 36) >> 12,
            rate: self.u8(at + 39) & 0x3F,
            traffic_class: self.u8(at + 40),
            hop_limit: self.u8(at + 41),
            service_level: self.u8(at + 42) >> 4,
            subnet_local: self.u8(at + 42) & 0x08 != 0,
            ack_timeout: self.u8(at + 43) >> 3,
        }
    }

    pub(super) fn req(&self) -> Req {
        Req {
            local_id: self.u32(0),
            vendor_id: self.u24(5),
            service_id: ServiceId(self.u64(8)),
            local_ca_guid: self.u64(16),
            local_qkey: self.u32(28),
            local_qpn: Qpn::new(self.u24(32)),
            responder_resources: self.u8(35),
            local_eecn: self.u24(36),
            initiator_depth: self.u8(39),
            remote_eecn: self.u24(40),
            remote_response_timeout: self.u8(43) >> 3,
            transport: self.u8(43) >> 1 & 3,
            flow_control: self.u8(43) & 1 != 0,
            starting_psn: Psn::new(self.u24(44)),
            local_response_timeout: self.u8(47) >> 3,
            retry_count: self.u8(47) & 7,
            pkey: PKey(self.u16(48)),
            path_mtu: self.u8(50) >> 4,
            rdc_exists: self.u8(50) & 8 != 0,
            rnr_retry: self.u8(50) & 7,
            max_cm_retries: self.u8(51) >> 4,
            srq: self.u8(51) & 8 != 0,
            extended_transport: self.u8(51) & 7,
            primary: self.path(PRIMARY),
            alternate: self.path(ALTERNATE),
            private_data: self.data(140),
        }
    }

    pub(super) fn rep(&self) -> Rep {
        Rep {
            local_id: self.u32(0),
            remote_id: self.u32(4),
            local_qkey: self.u32(8),
            local_qpn: Qpn::new(self.u24(12)),
            vendor_id: u32::from(self.u8(15)) << 16
                | u32::from(self.u8(19)) << 8
                | u32::from(self.u8(23)),
            local_eecn: self.u24(16),
            starting_psn: Psn::new(self.u24(20)),
            responder_resources: self.u8(24),
            initiator_depth: self.u8(25),
            target_ack_delay: self.u8(26) >> 3,
            failover: self.u8(26) >> 1 & 3,
            flow_control: self.u8(26) & 1 != 0,
            rnr_retry: self.u8(27) >> 5,
            srq: self.u8(27) & 0x10 != 0,
            local_ca_guid: self.u64(28),
            private_data: self.data(36),
        }
    }
}

pub(super) struct Writer<'a>(pub(super) &'a mut [u8; MAD_DATA_LEN]);

impl Writer<'_> {
    pub(super) fn put(&mut self, at: usize, bytes: &[u8]) {
        self.0[at..at + bytes.len()].copy_from_slice(bytes);
    }

    pub(super) fn u24(&mut self, at: usize, value: u32) {
        self.put(at, &value.to_be_bytes()[1..]);
    }

    pub(super) fn u32(&mut self, at: usize, value: u32) {
        self.put(at, &value.to_be_bytes());
    }

    pub(super) fn u64(&mut self, at: usize, value: u64) {
        self.put(at, &value.to_be_bytes());
    }

    pub(super) fn path(&mut self, at: usize, path: &ReqPath) {
        self.put(at, &path.local_lid.to_be_bytes());
        self.put(at + 2, &path.remote_lid.to_be_bytes());
        self.put(at + 4, &path.local_gid.0);
        self.put(at + 20, &path.remote_gid.0);
        self.u32(at + 36, path.flow_label << 12 | u32::from(path.rate & 0x3F));
        let level = path.service_level << 4 | u8::from(path.subnet_local) << 3;
        self.put(at + 40, &[path.traffic_class, path.hop_limit, level, path.ack_timeout << 3]);
    }

    pub(super) fn req(&mut self, req: &Req) {
        self.u32(0, req.local_id);
        self.u24(5, req.vendor_id);
        self.u64(8, req.service_id.0);
        self.u64(16, req.local_ca_guid);
        self.u32(28, req.local_qkey);
        self.u24(32, req.local_qpn.get());
        self.put(35, &[req.responder_resources]);
        self.u24(36, req.local_eecn);
        self.put(39, &[req.initiator_depth]);
        self.u24(40, req.remote_eecn);
        self.put(
            43,
            &[req.remote_response_timeout << 3
                | (req.transport & 3) << 1
                | u8::from(req.flow_control)],
        );
        self.u24(44, req.starting_psn.get());
        self.put(47, &[req.local_response_timeout << 3 | req.retry_count & 7]);
        self.put(48, &req.pkey.0.to_be_bytes());
        self.put(50, &[req.path_mtu << 4 | u8::from(req.rdc_exists) << 3 | req.rnr_retry & 7]);
        self.put(
            51,
            &[req.max_cm_retries << 4 | u8::from(req.srq) << 3 | req.extended_transport & 7],
        );
        self.path(PRIMARY, &req.primary);
        self.path(ALTERNATE, &req.alternate);
        self.put(140, &req.private_data.0);
    }

    pub(super) fn rep(&mut self, rep: &Rep) {
        self.u32(0, rep.local_id);
        self.u32(4, rep.remote_id);
        self.u32(8, rep.local_qkey);
        self.u24(12, rep.local_qpn.get());
        let [_, high, middle, low] = rep.vendor_id.to_be_bytes();
        self.put(15, &[high]);
        self.u24(16, rep.local_eecn);
        self.put(19, &[middle]);
        self.u24(20, rep.starting_psn.get());
        self.put(23, &[low, rep.responder_resources, rep.initiator_depth]);
        self.put(
            26,
            &[rep.target_ack_delay << 3 | (rep.failover & 3) << 1 | u8::from(rep.flow_control)],
        );
        self.put(27, &[rep.rnr_retry << 5 | u8::from(rep.srq) << 4]);
        self.u64(28, rep.local_ca_guid);
        self.put(36, &rep.private_data.0);
    }
}
