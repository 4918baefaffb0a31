use std::{collections::BTreeSet, env, process::Command, thread};

use roce::{
    AddressVector, ObjectMismatch, ReregMr, WindowType,
    cm::{CmQpAttr, ConnParam, EventChannel, EventKind, PortSpace},
};

use super::{
    multicast::{Member, own_group},
    sharing::exchange,
    *,
};

const SHARDS: usize = 3;

fn sharded(options: OpenOptions) -> Context {
    loopback(OpenOptions { shards: Some(SHARDS), ..options })
}

fn single(sockets_only: bool) -> Context {
    loopback(OpenOptions { sockets_only, ..OpenOptions::default() })
}

fn shard(qp: &QueuePair) -> u32 {
    qp.qpn().get() >> 18
}

fn sides<const N: usize>(context: &Context) -> [Side; N] {
    [(); N].map(|()| Side::on(context.clone()))
}

#[test]
fn queue_pairs_are_where_their_queues_are() {
    let context = sharded(OpenOptions::default());
    let pd = context.alloc_pd().unwrap();
    let cqs = [(); 2 * SHARDS].map(|()| context.create_cq(16, None).unwrap());
    let attrs = cqs.each_ref().map(|cq| QpInitAttr::new(QpType::Rc, cq));
    let qps = attrs.each_ref().map(|attr| pd.create_qp(attr).unwrap());
    let shards: Vec<u32> = qps.iter().map(shard).collect();
    assert_eq!(shards.iter().collect::<BTreeSet<_>>().len(), SHARDS);
    assert_eq!(shards[..SHARDS], shards[SHARDS..], "in turn");
    for (attr, shard_of_first) in attrs.iter().zip(&shards) {
        assert_eq!(shard(&pd.create_qp(attr).unwrap()), *shard_of_first);
    }

    let mixed = QpInitAttr { recv_cq: cqs[1].clone(), ..attrs[0].clone() };
    let refused = ObjectError::Mismatch(ObjectMismatch::Shards);
    assert_eq!(pd.create_qp(&mixed).unwrap_err(), refused);
    let same = QpInitAttr { recv_cq: cqs[SHARDS].clone(), ..attrs[0].clone() };
    assert_eq!(shard(&pd.create_qp(&same).unwrap()), shards[0]);
    let fresh = context.create_cq(16, None).unwrap();
    let with_fresh = QpInitAttr { recv_cq: fresh, ..attrs[1].clone() };
    assert_eq!(shard(&pd.create_qp(&with_fresh).unwrap()), shards[1]);
}

#[test]
fn shards_talk_with_each_other_and_with_others() {
    talk(false);
}

#[test]
fn shards_that_keep_to_the_network_stack() {
    let context = talk(true);
    assert_eq!(context.link_counters().shared_runs, 0);
    assert_eq!(context.counters().icrc_trusted, 0);
    let address = context.gids()[0].to_ip().to_string();
    let test = own_test::named("live::shards::an_address_of_another_process");
    let mut again = Command::new(env::current_exe().unwrap());
    let opened =
        again.args(["--exact", test, "--nocapture"]).env(ADDRESS, address).output().unwrap();
    assert!(opened.status.success(), "{}", String::from_utf8_lossy(&opened.stderr));
}

const ADDRESS: &str = "ROCE_TEST_ADDRESS";

/// In its own process.
#[test]
fn an_address_of_another_process() {
    let Ok(address) = env::var(ADDRESS) else { return };
    let refused = Device::at(address.parse().unwrap()).unwrap().open(OpenOptions::default());
    assert!(matches!(refused, Err(OpenError::Bind(BindError::Taken(_)))), "{refused:?}");
}

fn talk(sockets_only: bool) -> Context {
    let options = || OpenOptions { sockets_only, ..OpenOptions::default() };
    let (context, beside) = (sharded(options()), sharded(OpenOptions::default()));
    let near: [Side; SHARDS] = sides(&context);
    // All stay: a duplicate response needs its queue pair.
    let mut pairs = Vec::new();
    for other in [single(true), single(false), beside, context.clone()] {
        let far: [Side; SHARDS] = sides(&other);
        for (index, far) in far.into_iter().enumerate() {
            let near = Side { qp: again(&near[index]), ..copy(&near[index]) };
            connect(&near, &far);
            (0..20).for_each(|round| exchange(&near, &far, round));
            pairs.push((near, far));
        }
    }
    for (near, far) in &pairs {
        assert_nothing_dropped(&near.context);
        assert_nothing_dropped(&far.context);
    }
    // Network packets reach each shard directly; others' are forwarded.
    let before = context.link_counters().forwarded;
    pairs[..SHARDS].iter().for_each(|(near, far)| exchange(near, far, 20));
    assert_eq!(context.link_counters().forwarded, before);
    context
}

fn copy(side: &Side) -> Side {
    let Side { context, cq, qp, memory, channel } = side;
    let (context, cq, qp) = (context.clone(), cq.clone(), qp.clone());
    Side { context, cq, qp, memory: memory.clone(), channel: channel.clone() }
}

fn again(side: &Side) -> QueuePair {
    side.memory.domain().create_qp(&QpInitAttr::new(QpType::Rc, &side.cq)).unwrap()
}

#[test]
fn a_region_has_the_same_keys_in_all_shards() {
    let (context, far) = (sharded(OpenOptions::default()), single(false));
    let near: [Side; SHARDS] = sides(&context);
    let pd = near[0].memory.domain().clone();
    let region = pd.allocate(4096, ALL).unwrap();
    let qps = near.each_ref().map(|side| {
        let qp = pd.create_qp(&QpInitAttr::new(QpType::Rc, &side.cq)).unwrap();
        let far = Side::on(far.clone());
        let side = Side { qp, ..copy(side) };
        connect(&side, &far);
        (side, far)
    });
    for (index, (_, far)) in qps.iter().enumerate() {
        far.memory.store_u64(0, 7 + index as u64).unwrap();
        far.qp.post_send(&[SendWr::write(1, region.remote(0), far.memory.sge(0..8))]).unwrap();
        far.next().result.unwrap();
        assert_eq!(region.load_u64(0).unwrap(), 7 + index as u64);
        far.qp
            .post_send(&[SendWr::fetch_add(2, region.remote(8), 1, far.memory.sge(8..16))])
            .unwrap();
        far.next().result.unwrap();
        assert_eq!(far.memory.load_u64(8).unwrap(), index as u64);
    }
    let reader = ReregMr { access: Some(Access::REMOTE_READ), ..ReregMr::default() };
    let changed = region.reregister(reader).unwrap();
    assert_eq!((changed.lkey(), changed.rkey()), (region.lkey(), region.rkey()));
    for (near, far) in &qps {
        far.qp.post_send(&[SendWr::read(3, changed.remote(0), far.memory.sge(0..8))]).unwrap();
        far.next().result.unwrap();
        near.qp.post_send(&[SendWr::write(4, far.memory.remote(0), changed.sge(0..8))]).unwrap();
        near.next().result.unwrap();
    }
    drop(region); // no longer
    changed.deregister().unwrap();
    for (near, far) in &qps {
        far.qp.post_send(&[SendWr::read(5, changed.remote(0), far.memory.sge(0..8))]).unwrap();
        assert_eq!(far.next().result.unwrap_err().status, WcStatus::RemAccessErr);
        assert!(near.context.counters().refused_accesses > 0);
    }
}

#[test]
fn windows_belong_to_the_queue_pair_that_binds_them() {
    let (context, far) = (sharded(OpenOptions::default()), single(false));
    let near: [Side; SHARDS] = sides(&context);
    for near in near {
        let far = Side::on(far.clone());
        connect(&near, &far);
        let pd = near.memory.domain();
        let refused = pd.alloc_window(WindowType::Type1).unwrap_err();
        assert_eq!(refused, ObjectError::Mismatch(ObjectMismatch::Type1Window));
        let region = pd.allocate(4096, Access::LOCAL_WRITE | Access::MW_BIND).unwrap();
        let window = pd.alloc_window(WindowType::Type2B).unwrap();
        let bind = window.bind_to(&region, 0, 8, Access::REMOTE_READ);
        near.qp.post_send(&[SendWr::bind_window(1, bind)]).unwrap();
        near.next().result.unwrap();
        let remote = roce::Remote { address: bind.address, rkey: bind.rkey };
        far.qp.post_send(&[SendWr::read(2, remote, far.memory.sge(0..8))]).unwrap();
        far.next().result.unwrap();
    }
}

/// An SRQ moves with its posted requests to its first queue pair's shard.
#[test]
fn shared_receive_queues() {
    let (context, far) = (sharded(OpenOptions::default()), single(false));
    let near: [Side; SHARDS] = sides(&context);
    let mut srqs = Vec::new();
    for near in &near {
        let pd = near.memory.domain();
        let srq = pd.create_srq(SrqAttr { max_wr: 8, max_sge: 1 }).unwrap();
        srq.post_recv(&[RecvWr::new(5, [near.memory.sge(0..64)])]).unwrap();
        let attr = QpInitAttr { srq: Some(srq.clone()), ..QpInitAttr::new(QpType::Rc, &near.cq) };
        let near = Side { qp: pd.create_qp(&attr).unwrap(), ..copy(near) };
        srq.post_recv(&[RecvWr::new(6, [near.memory.sge(64..128)])]).unwrap();
        srq.set_limit(1).unwrap();
        let far = Side::on(far.clone());
        connect(&near, &far);
        far.memory.write_at(0, &noise(64, 3)).unwrap();
        for id in [5, 6] {
            far.qp.post_send(&[SendWr::send(1, far.memory.sge(0..64))]).unwrap();
            far.next().result.unwrap();
            assert_eq!(near.next().wr_id, id);
        }
        assert_eq!(near.memory.to_vec(64..128).unwrap(), noise(64, 3));
        // Its shard may report it after the completion.
        let start = Instant::now();
        while near.context.poll_async_event() != Some(AsyncEvent::SrqLimitReached(srq.id())) {
            assert!(start.elapsed() < PATIENCE);
        }
        srqs.push(srq);
    }
    let ids: BTreeSet<_> = srqs.iter().map(|srq| srq.id()).collect();
    assert_eq!(ids.len(), SHARDS);
    let attr =
        QpInitAttr { srq: Some(srqs[0].clone()), ..QpInitAttr::new(QpType::Rc, &near[1].cq) };
    let refused = near[0].memory.domain().create_qp(&attr).unwrap_err();
    assert_eq!(refused, ObjectError::Mismatch(ObjectMismatch::Shards));
}

#[test]
fn datagrams_and_groups() {
    let (context, group) = (sharded(OpenOptions::default()), own_group(false));
    let members = [(); SHARDS].map(|()| Member::of(&context, group));
    let shards: BTreeSet<_> = members.iter().map(|member| shard(&member.qp)).collect();
    assert_eq!(shards.len(), SHARDS);
    let data = noise(1000, 7);
    members[0].send(group, 3, &data);
    for member in &members {
        assert!(member.receive(3) == vec![data.clone(); 3]);
    }
    members[1].qp.detach_mcast(group.into()).unwrap();
    members[2].send(group, 1, &data);
    assert_eq!(
        [0, 1, 2].map(|index| members[index].receive(usize::from(index != 1)).len()),
        [1, 0, 1]
    );
    let pd = members[1].memory.domain();
    let ah = pd.create_ah(AddressVector::new(context.gids()[0], 0)).unwrap();
    for receiver in &members {
        let to = ah.to(receiver.qp.qpn(), Member::QKEY);
        receiver.qp.post_recv(&[RecvWr::new(1, [receiver.memory.sge(4096..8192)])]).unwrap();
        let send = SendWr::send_to(2, to, members[1].memory.sge(0..64));
        members[1].qp.post_send(&[send.with_flags(SendFlags::empty())]).unwrap();
        assert_eq!(receiver.receive(1)[0].len(), 64);
    }
}

#[test]
fn threads_and_channels() {
    let (context, far) = (sharded(OpenOptions::default()), single(true));
    let channel = context.create_channel().unwrap();
    let near = [(); SHARDS].map(|()| {
        let side = Side::on(context.clone());
        let cq = context.create_cq(64, Some(&channel)).unwrap();
        let qp = side.memory.domain().create_qp(&QpInitAttr::new(QpType::Rc, &cq)).unwrap();
        Side { cq, qp, channel: channel.clone(), ..side }
    });
    let shards: BTreeSet<_> = near.iter().map(|side| shard(&side.qp)).collect();
    assert_eq!(shards.len(), SHARDS);
    let pairs = near.map(|near| {
        let far = Side::on(far.clone());
        connect(&near, &far);
        (near, far)
    });
    thread::scope(|scope| {
        for (near, far) in &pairs {
            scope.spawn(move || (0..20).for_each(|round| exchange(near, far, round)));
        }
    });
    for exposed in [false, true] {
        if exposed {
            let _ = channel.as_fd();
        }
        for (round, (near, far)) in pairs.iter().cycle().take(30).enumerate() {
            near.qp.post_recv(&[RecvWr::new(round as u64, [near.memory.sge(0..64)])]).unwrap();
            near.cq.req_notify(NotifyKind::Next);
            far.qp.post_send(&[SendWr::send(1, far.memory.sge(0..64))]).unwrap();
            let woken = channel.wait(Some(PATIENCE)).unwrap();
            assert_eq!(woken.id(), near.cq.id());
            assert_eq!(near.next().wr_id, round as u64);
            far.next().result.unwrap();
        }
    }
    for (near, _) in &pairs {
        near.cq.resize(32).unwrap();
        assert!(channel.poll().is_none());
    }
}

/// Another shard wakes a thread that sleeps on a channel, once the shard has a queue there.
#[test]
fn a_channel_that_spreads() {
    let (context, far) = (sharded(OpenOptions::default()), single(true));
    let first = Side::on(context.clone());
    let (pd, channel) = (first.memory.domain(), &first.channel);
    let peers = [(); SHARDS].map(|()| Side::on(far.clone()));
    connect(&first, &peers[0]);
    let receive = |near: &QueuePair, cq: &CompletionQueue, far: &Side, id: u64| {
        near.post_recv(&[RecvWr::new(id, [first.memory.sge(0..64)])]).unwrap();
        cq.req_notify(NotifyKind::Next);
        thread::scope(|scope| {
            let waits = scope.spawn(|| channel.wait(Some(PATIENCE)).unwrap());
            thread::sleep(Duration::from_millis(if id.is_multiple_of(3) { 15 } else { 0 }));
            far.qp.post_send(&[SendWr::send(1, far.memory.sge(0..64))]).unwrap();
            assert_eq!(waits.join().unwrap().id(), cq.id());
        });
        assert_eq!(cq.poll_one().unwrap().wr_id, id);
        far.next().result.unwrap();
    };
    (0..9).for_each(|id| receive(&first.qp, &first.cq, &peers[0], id));
    let waits = channel.clone();
    let sleeper = thread::spawn(move || waits.wait(Some(PATIENCE)).unwrap().id());
    thread::sleep(Duration::from_millis(30)); // it stops serving
    let mut ends = vec![(first.qp.clone(), first.cq.clone(), &peers[0])];
    for far in &peers[1..] {
        let cq = context.create_cq(64, Some(channel)).unwrap();
        let qp = pd.create_qp(&QpInitAttr::new(QpType::Rc, &cq)).unwrap();
        assert_ne!(shard(&qp), shard(&first.qp));
        let near = Side { qp: qp.clone(), cq: cq.clone(), ..copy(&first) };
        connect(&near, far);
        ends.push((qp, cq, far));
    }
    let (qp, cq, far) = &ends[1];
    qp.post_recv(&[RecvWr::new(77, [first.memory.sge(0..64)])]).unwrap();
    cq.req_notify(NotifyKind::Next);
    far.qp.post_send(&[SendWr::send(1, far.memory.sge(0..64))]).unwrap();
    assert_eq!(sleeper.join().unwrap(), cq.id());
    assert_eq!(cq.poll_one().unwrap().wr_id, 77);
    far.next().result.unwrap();
    for id in 0..9 {
        ends.iter().for_each(|(qp, cq, far)| receive(qp, cq, far, id));
    }
}

#[test]
fn the_device_is_one() {
    let context = sharded(OpenOptions::default());
    let table = PKeyTable::new([PKey::DEFAULT, PKey(0x8005)]).unwrap();
    context.set_pkeys(table).unwrap();
    assert_eq!(context.poll_async_event(), Some(AsyncEvent::PKeyChange));
    assert_eq!(context.poll_async_event(), None, "once");
    let near: [Side; SHARDS] = sides(&context);
    let (far, sent) = (single(false), context.counters().sent_packets);
    let mut kept = Vec::new();
    for near in near {
        let far = Side::on(far.clone());
        connect(&near, &far);
        exchange(&near, &far, 1);
        kept.push((near, far));
    }
    assert!(context.counters().sent_packets >= sent + 3 * SHARDS as u64);
    let published = roce::published_counters().unwrap();
    let own = |it: &&roce::Published| it.pid == std::process::id();
    let gid = context.gids()[0].to_string();
    let of_device = published.iter().filter(own).filter(|it| it.gids.contains(&gid));
    assert!(of_device.count() <= 1, "{published:?}");
}

#[test]
fn connections_of_ids_are_in_the_first_shard() {
    let (context, far) = (sharded(OpenOptions::default()), single(false));
    let near: [Side; 2] = sides(&context);
    let server = EventChannel::new().unwrap();
    let listener = server.create_id(PortSpace::Tcp);
    listener.set_context(&context).unwrap();
    listener.bind_addr((context.gids()[0].to_ip(), 0).into()).unwrap();
    listener.listen(8).unwrap();
    let event = |channel: &EventChannel, kind| {
        let event = channel.wait(Some(PATIENCE)).unwrap();
        assert_eq!(event.kind(), kind, "{event:?}");
        event
    };
    for with_srq in [false, true, false, true] {
        let client_channel = EventChannel::new().unwrap();
        let client = client_channel.create_id(PortSpace::Tcp);
        client.set_context(&far).unwrap();
        client.resolve_addr(None, listener.local_addr().unwrap(), PATIENCE).unwrap();
        event(&client_channel, EventKind::AddrResolved);
        client.resolve_route(PATIENCE).unwrap();
        event(&client_channel, EventKind::RouteResolved);
        client.create_qp(None, &CmQpAttr::default()).unwrap();
        client.connect(&ConnParam::default()).unwrap();
        let request = event(&server, EventKind::ConnectRequest);
        let accepted = request.id();
        // one queue pair is in another shard
        let adopted = near.each_ref().map(|near| {
            let adopted = accepted.adopt_qp(&again(near));
            accepted.destroy_qp();
            adopted.map_err(|error| error.to_string())
        });
        let refused = ObjectMismatch::Shards.to_string();
        assert_eq!(adopted.iter().filter(|it| *it == &Err(refused.clone())).count(), 1);
        let pd = context.alloc_pd().unwrap();
        let srq = with_srq.then(|| pd.create_srq(SrqAttr { max_wr: 8, max_sge: 1 }).unwrap());
        accepted
            .create_qp(Some(&pd), &CmQpAttr { srq: srq.clone(), ..CmQpAttr::default() })
            .unwrap();
        let (inbox, outbox) = (pd.allocate(64, ALL).unwrap(), client.reg_msgs(64).unwrap());
        match &srq {
            Some(srq) => srq.post_recv(&[RecvWr::new(3, [inbox.sge_all()])]).unwrap(),
            None => accepted.post_recv(3, [inbox.sge_all()]).unwrap(),
        }
        accepted.accept(&ConnParam::default()).unwrap();
        event(&client_channel, EventKind::Established);
        event(&server, EventKind::Established);
        client.post_send(4, outbox.sge(0..5), SendFlags::SIGNALED).unwrap();
        assert!(client.get_send_comp().unwrap().result.is_ok());
        assert_eq!(accepted.get_recv_comp().unwrap().wr_id, 3);
        client.disconnect().unwrap();
        event(&server, EventKind::Disconnected);
    }
}

#[test]
fn what_cannot_have_shards_says_so() {
    let why = |options: OpenOptions| {
        let options = OpenOptions { shards: Some(2), ..options };
        Device::named("roce_lo").unwrap().open(options).unwrap_err().to_string()
    };
    let manual = why(OpenOptions { progress: Progress::Manual, ..OpenOptions::default() });
    assert_eq!(
        manual,
        "roce_lo cannot have several shards: the program drives its engine, and shards have threads"
    );
    let most = OpenOptions { shards: Some(17), ..OpenOptions::default() };
    let refused = Device::named("roce_lo").unwrap().open(most).unwrap_err().to_string();
    assert!(refused.ends_with("at most 16 are possible"), "{refused}");
    let fabric = Fabric::new("delay 1us".parse().unwrap(), 1);
    let options = OpenOptions { shards: Some(2), ..OpenOptions::default() };
    let refused = fabric.open("10.0.0.1".parse().unwrap(), options).unwrap_err();
    assert!(matches!(refused, OpenError::Shards { .. }), "{refused}");
}
