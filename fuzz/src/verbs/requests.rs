//! Any operation and arguments on any queue pair.

use roce_transport::{
    addr::{AddressVector, Qpn},
    mem::{RKey, WindowBind},
    qp::PostError,
    time::Instant,
    wire::Immediate,
    work::{
        Data, Placement, RecvWr, Remote, SendFlags, SendOp, SendWr, Sge, SgeList, UdDestination,
    },
};

use super::{
    objects::{QKEY, access},
    side::{Known, LIMITS, REGION, Side},
};
use crate::input::Input;

impl Side {
    pub(super) fn post_send(
        &mut self,
        argument: u8,
        now: Instant,
        other: &Known,
        input: &mut Input<'_>,
    ) {
        let count = self.qps.len().max(1);
        let index = usize::from(argument) % count;
        if index >= self.qps.len() {
            return;
        }
        let [operation, bytes, target, flags] = input.array();
        self.last_id += 1;
        let id = self.last_id;
        let op = self.operation(operation, target, other, input);
        let data = match op {
            SendOp::CompareSwap { .. } | SendOp::FetchAdd { .. } | SendOp::AtomicWrite { .. }
                if bytes < 0xC0 =>
            {
                self.list(bytes, 8, 1)
            }
            SendOp::Flush { .. } | SendOp::BindWindow(_) | SendOp::LocalInvalidate { .. }
                if bytes < 0xC0 =>
            {
                Data::empty()
            }
            _ => self.data(bytes),
        };
        let wr = SendWr {
            wr_id: id,
            op,
            data,
            flags: SendFlags::from_bits_truncate(u32::from(flags)),
            remote_srq: None,
        };
        let qp = &self.qps[index];
        let (qpn, before) = (qp.qpn, self.snapshot());
        let result = self.adapter.post_send(now, qpn, &wr);
        if result == Err(PostError::QueueFull) {
            assert!(!self.qps[index].sends.is_empty(), "full, and nothing is posted");
        }
        if self.judge(&before, result, None).is_some() {
            let signaled = self.qps[index].sig_all || wr.flags.contains(SendFlags::SIGNALED);
            self.qps[index].sends.push((id, signaled));
            // excludes those flushed at once
            self.check();
            let waiting = self.qps[index].sends.iter().filter(|(_, signaled)| *signaled).count();
            assert!(waiting <= LIMITS.max_qp_wr as usize, "more than the queue holds");
        }
    }

    fn operation(&self, operation: u8, target: u8, other: &Known, input: &mut Input<'_>) -> SendOp {
        let keys = other.keys.len().max(1);
        let (rkey, base) =
            other.keys.get(usize::from(target & 0x3F) % keys).copied().unwrap_or((RKey(0), 0));
        let rkey = if target & 0x40 == 0 { rkey } else { rkey.next() };
        let [offset, length, extra] = input.array();
        let address = base.wrapping_add(u64::from(offset) * 8).wrapping_sub(u64::from(target >> 7));
        let remote = Remote { address, rkey };
        let immediate = (operation & 0x80 != 0).then_some(Immediate([extra; 4]));
        match operation & 0x0F {
            0 | 1 => SendOp::Send { immediate },
            2 => {
                let peers = other.qps.len().max(1);
                let qpn = other.qps.get(usize::from(extra) % peers).copied().unwrap_or_default();
                let av = AddressVector::new(other.ip.into(), u16::from(extra == 0xFF));
                // sometimes by an address handle, of this protection domain or another
                let pd = if target & 0x20 == 0 {
                    None
                } else {
                    self.pds.get(usize::from(target & 3)).copied()
                };
                let qpn = if extra == 0xFE { Qpn::MULTICAST } else { qpn };
                SendOp::SendTo {
                    to: UdDestination { pd, ..UdDestination::new(av, qpn, QKEY) },
                    immediate,
                }
            }
            3 => SendOp::SendInvalidate { rkey },
            4 | 5 => SendOp::Write { remote, immediate },
            6 | 7 => SendOp::Read { remote },
            8 => SendOp::CompareSwap {
                remote,
                compare: u64::from_ne_bytes([0xEE; 8]),
                swap: extra.into(),
            },
            9 => SendOp::FetchAdd { remote, add: extra.into() },
            10 => SendOp::AtomicWrite { remote },
            11 => {
                let placement = Placement::from_bits_truncate(extra & 3);
                SendOp::Flush {
                    remote,
                    length: u32::from(length) * 8,
                    placement,
                    whole: extra & 4 != 0,
                }
            }
            12..=14 => {
                let windows = self.windows.len().max(1);
                let window = self
                    .windows
                    .get(usize::from(target) % windows)
                    .map_or(RKey(0), |window| window.rkey);
                let rkey = if extra & 1 == 0 { window } else { window.next() };
                if operation & 0x0F == 14 {
                    return SendOp::LocalInvalidate { rkey };
                }
                let sge = self.sge(offset, u32::from(length) * 16);
                let (region, address, length) = (sge.lkey, sge.address, sge.length.into());
                let access = access(extra) & !access(0x81);
                SendOp::BindWindow(WindowBind {
                    rkey,
                    region,
                    address,
                    length,
                    access,
                    zero_based: extra & 2 != 0,
                })
            }
            _ => SendOp::LocalInvalidate { rkey },
        }
    }

    fn sge(&self, which: u8, length: u32) -> Sge {
        let count = self.regions.len().max(1);
        match self.regions.get(usize::from(which & 0x1F) % count) {
            Some(memory) => {
                let address = memory.region.address()
                    + if which >= 0xF0 { REGION as u64 } else { u64::from(which >> 5) * 8 };
                Sge { lkey: memory.region.lkey(), address, length }
            }
            None => Sge { lkey: Default::default(), address: 0, length },
        }
    }

    fn list(&self, which: u8, length: u32, pieces: usize) -> Data {
        Data::Sges(std::iter::repeat_n(self.sge(which, length), pieces).collect::<SgeList>())
    }

    fn data(&self, bytes: u8) -> Data {
        match bytes >> 5 {
            0 => Data::inline(
                &[bytes; 34][..usize::from(bytes & 0x1F) + usize::from(bytes == 0x1F) * 3],
            ),
            1 => Data::empty(),
            2 => self.list(bytes, 1, 3),
            3 => self.list(bytes, 300, 2),
            4 => self.list(bytes, u32::MAX, 1),
            5 => self.list(bytes, 2000, 1),
            pieces => self.list(bytes, 40, pieces as usize - 5),
        }
    }

    pub(super) fn post_recv(&mut self, argument: u8, now: Instant, input: &mut Input<'_>) {
        let [bytes, to] = input.array();
        let data = self.data(bytes | 0x20);
        let Data::Sges(sges) = data else { return };
        self.last_id += 1;
        let id = self.last_id;
        let wr = RecvWr { wr_id: id, sges };
        let before = self.snapshot();
        if to & 0x80 != 0 {
            let Some(srq) = self.srqs.get(usize::from(argument & 3)).map(|srq| srq.id) else {
                return;
            };
            let full =
                self.adapter.query_srq(srq).is_some_and(|info| info.posted == info.attr.max_wr);
            let result = self.adapter.post_srq_recv(srq, &wr);
            assert!(result.is_err() || !full, "more than the shared receive queue holds");
            if self.judge(&before, result, None).is_some() {
                self.shared.push(id);
            }
            return;
        }
        let count = self.qps.len().max(1);
        let Some(qpn) = self.qps.get(usize::from(argument) % count).map(|qp| qp.qpn) else {
            return;
        };
        let result = self.adapter.post_recv(now, qpn, &wr);
        if self.judge(&before, result, None).is_some()
            && let Some(qp) = self.qps.iter_mut().find(|qp| qp.qpn == qpn)
        {
            qp.receives.push(id);
        }
    }
}
