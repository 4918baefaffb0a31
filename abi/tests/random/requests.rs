use std::{
    ffi::{c_int, c_uint},
    ptr::null_mut,
};

use super::{
    library::{Structure, constant, get},
    world::{AH, CQ, MR, MW, Pointer, QP, SRQ, World},
};

/// Requests of a list, elements of a request.
const LIST: usize = 4;
const ELEMENTS: usize = 40;

#[repr(C)]
struct Remote {
    address: u64,
    key: u32,
}

#[repr(C)]
struct Datagram {
    ah: Pointer,
    number: u32,
    key: u32,
}

#[repr(C)]
struct Bind {
    mw: Pointer,
    key: u32,
    region: Region,
}

#[repr(C)]
struct Region {
    mr: Pointer,
    address: u64,
    length: u64,
    flags: c_uint,
}

#[allow(
    clippy::undocumented_unsafe_blocks,
    reason = "tests call as C programs do, and keep the same contract: pointers lead to whole objects"
)]
impl World<'_> {
    /// Valid memory, any key: data may be inline.
    fn elements(&mut self) -> Vec<Structure> {
        (0..ELEMENTS)
            .map(|_| {
                let (address, length) = self.part();
                let mr = self.own_or(MR, self.shared.mr);
                let key: u32 = unsafe { get("ibv_mr", mr.0, "lkey") };
                let key = if self.rng.once_in(20) { self.rng.next() as u32 } else { key };
                let mut sge = Structure::new("ibv_sge");
                sge.set("addr", address).set("length", length).set("lkey", key);
                sge
            })
            .collect()
    }

    /// At times none, too many, or negative.
    fn count(&mut self) -> c_int {
        match self.rng.below(20) {
            0 => -1,
            1 => ELEMENTS as c_int,
            2 => 0,
            _ => 1 + self.rng.below(3) as c_int,
        }
    }

    pub(crate) fn post_send(&mut self) -> bool {
        let Some(qp) = self.any(QP) else { return false };
        let kind: c_uint = unsafe { get("ibv_qp", qp.0, "qp_type") };
        let elements = Structure::array(self.elements());
        let mut list = Vec::new();
        for number in 0..=self.rng.below(LIST) {
            let mut wr = self.noise("ibv_send_wr");
            wr.set("wr_id", number as u64).set("next", null_mut::<()>());
            wr.set("sg_list", elements.as_ptr()).set("num_sge", self.count());
            let any = self.rng.number();
            let opcode = if self.rng.once_in(10) { any } else { any % 12 };
            wr.set("opcode", opcode);
            let any = self.rng.next() as u32;
            wr.set("send_flags", if self.rng.once_in(10) { any } else { any & 0x1F });
            if !self.target(&mut wr, kind, opcode) {
                return false;
            }
            list.push(wr);
        }
        self.post("post_send", qp.0, &mut list)
    }

    /// False without a target.
    fn target(&mut self, wr: &mut Structure, kind: c_uint, opcode: c_uint) -> bool {
        let mr = self.own_or(MR, self.shared.mr);
        let key: u32 = unsafe { get("ibv_mr", mr.0, "rkey") };
        let (address, length) = self.part();
        if opcode == constant("IBV_WR_BIND_MW") {
            let Some(mw) = self.any(MW) else { return false };
            let (length, flags) = (u64::from(length), self.rights() as c_uint);
            let region = Region { mr: mr.0, address, length, flags };
            wr.set("bind_mw", Bind { mw: mw.0, key, region });
        } else if kind == constant("IBV_QPT_UD") {
            let Some(ah) = self.any(AH) else { return false };
            let number = self.any(QP).map_or(1, |qp| unsafe { get("ibv_qp", qp.0, "qp_num") });
            wr.set("wr", Datagram { ah: ah.0, number, key: 0x1111 });
        } else {
            wr.set("wr", Remote { address, key });
        }
        true
    }

    pub(crate) fn post_recv(&mut self) -> bool {
        let elements = Structure::array(self.elements());
        let mut list: Vec<Structure> = (0..=self.rng.below(LIST))
            .map(|number| {
                let mut wr = Structure::new("ibv_recv_wr");
                wr.set("wr_id", number as u64).set("sg_list", elements.as_ptr());
                wr.set("num_sge", self.count());
                wr
            })
            .collect();
        let (name, queue) = match self.any(SRQ) {
            Some(srq) if self.rng.once_in(2) => ("post_srq_recv", srq),
            _ => match self.any(QP) {
                Some(qp) => ("post_recv", qp),
                None => return false,
            },
        };
        self.post(name, queue.0, &mut list)
    }

    /// A failed request must be in the list.
    fn post(&self, name: &str, queue: Pointer, list: &mut [Structure]) -> bool {
        for index in (1..list.len()).rev() {
            let next = list[index].pointer();
            list[index - 1].set("next", next);
        }
        let mut bad = null_mut();
        let post: unsafe extern "C" fn(Pointer, Pointer, *mut Pointer) -> c_int =
            self.operation(name);
        let result = unsafe { post(queue, list[0].pointer(), &raw mut bad) };
        let is_one = list.iter_mut().any(|wr| wr.pointer() == bad);
        assert!(if result == 0 { bad.is_null() } else { is_one }, "{name}: {result}");
        result == 0
    }

    pub(crate) fn poll(&mut self) -> bool {
        const ROOM: usize = 8;
        let cq = self.own_or(CQ, self.shared.cq);
        let room = [-1, 0, 1, 3, ROOM as c_int][self.rng.below(5)];
        let completions = Structure::array((0..ROOM).map(|_| self.noise("ibv_wc")).collect());
        let poll: unsafe extern "C" fn(Pointer, c_int, Pointer) -> c_int =
            self.operation("poll_cq");
        let count = unsafe { poll(cq.0, room, completions.as_ptr().cast_mut().cast()) };
        assert!(count <= room.max(0), "{count} of {room}");
        count > 0
    }
}
