use roce::{Data, DeviceMemoryError, Limits, MemoryFault, OpenOptions, QpInitAttr, QpType, SendWr};

use super::{ALL, loopback, next, open};

#[test]
fn device_memory_is_copied_registered_and_bounded() {
    let limits = Limits { max_dm_size: 4096, ..Limits::default() };
    let context = loopback(OpenOptions { limits, ..OpenOptions::default() });
    let memory = context.alloc_dm(3000).unwrap();
    assert!(matches!(
        context.alloc_dm(1097),
        Err(DeviceMemoryError::Size { length: 1097, limit: 4096, used: 3000 })
    ));
    assert!(matches!(context.alloc_dm(0), Err(DeviceMemoryError::Size { .. })));
    assert!(matches!(context.alloc_dm(usize::MAX), Err(DeviceMemoryError::Size { .. })));
    memory.write_at(2998, b"xy").unwrap();
    assert_eq!(memory.write_at(2999, b"xy"), Err(MemoryFault));
    let mut end = [0; 3];
    memory.read_at(2997, &mut end).unwrap();
    assert_eq!(&end, b"\0xy");

    let (pd, cq) = (context.alloc_pd().unwrap(), context.create_cq(16, None).unwrap());
    let out_of_range = [0..3001, 5000..5001, 10..3001];
    for range in out_of_range {
        assert!(matches!(pd.register_dm(&memory, range, ALL), Err(DeviceMemoryError::Range(_))));
    }
    let other = open();
    let foreign = other.alloc_pd().unwrap();
    assert!(matches!(foreign.register_dm(&memory, 0..8, ALL), Err(DeviceMemoryError::OtherDevice)));
    // addresses count from the range's start
    let region = pd.register_dm(&memory, 1000..1020, ALL).unwrap();
    assert_eq!((region.address(), region.len()), (0, 20));
    let qp = pd.create_qp(&QpInitAttr::new(QpType::Rc, &cq)).unwrap();
    qp.connect_to(qp.endpoint(0).unwrap()).unwrap();
    qp.post_send(&[SendWr::write(1, region.remote(16), Data::inline(b"tail"))]).unwrap();
    next(&cq).result.unwrap();
    let plain = pd.allocate(8, ALL).unwrap();
    qp.post_send(&[SendWr::fetch_add(2, region.remote(8), 5, plain.sge_all())]).unwrap();
    next(&cq).result.unwrap();
    let mut bytes = [0; 22];
    memory.read_at(999, &mut bytes).unwrap();
    assert_eq!(bytes[9..17], 5_u64.to_ne_bytes());
    assert_eq!(bytes[17..], *b"tail\0");
    qp.post_send(&[SendWr::write(3, region.remote(17), Data::inline(b"tail"))]).unwrap();
    assert!(next(&cq).result.is_err(), "beyond the range, though not beyond the memory");

    drop(memory);
    assert!(context.alloc_dm(1097).is_err(), "the region still uses it");
    drop(region);
    drop(qp);
    context.alloc_dm(4096).unwrap();
}
