use roce::{Data, Limits, ObjectError, OpenOptions, QpInitAttr, QpType, SendWr};

use super::{ALL, loopback, next, open};

#[test]
fn a_parent_domain_is_the_domain_under_another_handle() {
    let limits = Limits { max_pd: 1, ..Limits::default() };
    let (context, other) = (loopback(OpenOptions { limits, ..OpenOptions::default() }), open());
    let pd = context.alloc_pd().unwrap();
    let td = context.alloc_td();
    assert_eq!(pd.parent_domain(Some(&other.alloc_td())).err(), Some(ObjectError::Unknown));
    drop(pd.parent_domain(None).unwrap());
    drop(pd.allocate(8, ALL).expect("a parent domain that goes leaves the domain"));
    let parent = pd.parent_domain(Some(&td)).unwrap();
    assert!(parent.thread_domain().is_some() && pd.thread_domain().is_none());
    // queue pair of one, memory of the other
    let cq = context.create_cq(16, None).unwrap();
    let (memory, qp) = (
        pd.allocate(8, ALL).unwrap(),
        parent.create_qp(&QpInitAttr::new(QpType::Rc, &cq)).unwrap(),
    );
    drop((pd, parent, td));
    qp.connect_to(qp.endpoint(0).unwrap()).unwrap();
    qp.post_send(&[SendWr::write(1, memory.remote(0), Data::inline(b"parental"))]).unwrap();
    next(&cq).result.unwrap();
    assert_eq!(memory.to_vec(0..8).unwrap(), b"parental");
    assert!(context.alloc_pd().is_err(), "what was made in it keeps it");
    drop((qp, memory));
    context.alloc_pd().unwrap();
}
