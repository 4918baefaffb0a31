//! Optional attributes per edge and service (11.2.4.2).

use roce_transport::{
    addr::{AddressVector, QKey, StaticRate},
    mem::Access,
    qp::{
        Attribute, EDGES, ModifyError, PathMigration, QpInfo, QpType, QpUpdate, RequesterAttr,
        ResponderAttr, State, optional_attributes,
    },
    time::Instant,
};

use super::states::{TYPES, go, go_with, in_state, node};

fn change_of(attribute: Attribute, current: State) -> QpUpdate {
    let mut changes = QpUpdate::default();
    let av = AddressVector {
        hop_limit: 9,
        ..AddressVector::new(std::net::IpAddr::from([10, 0, 0, 2]).into(), 0)
    };
    match attribute {
        Attribute::CurrentState => changes.current_state = Some(current),
        Attribute::PKeyIndex => changes.pkey_index = Some(1),
        Attribute::Access => changes.access = Some(Access::REMOTE_READ),
        Attribute::QKey => changes.qkey = Some(QKey(0x77)),
        Attribute::Av => changes.av = Some(av),
        Attribute::Timeout => changes.timeout = Some(17),
        Attribute::RetryCnt => changes.retry_cnt = Some(3),
        Attribute::RnrRetry => changes.rnr_retry = Some(2),
        Attribute::MaxRdAtomic => changes.max_rd_atomic = Some(5),
        Attribute::MaxDestRdAtomic => changes.max_dest_rd_atomic = Some(6),
        Attribute::MinRnrTimer => changes.min_rnr_timer = Some(21),
        Attribute::AltPath => changes.alt_path = Some(av),
        Attribute::PathMigration => changes.path_migration = Some(PathMigration::Migrated),
    }
    changes
}

fn changed(mut info: QpInfo, attribute: Attribute) -> QpInfo {
    let changes = change_of(attribute, info.state);
    info.pkey_index = changes.pkey_index.unwrap_or(info.pkey_index);
    info.access = changes.access.unwrap_or(info.access);
    info.qkey = changes.qkey.unwrap_or(info.qkey);
    info.av = changes.av.or(info.av);
    let requester = &mut info.requester;
    requester.timeout = changes.timeout.unwrap_or(requester.timeout);
    requester.retry_cnt = changes.retry_cnt.unwrap_or(requester.retry_cnt);
    requester.rnr_retry = changes.rnr_retry.unwrap_or(requester.rnr_retry);
    requester.max_rd_atomic = changes.max_rd_atomic.unwrap_or(requester.max_rd_atomic);
    let responder = &mut info.responder;
    responder.max_dest_rd_atomic =
        changes.max_dest_rd_atomic.unwrap_or(responder.max_dest_rd_atomic);
    responder.min_rnr_timer = changes.min_rnr_timer.unwrap_or(responder.min_rnr_timer);
    info
}

#[test]
fn exactly_the_optional_attributes_of_the_table_are_taken() {
    let mut taken = 0;
    for qp_type in TYPES {
        for (from, to) in State::ALL.into_iter().flat_map(|from| State::ALL.map(|to| (from, to))) {
            let takes_changes = if from == to {
                EDGES.contains(&(from, to))
            } else {
                matches!(to, State::Rtr | State::Rts)
            };
            if !takes_changes {
                continue;
            }
            for &attribute in Attribute::ALL {
                let mut node = node();
                // result of the edge alone
                let Some(plain) = in_state(&mut node, qp_type, from) else { continue };
                let exists = go(&mut node, &plain, qp_type, to).is_ok();
                let expected = node.adapter.query_qp(plain.qpn).unwrap();

                let qp = in_state(&mut node, qp_type, from).unwrap();
                let before = node.adapter.query_qp(qp.qpn);
                let result = go_with(&mut node, &qp, qp_type, to, &change_of(attribute, from));
                let after = node.adapter.query_qp(qp.qpn);
                let what = format!("{attribute} of {qp_type} from {from} to {to}");
                if !exists {
                    assert_eq!(
                        result,
                        Err(ModifyError::IllegalTransition { qp_type, from, to }),
                        "{what}"
                    );
                } else if !optional_attributes(qp_type, from, to).contains(&attribute) {
                    assert_eq!(
                        result,
                        Err(ModifyError::NotTaken { attribute, qp_type, from, to }),
                        "{what}"
                    );
                } else if attribute == Attribute::AltPath {
                    assert_eq!(result, Err(ModifyError::NotSupported(attribute)), "{what}");
                } else {
                    assert_eq!(result, Ok(()), "{what}");
                    let mut expected = changed(expected, attribute);
                    expected.qpn = qp.qpn;
                    assert_eq!(after, Some(expected), "{what}");
                    taken += 1;
                    continue;
                }
                assert_eq!(after, before, "{what}: something changed");
            }
        }
    }
    assert_eq!(taken, 103);
}

/// Linux verbs' table for RC, UC, UD, XRC initiators and targets.
#[test]
fn the_table_of_optional_attributes() {
    let peer = "PKEY ACCESS";
    let up = "ALT ACCESS PKEY";
    let (responds, sends) = ("CUR ALT ACCESS RNR_TIMER MIG", "CUR ALT ACCESS MIG");
    let edges = [
        (State::Init, State::Init, [peer, peer, "PKEY QKEY", peer, peer]),
        (State::Init, State::Rtr, [up, up, "PKEY QKEY", up, up]),
        (State::Rtr, State::Rts, [responds, sends, "CUR QKEY", sends, responds]),
        (State::Rts, State::Rts, [responds, sends, "CUR QKEY", sends, responds]),
        (State::Sqd, State::Rts, [responds, sends, "CUR QKEY", sends, responds]),
        (State::Sqe, State::Rts, ["", "CUR ACCESS", "CUR QKEY", "", ""]),
        (
            State::Sqd,
            State::Sqd,
            [
                "AV TIMEOUT RETRY RNR_RETRY RD_ATOMIC DEST_RD_ATOMIC ALT ACCESS PKEY RNR_TIMER MIG",
                "AV ALT ACCESS PKEY MIG",
                "PKEY QKEY",
                "AV TIMEOUT RETRY RNR_RETRY RD_ATOMIC ALT ACCESS PKEY MIG",
                "AV TIMEOUT DEST_RD_ATOMIC ALT ACCESS PKEY RNR_TIMER MIG",
            ],
        ),
    ];
    let attribute = |word: &str| match word {
        "CUR" => Attribute::CurrentState,
        "PKEY" => Attribute::PKeyIndex,
        "ACCESS" => Attribute::Access,
        "QKEY" => Attribute::QKey,
        "AV" => Attribute::Av,
        "TIMEOUT" => Attribute::Timeout,
        "RETRY" => Attribute::RetryCnt,
        "RNR_RETRY" => Attribute::RnrRetry,
        "RD_ATOMIC" => Attribute::MaxRdAtomic,
        "DEST_RD_ATOMIC" => Attribute::MaxDestRdAtomic,
        "RNR_TIMER" => Attribute::MinRnrTimer,
        "ALT" => Attribute::AltPath,
        "MIG" => Attribute::PathMigration,
        other => panic!("{other}"),
    };
    let names = |attributes: &mut dyn Iterator<Item = Attribute>| {
        let mut names: Vec<_> = attributes.map(|attribute| attribute.to_string()).collect();
        names.sort();
        names
    };
    for (from, to) in State::ALL.into_iter().flat_map(|from| State::ALL.map(|to| (from, to))) {
        let row =
            edges.iter().find(|row| (row.0, row.1) == (from, to)).map_or([""; 5], |row| row.2);
        // raw packets have none
        for (qp_type, words) in TYPES.into_iter().zip(row.into_iter().chain([""])) {
            let is = names(&mut optional_attributes(qp_type, from, to).iter().copied());
            assert_eq!(
                is,
                names(&mut words.split_whitespace().map(attribute)),
                "{qp_type} from {from} to {to}"
            );
        }
    }
}

#[test]
fn changes_are_checked_before_anything_changes() {
    let mut node = node();
    let av = AddressVector::new(std::net::IpAddr::from([10, 0, 0, 2]).into(), 0);
    let group = AddressVector::new(std::net::IpAddr::from([239, 0, 0, 2]).into(), 0);
    let good = QpUpdate {
        access: Some(Access::REMOTE_READ),
        pkey_index: Some(1),
        av: Some(AddressVector { static_rate: StaticRate::Gbps100, ..av }),
        timeout: Some(31),
        retry_cnt: Some(7),
        rnr_retry: Some(7),
        max_rd_atomic: Some(128),
        max_dest_rd_atomic: Some(128),
        min_rnr_timer: Some(31),
        ..QpUpdate::default()
    };
    let range = |attribute, limit| ModifyError::Range { attribute, limit };
    let qp = in_state(&mut node, QpType::Rc, State::Sqd).unwrap();
    let before = node.adapter.query_qp(qp.qpn);
    for (changes, error) in [
        (QpUpdate { pkey_index: Some(2), ..good }, ModifyError::PKeyIndex(2)),
        (
            QpUpdate { av: Some(AddressVector { sgid_index: 1, ..av }), ..good },
            ModifyError::GidIndex(1),
        ),
        (QpUpdate { av: Some(group), ..good }, ModifyError::MulticastPeer(group.dgid)),
        (QpUpdate { timeout: Some(32), ..good }, range(Attribute::Timeout, 31)),
        (QpUpdate { retry_cnt: Some(8), ..good }, range(Attribute::RetryCnt, 7)),
        (QpUpdate { rnr_retry: Some(8), ..good }, range(Attribute::RnrRetry, 7)),
        (QpUpdate { max_rd_atomic: Some(129), ..good }, range(Attribute::MaxRdAtomic, 128)),
        (
            QpUpdate { max_dest_rd_atomic: Some(129), ..good },
            range(Attribute::MaxDestRdAtomic, 128),
        ),
        (QpUpdate { min_rnr_timer: Some(32), ..good }, range(Attribute::MinRnrTimer, 31)),
        (
            QpUpdate { path_migration: Some(PathMigration::Rearm), ..good },
            ModifyError::NotSupported(Attribute::PathMigration),
        ),
        (
            QpUpdate { path_migration: Some(PathMigration::Armed), ..good },
            ModifyError::NotSupported(Attribute::PathMigration),
        ),
    ] {
        assert_eq!(node.adapter.update(Instant::ZERO, qp.qpn, &changes), Err(error));
        assert_eq!(node.adapter.query_qp(qp.qpn), before, "{error}");
    }
    node.adapter.update(Instant::ZERO, qp.qpn, &good).unwrap();
    let info = node.adapter.query_qp(qp.qpn).unwrap();
    assert_eq!(info.av, good.av, "the static rate is kept");
    assert_eq!(
        (info.requester, info.responder),
        (
            RequesterAttr { timeout: 31, retry_cnt: 7, rnr_retry: 7, max_rd_atomic: 128 },
            ResponderAttr { max_dest_rd_atomic: 128, min_rnr_timer: 31 }
        )
    );
    node.adapter.to_error(Instant::ZERO, qp.qpn).unwrap();
    let failed = node.adapter.query_qp(qp.qpn).unwrap();
    let mut given = info;
    given.state = State::Err;
    assert_eq!(failed, given, "a failed queue pair still tells what it was given");
    node.adapter.to_reset(qp.qpn).unwrap();
    let reset = node.adapter.query_qp(qp.qpn).unwrap();
    assert_eq!(
        (reset.requester.timeout, reset.requester.max_rd_atomic, reset.pkey_index, reset.access),
        (0, 0, 0, Access::empty())
    );
}

#[test]
fn a_wrong_current_state_changes_nothing() {
    let mut node = node();
    let qp = in_state(&mut node, QpType::Rc, State::Rts).unwrap();
    let before = node.adapter.query_qp(qp.qpn);
    for wrong in State::ALL.into_iter().filter(|&state| state != State::Rts) {
        let changes = QpUpdate {
            current_state: Some(wrong),
            access: Some(Access::REMOTE_READ),
            ..QpUpdate::default()
        };
        let result = node.adapter.update(Instant::ZERO, qp.qpn, &changes);
        assert_eq!(
            (result, node.adapter.query_qp(qp.qpn)),
            (Err(ModifyError::OtherState(State::Rts)), before)
        );
    }
}
