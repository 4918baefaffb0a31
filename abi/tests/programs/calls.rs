//! C calls from Rust by recorded offsets, without headers or compiler.

#![allow(
    clippy::undocumented_unsafe_blocks,
    reason = "tests call as C programs do, and keep the same contract"
)]

use std::{
    ffi::{c_int, c_uint, c_void},
    ptr::{null, null_mut},
};

use super::{
    library::{Library, Structure, constant, get, mask, operation},
    watchdog,
};

type Pointer = *mut c_void;

const ROOM: u32 = 4;

fn errno() -> c_int {
    std::io::Error::last_os_error().raw_os_error().unwrap()
}

#[track_caller]
fn fails(pointer: Pointer, number: c_int) {
    assert_eq!((pointer, errno()), (null_mut(), number));
}

struct Device {
    library: Library,
    context: Pointer,
    pd: Pointer,
    cq: Pointer,
    mr: Pointer,
    memory: Box<[u64; 512]>,
    gid: [u8; 16],
}

impl Device {
    fn open() -> Self {
        watchdog::start(String::new);
        let library = Library::load();
        let mut memory = Box::new([0; 512]);
        let mut gid = [0u8; 16];
        unsafe {
            let rights = mask(&["IBV_ACCESS_LOCAL_WRITE", "IBV_ACCESS_REMOTE_WRITE"]);
            let [context, pd, cq, mr] = library.open(&raw mut *memory, rights);
            let query_gid: unsafe extern "C" fn(Pointer, u8, c_int, *mut u8) -> c_int =
                library.function("ibv_query_gid");
            assert_eq!(query_gid(context, 1, 0, gid.as_mut_ptr()), 0);
            assert_eq!(query_gid(context, 2, 0, gid.as_mut_ptr()), -1);
            Self { library, context, pd, cq, mr, memory, gid }
        }
    }

    fn close(self) {
        self.library.close([self.context, self.pd, self.cq, self.mr]);
    }

    fn init_attr(&self, name: &'static str, qp_type: &str) -> Structure {
        let mut attr = Structure::new(name);
        attr.set("send_cq", self.cq)
            .set("recv_cq", self.cq)
            .set("cap: ibv_qp_cap.max_send_wr", ROOM)
            .set("cap: ibv_qp_cap.max_recv_wr", 16u32)
            .set("cap: ibv_qp_cap.max_send_sge", 2u32)
            .set("cap: ibv_qp_cap.max_recv_sge", 1u32)
            .set("qp_type", constant(qp_type))
            .set("sq_sig_all", 1);
        attr
    }

    fn create_qp(&self, attr: &mut Structure) -> Pointer {
        unsafe {
            let create: unsafe extern "C" fn(Pointer, Pointer) -> Pointer =
                self.library.function("ibv_create_qp");
            create(self.pd, attr.pointer())
        }
    }

    fn modify(&self, qp: Pointer, attr: &mut Structure, mask: c_int) -> c_int {
        unsafe {
            let modify: unsafe extern "C" fn(Pointer, Pointer, c_int) -> c_int =
                self.library.function("ibv_modify_qp");
            modify(qp, attr.pointer(), mask)
        }
    }

    /// With itself.
    fn connect(&self, qp: Pointer) {
        let mut attr = Structure::new("ibv_qp_attr");
        attr.set("qp_state", constant("IBV_QPS_INIT")).set("port_num", 1u8);
        attr.set("qp_access_flags", constant("IBV_ACCESS_REMOTE_WRITE"));
        assert_eq!(self.modify(qp, &mut attr, mask(&TO_INIT)), 0);
        let number: u32 = unsafe { get("ibv_qp", qp, "qp_num") };
        attr.set("qp_state", constant("IBV_QPS_RTR"))
            .set("path_mtu", constant("IBV_MTU_1024"))
            .set("dest_qp_num", number)
            .set("ah_attr: ibv_ah_attr.is_global", 1u8)
            .set("ah_attr: ibv_ah_attr.port_num", 1u8)
            .set("ah_attr: ibv_ah_attr.grh: ibv_global_route.dgid", self.gid)
            .set("max_dest_rd_atomic", 4u8)
            .set("min_rnr_timer", 12u8)
            .set("timeout", 14u8)
            .set("retry_cnt", 7u8)
            .set("rnr_retry", 7u8)
            .set("max_rd_atomic", 4u8);
        assert_eq!(self.modify(qp, &mut attr, mask(&TO_RTR)), 0);
        attr.set("qp_state", constant("IBV_QPS_RTS"));
        assert_eq!(self.modify(qp, &mut attr, mask(&TO_RTS)), 0);
        assert_eq!(state(qp), constant("IBV_QPS_RTS"));
    }

    /// Status and first failed request.
    fn post(&self, name: &str, queue: Pointer, list: &mut Structure) -> (c_int, Pointer) {
        let mut bad = null_mut();
        unsafe {
            let post: unsafe extern "C" fn(Pointer, Pointer, *mut Pointer) -> c_int =
                operation(self.context, name);
            (post(queue, list.pointer(), &raw mut bad), bad)
        }
    }

    fn poll(&self) -> Option<Structure> {
        let mut wc = Structure::new("ibv_wc");
        let count = unsafe {
            let poll: unsafe extern "C" fn(Pointer, c_int, Pointer) -> c_int =
                operation(self.context, "poll_cq");
            poll(self.cq, 1, wc.pointer())
        };
        assert!((0..=1).contains(&count), "{count}");
        (count == 1).then_some(wc)
    }

    fn next(&self) -> Structure {
        let start = std::time::Instant::now();
        loop {
            if let Some(wc) = self.poll() {
                return wc;
            }
            assert!(start.elapsed().as_secs() < 20, "no completion");
        }
    }
}

const TO_INIT: [&str; 4] =
    ["IBV_QP_STATE", "IBV_QP_PKEY_INDEX", "IBV_QP_PORT", "IBV_QP_ACCESS_FLAGS"];
const TO_RTR: [&str; 7] = [
    "IBV_QP_STATE",
    "IBV_QP_AV",
    "IBV_QP_PATH_MTU",
    "IBV_QP_DEST_QPN",
    "IBV_QP_RQ_PSN",
    "IBV_QP_MAX_DEST_RD_ATOMIC",
    "IBV_QP_MIN_RNR_TIMER",
];
const TO_RTS: [&str; 6] = [
    "IBV_QP_STATE",
    "IBV_QP_TIMEOUT",
    "IBV_QP_RETRY_CNT",
    "IBV_QP_RNR_RETRY",
    "IBV_QP_SQ_PSN",
    "IBV_QP_MAX_QP_RD_ATOMIC",
];

fn status(library: Library, name: &str, object: Pointer) -> c_int {
    unsafe {
        let function: unsafe extern "C" fn(Pointer) -> c_int = library.function(name);
        function(object)
    }
}

fn state(qp: Pointer) -> u32 {
    unsafe { get("ibv_qp", qp, "state") }
}

fn send_wr(wr_id: u64, list: &mut Structure, count: c_int) -> Structure {
    let mut wr = Structure::new("ibv_send_wr");
    wr.set("wr_id", wr_id).set("sg_list", list.pointer()).set("num_sge", count);
    wr.set("opcode", constant("IBV_WR_SEND"));
    wr
}

pub(crate) fn make_all() {
    creating();
    modifying();
    posting();
}

fn creating() {
    let device = Device::open();
    let library = device.library;
    let mut attr = device.init_attr("ibv_qp_init_attr", "IBV_QPT_RC");
    attr.set("cap: ibv_qp_cap.max_send_sge", 1000u32);
    fails(device.create_qp(&mut attr), libc::EINVAL);
    attr.set("cap: ibv_qp_cap.max_send_sge", 2u32).set("send_cq", null::<c_void>());
    fails(device.create_qp(&mut attr), libc::EINVAL);
    let mut raw = device.init_attr("ibv_qp_init_attr", "IBV_QPT_RAW_PACKET");
    fails(device.create_qp(&mut raw), libc::EOPNOTSUPP);

    let mut srq_attr = Structure::new("ibv_srq_init_attr");
    srq_attr.set("attr: ibv_srq_attr.max_wr", 8u32).set("attr: ibv_srq_attr.max_sge", 1u32);
    let srq = unsafe {
        let create: unsafe extern "C" fn(Pointer, Pointer) -> Pointer =
            library.function("ibv_create_srq");
        create(device.pd, srq_attr.pointer())
    };
    // the extended structure, through the context
    let mut attr = device.init_attr("ibv_qp_init_attr_ex", "IBV_QPT_RC");
    attr.set("srq", srq).set("pd", device.pd).set("comp_mask", constant("IBV_QP_INIT_ATTR_PD"));
    let qp = unsafe {
        let create: unsafe extern "C" fn(Pointer, Pointer) -> Pointer =
            operation(device.context, "create_qp_ex");
        create(device.context, attr.pointer())
    };
    assert!(!srq.is_null() && !qp.is_null());
    assert_eq!((state(qp), unsafe { get("ibv_qp", qp, "srq") }), (0, srq));
    for (destroy, object) in
        [("ibv_destroy_srq", srq), ("ibv_destroy_cq", device.cq), ("ibv_dealloc_pd", device.pd)]
    {
        assert_eq!(status(library, destroy, object), libc::EBUSY, "{destroy}");
    }
    let (mut found, mut init) = (Structure::new("ibv_qp_attr"), Structure::new("ibv_qp_init_attr"));
    let queried = unsafe {
        let query: unsafe extern "C" fn(Pointer, Pointer, c_int, Pointer) -> c_int =
            library.function("ibv_query_qp");
        query(qp, found.pointer(), mask(&["IBV_QP_STATE"]), init.pointer())
    };
    assert_eq!((queried, found.get::<c_uint>("qp_state")), (0, constant("IBV_QPS_RESET")));
    assert_eq!((init.get::<Pointer>("srq"), init.get::<c_int>("sq_sig_all")), (srq, 1));
    assert_eq!(init.get::<u32>("cap: ibv_qp_cap.max_send_wr"), ROOM);
    let number: c_int = unsafe {
        let number: unsafe extern "C" fn(Pointer, *mut u32) -> c_int =
            operation(device.context, "get_srq_num");
        number(srq, &raw mut *Box::new(0))
    };
    assert_eq!(number, libc::EINVAL, "a queue that is not one of XRC has no number");
    assert_eq!(status(library, "ibv_destroy_qp", qp), 0);
    assert_eq!(status(library, "ibv_destroy_srq", srq), 0);
    device.close();
}

fn modifying() {
    let device = Device::open();
    let qp = device.create_qp(&mut device.init_attr("ibv_qp_init_attr", "IBV_QPT_RC"));
    let mut attr = Structure::new("ibv_qp_attr");
    attr.set("qp_state", constant("IBV_QPS_INIT")).set("port_num", 2u8);
    let to_init = mask(&TO_INIT);
    assert_eq!((device.modify(qp, &mut attr, to_init), errno()), (libc::EINVAL, libc::EINVAL));
    attr.set("port_num", 1u8);
    for wrong in [to_init & !mask(&["IBV_QP_PORT"]), to_init | mask(&["IBV_QP_QKEY"])] {
        assert_eq!(device.modify(qp, &mut attr, wrong), libc::EINVAL, "{wrong:#x}");
    }
    let rate = to_init | mask(&["IBV_QP_RATE_LIMIT"]);
    assert_eq!(device.modify(qp, &mut attr, rate), libc::EOPNOTSUPP);
    assert_eq!(state(qp), constant("IBV_QPS_RESET"));
    device.connect(qp);
    let mut recv = Structure::new("ibv_recv_wr");
    recv.set("wr_id", 1u64);
    assert_eq!(device.post("post_recv", qp, &mut recv), (0, null_mut()));
    attr.set("qp_state", constant("IBV_QPS_ERR"));
    assert_eq!(device.modify(qp, &mut attr, mask(&["IBV_QP_STATE"])), 0);
    assert_eq!(state(qp), constant("IBV_QPS_ERR"));
    let mut wc = device.next();
    assert_eq!(wc.get::<u64>("wr_id"), 1);
    assert_eq!(wc.get::<c_uint>("status"), constant("IBV_WC_WR_FLUSH_ERR"));
    assert_eq!(status(device.library, "ibv_destroy_qp", qp), 0);
    device.close();
}

fn posting() {
    let mut device = Device::open();
    let qp = device.create_qp(&mut device.init_attr("ibv_qp_init_attr", "IBV_QPT_RC"));
    let lkey: u32 = unsafe { get("ibv_mr", device.mr, "lkey") };
    let start = device.memory.as_mut_ptr() as u64;
    let mut sge = Structure::new("ibv_sge");
    sge.set("addr", start).set("length", 8u32).set("lkey", lkey);
    let mut first = send_wr(10, &mut sge, 1);
    let first_pointer = first.pointer();
    assert_eq!(device.post("post_send", qp, &mut first), (libc::EINVAL, first_pointer), "RESET");
    device.connect(qp);

    // the second has too many elements; the first writes
    device.memory[..2].copy_from_slice(&[0x0102_0304_0506_0708, 0]);
    let rkey: u32 = unsafe { get("ibv_mr", device.mr, "rkey") };
    let mut second = send_wr(11, &mut sge, 3);
    // `wr.rdma`: address and key
    first.set("opcode", constant("IBV_WR_RDMA_WRITE")).set("wr", (start + 8, rkey));
    first.set("next", second.pointer());
    let second_pointer = second.pointer();
    assert_eq!(device.post("post_send", qp, &mut first), (libc::EINVAL, second_pointer));
    let mut wc = device.next();
    assert_eq!((wc.get::<u64>("wr_id"), wc.get::<c_uint>("status")), (10, 0));
    assert_eq!(wc.get::<c_uint>("opcode"), constant("IBV_WC_RDMA_WRITE"));
    assert_eq!(device.memory[1], 0x0102_0304_0506_0708);

    for (opcode, error) in [(constant("IBV_WR_TSO"), libc::EOPNOTSUPP), (99, libc::EINVAL)] {
        let mut wrong = send_wr(12, &mut sge, 0);
        wrong.set("opcode", opcode);
        let pointer = wrong.pointer();
        assert_eq!(device.post("post_send", qp, &mut wrong), (error, pointer), "{opcode}");
    }
    let mut negative = send_wr(13, &mut sge, -1);
    assert_eq!(device.post("post_send", qp, &mut negative).0, libc::EINVAL);

    // no receive is posted, so the queue fills
    let mut many: Vec<Structure> =
        (0..=ROOM.into()).map(|number| send_wr(number, &mut sge, 0)).collect();
    for index in (1..many.len()).rev() {
        let next = many[index].pointer();
        many[index - 1].set("next", next);
    }
    let last = many[ROOM as usize].pointer();
    assert_eq!(device.post("post_send", qp, &mut many[0]), (libc::ENOMEM, last));
    assert_eq!(status(device.library, "ibv_destroy_qp", qp), 0);
    assert!(device.poll().is_none(), "completions go with their queue pair");
    device.close();
}
