use std::{os::unix::fs::FileExt, sync::Arc};

use roce::{
    Access, FileMemory, MmapMemory, ObjectError, Placement, RegisterError, ReregMr, SendFlags,
    SendWr, WcOpcode, WcStatus, WindowType,
};

use super::{ALL, OpenOptions, RecvWr, loopback, noise, pair};

/// Bound, used, invalidated by a message, bound with another key.
#[test]
fn a_window() {
    let (a, b) = pair();
    let pd = b.memory.domain();
    let region = pd.allocate(4096, Access::LOCAL_WRITE | Access::MW_BIND).unwrap();
    let window = pd.alloc_window(WindowType::Type2B).unwrap();
    for round in 0..3 {
        let bind = window.bind_to(&region, 100 * round, 100, Access::REMOTE_CHANGE);
        assert_eq!(bind.rkey, window.rkey());
        b.qp.post_send(&[SendWr::bind_window(1, bind)]).unwrap();
        assert_eq!(b.next().result.unwrap().opcode, WcOpcode::BindMw);
        assert!(matches!(region.deregister(), Err(RegisterError::InUse)));
        b.qp.post_recv(&[RecvWr::new(7, [])]).unwrap();
        let remote = roce::Remote { address: bind.address, rkey: bind.rkey };
        let bytes = noise(100, 5 + round as u32);
        a.memory.write_at(0, &bytes).unwrap();
        let write = SendWr::write(2, remote, a.memory.sge(0..100)).with_flags(SendFlags::empty());
        a.qp.post_send(&[write, SendWr::send_invalidate(3, bind.rkey, a.memory.sge(0..0))])
            .unwrap();
        a.next().result.unwrap();
        assert_eq!(b.next().result.unwrap().invalidated, Some(bind.rkey));
        assert_eq!(region.to_vec(100 * round..100 * round + 100).unwrap(), bytes);
    }
    drop(window);
    region.deregister().unwrap();
}

/// FLUSH persists a peer's WRITE.
#[test]
fn a_file_that_is_flushed() {
    let file = tempfile::tempfile().unwrap();
    let (a, b) = pair();
    let memory = Arc::new(FileMemory::new(file.try_clone().unwrap(), 8192).unwrap());
    let rights = Access::LOCAL_WRITE
        | Access::REMOTE_WRITE
        | Access::FLUSH_GLOBAL
        | Access::FLUSH_PERSISTENT;
    let region = b.memory.domain().register(memory, 0, rights).unwrap();
    let bytes = noise(5000, 77);
    a.memory.write_at(0, &bytes).unwrap();
    a.qp.post_send(&[
        SendWr::write(1, region.remote(3), a.memory.sge(0..5000)).with_flags(SendFlags::empty()),
        SendWr::flush(2, region.remote(3), 5000, Placement::GLOBAL | Placement::PERSISTENT),
        SendWr::flush_all(3, region.rkey(), Placement::PERSISTENT),
    ])
    .unwrap();
    for id in [2, 3] {
        let wc = a.next();
        assert_eq!((wc.wr_id, wc.result.unwrap().opcode), (id, WcOpcode::Flush));
    }
    let mut found = vec![0; 5000];
    file.read_exact_at(&mut found, 3).unwrap();
    assert_eq!(found, bytes);
    // A truncated file is a fault; the peer gets a NAK.
    file.set_len(10).unwrap();
    a.qp.post_send(&[SendWr::flush(4, region.remote(0), 8192, Placement::GLOBAL)]).unwrap();
    a.next().result.unwrap();
}

#[test]
fn a_file_cut_short() {
    let file = tempfile::tempfile().unwrap();
    let (a, b) = pair();
    let memory = Arc::new(FileMemory::new(file.try_clone().unwrap(), 4096).unwrap());
    let region = b.memory.domain().register(memory, 0, Access::REMOTE_READ).unwrap();
    file.set_len(100).unwrap();
    a.qp.post_send(&[SendWr::read(1, region.remote(0), a.memory.sge(0..4096))]).unwrap();
    assert_eq!(a.next().result.unwrap_err().status, WcStatus::RemOpErr);
    assert!(region.to_vec(0..101).is_err());
}

#[test]
fn nothing_as_memory() {
    let (a, b) = pair();
    let nothing = b.memory.domain().null_region().unwrap();
    let bytes = noise(3000, 4);
    a.memory.write_at(0, &bytes).unwrap();
    b.qp.post_recv(&[RecvWr::new(1, [nothing.sge(1000), b.memory.sge(0..2000)])]).unwrap();
    a.qp.post_send(&[SendWr::send(2, a.memory.sge(0..3000))]).unwrap();
    assert_eq!(b.next().result.unwrap().byte_len, 3000);
    a.next().result.unwrap();
    assert_eq!(b.memory.to_vec(0..2000).unwrap(), bytes[1000..]);
    // bytes from there are zero
    a.memory.fill(1).unwrap();
    a.qp.post_recv(&[RecvWr::new(3, [a.memory.sge(0..8)])]).unwrap();
    b.qp.post_send(&[SendWr::send(4, nothing.sge(8))]).unwrap();
    a.next().result.unwrap();
    assert_eq!(a.memory.to_vec(0..9).unwrap(), [0, 0, 0, 0, 0, 0, 0, 0, 1]);
}

#[test]
fn pages_on_demand() {
    let (a, b) = pair();
    // too large to touch entirely
    let region = b.memory.domain().allocate_on_demand(1 << 34, ALL).unwrap();
    let end = region.len() - 100;
    region.prefetch(end..end + 100).unwrap();
    assert!(region.prefetch(end..end + 101).is_err());
    a.memory.write_at(0, &noise(100, 1)).unwrap();
    a.qp.post_send(&[SendWr::write(1, region.remote(end), a.memory.sge(0..100))]).unwrap();
    a.next().result.unwrap();
    assert_eq!(region.to_vec(end..end + 100).unwrap(), noise(100, 1));
}

#[test]
fn registered_again() {
    let (a, b) = pair();
    let region = b.memory.domain().allocate(4096, Access::LOCAL_WRITE).unwrap();
    let memory = MmapMemory::new(100).unwrap();
    let change =
        ReregMr { memory: Some((Arc::new(memory), 0)), access: Some(ALL), ..ReregMr::default() };
    let changed = region.reregister(change).unwrap();
    assert_eq!((changed.rkey(), changed.len(), changed.address()), (region.rkey(), 100, 0));
    assert!(matches!(region.reregister(ReregMr::default()), Err(RegisterError::Deregistered)));
    drop(region);
    a.qp.post_send(&[SendWr::write(1, changed.remote(0), a.memory.sge(0..100))]).unwrap();
    a.next().result.unwrap();
    let elsewhere = loopback(OpenOptions::default()).alloc_pd().unwrap();
    let change = ReregMr { pd: Some(elsewhere), ..ReregMr::default() };
    assert!(matches!(changed.reregister(change), Err(RegisterError::UnknownPd)));
    a.qp.post_send(&[SendWr::write(1, changed.remote(0), a.memory.sge(0..100))]).unwrap();
    a.next().result.unwrap();
}

#[test]
fn as_many_windows_as_allowed() {
    let mut options = OpenOptions::default();
    options.limits.max_mw = 2;
    let pd = loopback(options).alloc_pd().unwrap();
    let windows =
        [WindowType::Type1, WindowType::Type2A].map(|kind| pd.alloc_window(kind).unwrap());
    assert!(matches!(
        pd.alloc_window(WindowType::Type1),
        Err(ObjectError::TooMany { limit: 2, .. })
    ));
    drop(windows);
    pd.alloc_window(WindowType::Type1).unwrap();
}
