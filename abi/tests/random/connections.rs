use std::{
    ffi::{CString, c_char, c_int, c_uint},
    ptr::null_mut,
};

use super::{
    library::{constant, get},
    world::{ID, Object, Pointer, World},
};

type OfId = unsafe extern "C" fn(Pointer) -> c_int;

#[allow(
    clippy::undocumented_unsafe_blocks,
    reason = "tests call as C programs do, and keep the same contract: pointers lead to whole objects"
)]
impl World<'_> {
    pub(crate) fn connection_management(&mut self) -> bool {
        let what = self.rng.below(14);
        if what < 3 {
            return self.create_id();
        }
        if what < 6 {
            return self.next_connection_event();
        }
        if what == 6 {
            return self.getaddrinfo();
        }
        let Some(id) = self.any(ID) else { return false };
        let number = self.rng.number() as c_int;
        let mut address = self.address();
        let result = match what {
            7 => {
                let bind: unsafe extern "C" fn(Pointer, *mut u8) -> c_int =
                    self.function("rdma_bind_addr");
                unsafe { bind(id.0, address.as_mut_ptr()) }
            }
            8 => {
                let resolve: unsafe extern "C" fn(Pointer, *mut u8, *mut u8, c_int) -> c_int =
                    self.function("rdma_resolve_addr");
                unsafe { resolve(id.0, null_mut(), address.as_mut_ptr(), number) }
            }
            9 => {
                let change: unsafe extern "C" fn(Pointer, c_int) -> c_int = self
                    .function(if number & 1 == 0 { "rdma_resolve_route" } else { "rdma_listen" });
                unsafe { change(id.0, number) }
            }
            10 => {
                let mut param = self.noise("rdma_conn_param");
                let data = [7u8; 256];
                param.set("private_data", data.as_ptr());
                let connect: unsafe extern "C" fn(Pointer, Pointer) -> c_int =
                    self.function(if number & 1 == 0 { "rdma_connect" } else { "rdma_accept" });
                unsafe { connect(id.0, param.pointer()) }
            }
            11 => {
                let data = [7u8; 256];
                let reject: unsafe extern "C" fn(Pointer, *const u8, u8) -> c_int =
                    self.function("rdma_reject");
                unsafe { reject(id.0, data.as_ptr(), number as u8) }
            }
            12 => {
                let create: unsafe extern "C" fn(Pointer, Pointer, Pointer) -> c_int =
                    self.function("rdma_create_qp");
                let mut attr = self.noise("ibv_qp_init_attr");
                for member in ["send_cq", "recv_cq", "srq"] {
                    attr.set(member, null_mut::<()>());
                }
                attr.set("qp_type", self.qp_type());
                unsafe { create(id.0, null_mut(), attr.pointer()) }
            }
            _ => {
                let disconnect: OfId = self.function("rdma_disconnect");
                unsafe { disconnect(id.0) }
            }
        };
        assert!(matches!(result, 0 | -1), "{what}: {result}");
        result == 0
    }

    fn create_id(&mut self) -> bool {
        if !self.has_room(ID) {
            return false;
        }
        let spaces = ["RDMA_PS_TCP", "RDMA_PS_UDP", "RDMA_PS_IB", "RDMA_PS_IPOIB"];
        let space = constant(spaces[self.rng.below(4)]);
        let any = self.rng.number();
        let space = if self.rng.once_in(10) { any } else { space };
        let mut id = null_mut();
        let create: unsafe extern "C" fn(Pointer, *mut Pointer, Pointer, c_uint) -> c_int =
            self.function("rdma_create_id");
        let result = unsafe { create(self.events.0, &raw mut id, null_mut(), space) };
        result == 0 && self.keep(ID, id)
    }

    /// Mostly loopback, with few ports, so that some match.
    fn address(&mut self) -> [u8; 128] {
        let mut address: [u8; 128] = self.rng.bytes();
        if !self.rng.once_in(5) {
            let [port, last] =
                [self.rng.below(4), 1 + self.rng.below(3)].map(|number| number as u8);
            address[..8].copy_from_slice(&[2, 0, 0x50, port, 127, 0, 0, last]);
        }
        address
    }

    pub(crate) fn next_connection_event(&mut self) -> bool {
        let mut event = null_mut();
        let next: unsafe extern "C" fn(Pointer, *mut Pointer) -> c_int =
            self.function("rdma_get_cm_event");
        if unsafe { next(self.events.0, &raw mut event) } != 0 {
            return false;
        }
        let id = Object(unsafe { get("rdma_cm_event", event, "id") });
        let kind: c_uint = unsafe { get("rdma_cm_event", event, "event") };
        if kind == constant("RDMA_CM_EVENT_CONNECT_REQUEST") {
            self.objects[ID].push(id);
        }
        assert!(self.objects[ID].contains(&id), "an event of an identifier that is destroyed");
        let ack: OfId = self.function("rdma_ack_cm_event");
        assert_eq!(unsafe { ack(event) }, 0);
        true
    }

    /// Required before destroying the id.
    pub(crate) fn destroy_qp_of(&self, id: Object) {
        let qp: Pointer = unsafe { get("rdma_cm_id", id.0, "qp") };
        if !qp.is_null() {
            let destroy: unsafe extern "C" fn(Pointer) = self.function("rdma_destroy_qp");
            unsafe { destroy(id.0) };
        }
    }

    fn getaddrinfo(&mut self) -> bool {
        type Resolve =
            unsafe extern "C" fn(*const c_char, *const c_char, Pointer, *mut Pointer) -> c_int;
        let texts = ["127.0.0.1", "::1", "", "300.1.1.1", "7471", "-1", "99999", "\u{7f}"];
        let [node, service] = [(); 2].map(|()| {
            let text = texts[self.rng.below(texts.len())];
            (!self.rng.once_in(3)).then(|| CString::new(text).unwrap())
        });
        let pointer =
            |text: &Option<CString>| text.as_ref().map_or(std::ptr::null(), |it| it.as_ptr());
        let mut hints = self.noise("rdma_addrinfo");
        for member in [
            "ai_src_addr",
            "ai_dst_addr",
            "ai_src_canonname",
            "ai_dst_canonname",
            "ai_route",
            "ai_connect",
            "ai_next",
        ] {
            hints.set(member, null_mut::<()>());
        }
        for member in ["ai_src_len", "ai_dst_len"] {
            hints.set(member, 0u32);
        }
        hints.set("ai_flags", self.rng.below(16) as c_int);
        hints.set("ai_family", [0, 2, 10, 27, -1][self.rng.below(5)]);
        let mut found = null_mut();
        let resolve: Resolve = self.function("rdma_getaddrinfo");
        let result =
            unsafe { resolve(pointer(&node), pointer(&service), hints.pointer(), &raw mut found) };
        if result == 0 {
            let free: unsafe extern "C" fn(Pointer) = self.function("rdma_freeaddrinfo");
            unsafe { free(found) };
        }
        result == 0
    }
}
