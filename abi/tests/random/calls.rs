use std::{
    ffi::{c_char, c_int, c_uint},
    ptr::null_mut,
};

use super::{
    library::{Structure, constant, get, mask},
    world::{AH, CHANNEL, CQ, Gid, KINDS, MR, MW, Object, PD, Pointer, QP, SRQ, World},
};

#[allow(
    clippy::undocumented_unsafe_blocks,
    reason = "tests call as C programs do, and keep the same contract: pointers lead to whole objects"
)]
impl World<'_> {
    /// True if it had an effect.
    pub(crate) fn call(&mut self) -> bool {
        match self.rng.below(40) {
            0..=2 => self.create_qp(),
            3 => self.create_cq(),
            4 => self.create_srq(),
            5 | 6 => self.reg_mr(),
            7 => self.alloc_pd(),
            8 => self.create_ah(),
            9 => self.alloc_mw(),
            10 => self.create_channel(),
            11..=15 => self.connect(),
            16 => self.modify_any(),
            17 | 18 => self.ask(),
            19 => self.modify_others(),
            20..=25 => self.post_send(),
            26..=28 => self.post_recv(),
            29..=31 => self.poll(),
            32 => self.words(),
            33 => self.attach(),
            34 => self.look_for_events(),
            35..=37 => self.connection_management(),
            _ => self.destroy(),
        }
    }

    fn create_qp(&mut self) -> bool {
        if !self.has_room(QP) {
            return false;
        }
        let mut attr = self.noise("ibv_qp_init_attr");
        let cq = |world: &mut Self| match world.rng.once_in(20) {
            true => null_mut(),
            false => world.own_or(CQ, world.shared.cq).0,
        };
        let (send, recv) = (cq(self), cq(self));
        let srq = if self.rng.once_in(3) { self.any(SRQ) } else { None };
        attr.set("send_cq", send).set("recv_cq", recv);
        attr.set("srq", srq.map_or(null_mut(), |srq| srq.0)).set("qp_type", self.qp_type());
        for member in CAPACITIES {
            let any = self.rng.number();
            attr.set(member, if self.rng.once_in(10) { any } else { any & 7 });
        }
        let pd = self.own_or(PD, self.shared.pd);
        let create: unsafe extern "C" fn(Pointer, Pointer) -> Pointer =
            self.function("ibv_create_qp");
        let made = unsafe { create(pd.0, attr.pointer()) };
        self.keep(QP, made)
    }

    fn create_cq(&mut self) -> bool {
        if !self.has_room(CQ) {
            return false;
        }
        let (size, vector) = (self.rng.number() as c_int, self.rng.number() as c_int & 3);
        let channel = self.any(CHANNEL).map_or(null_mut(), |channel| channel.0);
        let create: unsafe extern "C" fn(Pointer, c_int, Pointer, Pointer, c_int) -> Pointer =
            self.function("ibv_create_cq");
        let made = unsafe { create(self.shared.context.0, size, null_mut(), channel, vector) };
        self.keep(CQ, made)
    }

    fn create_srq(&mut self) -> bool {
        if !self.has_room(SRQ) {
            return false;
        }
        let mut attr = self.noise("ibv_srq_init_attr");
        attr.set("attr: ibv_srq_attr.max_wr", self.rng.number());
        attr.set("attr: ibv_srq_attr.max_sge", self.rng.number() & 31);
        let pd = self.own_or(PD, self.shared.pd);
        let create: unsafe extern "C" fn(Pointer, Pointer) -> Pointer =
            self.function("ibv_create_srq");
        let made = unsafe { create(pd.0, attr.pointer()) };
        self.keep(SRQ, made)
    }

    fn reg_mr(&mut self) -> bool {
        if !self.has_room(MR) {
            return false;
        }
        let (address, length) = self.part();
        // refused
        let length = if self.rng.once_in(20) { usize::MAX } else { length as usize };
        let rights = self.rights();
        let pd = self.own_or(PD, self.shared.pd);
        let register: unsafe extern "C" fn(Pointer, Pointer, usize, c_int) -> Pointer =
            self.function("ibv_reg_mr");
        let made = unsafe { register(pd.0, address as Pointer, length, rights) };
        self.keep(MR, made)
    }

    fn alloc_pd(&mut self) -> bool {
        let alloc: unsafe extern "C" fn(Pointer) -> Pointer = self.function("ibv_alloc_pd");
        self.has_room(PD) && {
            let made = unsafe { alloc(self.shared.context.0) };
            self.keep(PD, made)
        }
    }

    fn create_ah(&mut self) -> bool {
        if !self.has_room(AH) {
            return false;
        }
        let mut attr = self.noise("ibv_ah_attr");
        if !self.rng.once_in(4) {
            attr.set("is_global", 1u8).set("port_num", 1u8);
            attr.set("grh: ibv_global_route.dgid", self.shared.gid);
            attr.set("grh: ibv_global_route.sgid_index", 0u8);
        }
        let pd = self.own_or(PD, self.shared.pd);
        let create: unsafe extern "C" fn(Pointer, Pointer) -> Pointer =
            self.function("ibv_create_ah");
        let made = unsafe { create(pd.0, attr.pointer()) };
        self.keep(AH, made)
    }

    fn alloc_mw(&mut self) -> bool {
        if !self.has_room(MW) {
            return false;
        }
        let pd = self.own_or(PD, self.shared.pd);
        let kind = self.rng.below(4) as c_uint;
        let alloc: unsafe extern "C" fn(Pointer, c_uint) -> Pointer = self.operation("alloc_mw");
        let made = unsafe { alloc(pd.0, kind) };
        self.keep(MW, made)
    }

    fn create_channel(&mut self) -> bool {
        if !self.has_room(CHANNEL) {
            return false;
        }
        let create: unsafe extern "C" fn(Pointer) -> Pointer =
            self.function("ibv_create_comp_channel");
        let made = unsafe { create(self.shared.context.0) };
        if !made.is_null() {
            let descriptor: c_int = unsafe { get("ibv_comp_channel", made, "fd") };
            assert_eq!(unsafe { libc::fcntl(descriptor, libc::F_SETFL, libc::O_NONBLOCK) }, 0);
        }
        self.keep(CHANNEL, made)
    }

    /// Towards a connection.
    fn connect(&mut self) -> bool {
        let (Some(qp), Some(peer)) = (self.any(QP), self.any(QP)) else { return false };
        let kind: c_uint = unsafe { get("ibv_qp", qp.0, "qp_type") };
        let is_ud = kind == constant("IBV_QPT_UD");
        let is_rc = kind == constant("IBV_QPT_RC");
        let state: c_uint = unsafe { get("ibv_qp", qp.0, "state") };
        let number: u32 = unsafe { get("ibv_qp", peer.0, "qp_num") };
        let mut attr = self.noise("ibv_qp_attr");
        attr.set("port_num", 1u8).set("pkey_index", 0u16).set("qkey", 0x1111u32);
        attr.set("qp_access_flags", 0xFu32).set("path_mtu", 1 + self.rng.below(5) as u32);
        attr.set("dest_qp_num", number).set("rq_psn", 5u32).set("sq_psn", 5u32);
        attr.set("max_rd_atomic", 4u8).set("max_dest_rd_atomic", 4u8);
        attr.set("min_rnr_timer", 1u8)
            .set("timeout", 10u8)
            .set("retry_cnt", 1u8)
            .set("rnr_retry", 1u8);
        attr.set(AV_IS_GLOBAL, 1u8).set(AV_PORT, 1u8);
        attr.set(AV_DGID, self.shared.gid).set(AV_SGID_INDEX, 0u8);
        let (next, mask) = match (state, is_ud, is_rc) {
            (0, true, _) => {
                (1, mask(&["IBV_QP_STATE", "IBV_QP_PKEY_INDEX", "IBV_QP_PORT", "IBV_QP_QKEY"]))
            }
            (0, ..) => (
                1,
                mask(&["IBV_QP_STATE", "IBV_QP_PKEY_INDEX", "IBV_QP_PORT", "IBV_QP_ACCESS_FLAGS"]),
            ),
            (1, true, _) => (2, mask(&["IBV_QP_STATE"])),
            (1, _, true) => {
                (2, mask(&RTR) | mask(&["IBV_QP_MAX_DEST_RD_ATOMIC", "IBV_QP_MIN_RNR_TIMER"]))
            }
            (1, ..) => (2, mask(&RTR)),
            (2, _, true) => (3, mask(&RTS) | mask(&["IBV_QP_SQ_PSN"])),
            (2, ..) => (3, mask(&["IBV_QP_STATE", "IBV_QP_SQ_PSN"])),
            _ if self.rng.once_in(6) => (self.rng.below(8) as u32, mask(&["IBV_QP_STATE"])),
            _ => return false,
        };
        attr.set("qp_state", next);
        self.modify(qp, &mut attr, mask) == 0
    }

    /// Random mask.
    fn modify_any(&mut self) -> bool {
        let Some(qp) = self.any(QP) else { return false };
        let mut attr = self.noise("ibv_qp_attr");
        attr.set("qp_state", self.rng.below(9) as u32);
        let mask = self.rng.next() as c_int >> self.rng.below(31);
        self.modify(qp, &mut attr, mask) == 0
    }

    fn modify(&self, qp: Object, attr: &mut Structure, mask: c_int) -> c_int {
        let modify: unsafe extern "C" fn(Pointer, Pointer, c_int) -> c_int =
            self.function("ibv_modify_qp");
        let result = unsafe { modify(qp.0, attr.pointer(), mask) };
        assert!((0..200).contains(&result), "{result}");
        result
    }

    fn modify_others(&mut self) -> bool {
        match self.rng.below(4) {
            0 => {
                let Some(srq) = self.any(SRQ) else { return false };
                let mut attr = self.noise("ibv_srq_attr");
                let modify: unsafe extern "C" fn(Pointer, Pointer, c_int) -> c_int =
                    self.function("ibv_modify_srq");
                unsafe { modify(srq.0, attr.pointer(), self.rng.below(8) as c_int) == 0 }
            }
            1 => {
                let Some(cq) = self.any(CQ) else { return false };
                let resize: unsafe extern "C" fn(Pointer, c_int) -> c_int =
                    self.function("ibv_resize_cq");
                unsafe { resize(cq.0, self.rng.number() as c_int) == 0 }
            }
            2 => {
                let Some(mr) = self.any(MR) else { return false };
                let ((address, length), rights) = (self.part(), self.rights());
                let pd = self.own_or(PD, self.shared.pd);
                let flags = self.rng.below(9) as c_int;
                let again: unsafe extern "C" fn(
                    Pointer,
                    c_int,
                    Pointer,
                    Pointer,
                    usize,
                    c_int,
                ) -> c_int = self.function("ibv_rereg_mr");
                unsafe {
                    again(mr.0, flags, pd.0, address as Pointer, length as usize, rights) == 0
                }
            }
            _ => {
                let cq = self.own_or(CQ, self.shared.cq);
                let notify: unsafe extern "C" fn(Pointer, c_int) -> c_int =
                    self.operation("req_notify_cq");
                unsafe { notify(cq.0, self.rng.number() as c_int) == 0 }
            }
        }
    }

    fn ask(&mut self) -> bool {
        let context = self.shared.context.0;
        let number = self.rng.number();
        match self.rng.below(7) {
            0 => {
                let Some(qp) = self.any(QP) else { return false };
                let (mut attr, mut init) =
                    (self.noise("ibv_qp_attr"), self.noise("ibv_qp_init_attr"));
                let query: unsafe extern "C" fn(Pointer, Pointer, c_int, Pointer) -> c_int =
                    self.function("ibv_query_qp");
                unsafe { query(qp.0, attr.pointer(), number as c_int, init.pointer()) == 0 }
            }
            1 => {
                let Some(srq) = self.any(SRQ) else { return false };
                let mut attr = self.noise("ibv_srq_attr");
                let query: unsafe extern "C" fn(Pointer, Pointer) -> c_int =
                    self.function("ibv_query_srq");
                unsafe { query(srq.0, attr.pointer()) == 0 }
            }
            2 => {
                let mut attr = self.noise("ibv_device_attr");
                let query: unsafe extern "C" fn(Pointer, Pointer) -> c_int =
                    self.function("ibv_query_device");
                unsafe { query(context, attr.pointer()) == 0 }
            }
            3 => {
                let mut attr = self.noise("ibv_port_attr");
                let query: unsafe extern "C" fn(Pointer, u8, Pointer) -> c_int =
                    self.function("ibv_query_port");
                unsafe { query(context, number as u8, attr.pointer()) == 0 }
            }
            4 => {
                let mut gid = Gid([0; 16]);
                let query: unsafe extern "C" fn(Pointer, u8, c_int, *mut Gid) -> c_int =
                    self.function("ibv_query_gid");
                unsafe { query(context, 1, number as c_int, &raw mut gid) == 0 }
            }
            5 => {
                let mut pkey = 0u16;
                let query: unsafe extern "C" fn(Pointer, u8, c_int, *mut u16) -> c_int =
                    self.function("ibv_query_pkey");
                unsafe {
                    query(context, self.rng.number() as u8, number as c_int, &raw mut pkey) == 0
                }
            }
            _ => {
                let index: unsafe extern "C" fn(Pointer, u8, u16) -> c_int =
                    self.function("ibv_get_pkey_index");
                unsafe { index(context, self.rng.number() as u8, number as u16) >= 0 }
            }
        }
    }

    fn words(&mut self) -> bool {
        let names =
            ["ibv_wc_status_str", "ibv_event_type_str", "ibv_node_type_str", "ibv_port_state_str"];
        let name = names[self.rng.below(names.len())];
        let text: unsafe extern "C" fn(c_int) -> *const c_char = self.function(name);
        let text = unsafe { text(self.rng.number() as c_int) };
        assert!(!text.is_null(), "{name}");
        unsafe { std::ffi::CStr::from_ptr(text).count_bytes() > 0 }
    }

    fn attach(&mut self) -> bool {
        let Some(qp) = self.any(QP) else { return false };
        let mut group: [u8; 16] = self.rng.bytes();
        if !self.rng.once_in(3) {
            group = [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xFF, 0xFF, 224, 0, 1, group[0] & 3];
        }
        let (group, lid) = (Gid(group), self.rng.number() as u16);
        if self.rng.once_in(3) {
            self.attached.retain(|attached| *attached != (qp, group));
            return self.change_group("ibv_detach_mcast", qp, &group, lid);
        }
        let is_attached = self.change_group("ibv_attach_mcast", qp, &group, lid);
        if is_attached {
            self.attached.push((qp, group));
        }
        is_attached
    }

    pub(crate) fn change_group(&self, name: &str, qp: Object, group: &Gid, lid: u16) -> bool {
        let change: unsafe extern "C" fn(Pointer, *const Gid, u16) -> c_int = self.function(name);
        unsafe { change(qp.0, group, lid) == 0 }
    }

    fn look_for_events(&mut self) -> bool {
        if let Some(channel) = self.any(CHANNEL) {
            let (mut cq, mut context) = (null_mut(), null_mut());
            let next: unsafe extern "C" fn(Pointer, *mut Pointer, *mut Pointer) -> c_int =
                self.function("ibv_get_cq_event");
            if unsafe { next(channel.0, &raw mut cq, &raw mut context) } == 0 {
                assert!(self.objects[CQ].contains(&Object(cq)), "an event of {}", KINDS[CQ]);
                let ack: unsafe extern "C" fn(Pointer, c_uint) = self.function("ibv_ack_cq_events");
                unsafe { ack(cq, 1) };
                return true;
            }
        }
        let mut event = Structure::new("ibv_async_event");
        let next: unsafe extern "C" fn(Pointer, Pointer) -> c_int =
            self.function("ibv_get_async_event");
        let found = unsafe { next(self.shared.context.0, event.pointer()) } == 0;
        if found {
            let ack: unsafe extern "C" fn(Pointer) = self.function("ibv_ack_async_event");
            unsafe { ack(event.pointer()) };
        }
        found
    }

    pub(crate) fn drain_events(&mut self) {
        while self.look_for_events() {}
        while self.next_connection_event() {}
    }
}

const RTR: [&str; 5] =
    ["IBV_QP_STATE", "IBV_QP_AV", "IBV_QP_PATH_MTU", "IBV_QP_DEST_QPN", "IBV_QP_RQ_PSN"];
const RTS: [&str; 5] = [
    "IBV_QP_STATE",
    "IBV_QP_TIMEOUT",
    "IBV_QP_RETRY_CNT",
    "IBV_QP_RNR_RETRY",
    "IBV_QP_MAX_QP_RD_ATOMIC",
];
const AV_IS_GLOBAL: &str = "ah_attr: ibv_ah_attr.is_global";
const AV_PORT: &str = "ah_attr: ibv_ah_attr.port_num";
const AV_DGID: &str = "ah_attr: ibv_ah_attr.grh: ibv_global_route.dgid";
const AV_SGID_INDEX: &str = "ah_attr: ibv_ah_attr.grh: ibv_global_route.sgid_index";
const CAPACITIES: [&str; 5] = [
    "cap: ibv_qp_cap.max_send_wr",
    "cap: ibv_qp_cap.max_recv_wr",
    "cap: ibv_qp_cap.max_send_sge",
    "cap: ibv_qp_cap.max_recv_sge",
    "cap: ibv_qp_cap.max_inline_data",
];
