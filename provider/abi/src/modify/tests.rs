//! Every edge of every service, against a table of what C programs may say there.

use super::*;
use crate::{layout::verbs::ibv_ah_attr, qp};

use QpType::{Rc, Uc, Ud, XrcInitiator, XrcTarget};
use State::{Err as Error, Init as InitState, Reset, Rtr as RtrState, Rts as RtsState, Sqd, Sqe};

const TYPES: [QpType; 5] = [Rc, Uc, Ud, XrcInitiator, XrcTarget];
const LAST: u32 = 20;

/// What must and what may be given on an edge; none where there is no edge. The kernel's table, in
/// our words.
fn table(qp_type: QpType, from: State, to: State) -> Option<(u32, u32)> {
    let connected = |rc: u32, uc: u32, ud: u32, initiator: u32, target: u32| match qp_type {
        Rc => rc,
        Uc => uc,
        Ud => ud,
        XrcInitiator => initiator,
        XrcTarget => target,
    };
    let paths = ALT_PATH | PATH_MIG_STATE;
    Some(match (from, to) {
        (_, Reset) => (0, 0),
        (Reset, Error) => return None,
        (_, Error) => (0, 0),
        (Reset, InitState) => {
            let (key, rights) = (PKEY_INDEX | PORT | QKEY, PKEY_INDEX | PORT | ACCESS_FLAGS);
            (connected(rights, rights, key, rights, rights), 0)
        }
        (InitState, InitState) => {
            let (key, rights) = (PKEY_INDEX | PORT | QKEY, PKEY_INDEX | PORT | ACCESS_FLAGS);
            (0, connected(rights, rights, key, rights, rights))
        }
        (InitState, RtrState) => {
            let path = AV | PATH_MTU | DEST_QPN | RQ_PSN;
            let answers = path | MAX_DEST_RD_ATOMIC | MIN_RNR_TIMER;
            let (key, rights) = (PKEY_INDEX | QKEY, PKEY_INDEX | ACCESS_FLAGS | ALT_PATH);
            (
                connected(answers, path, 0, path, answers),
                connected(rights, rights, key, rights, rights),
            )
        }
        (RtrState | RtsState | Sqd, RtsState) => {
            let asks = TIMEOUT | RETRY_CNT | RNR_RETRY | SQ_PSN | MAX_QP_RD_ATOMIC;
            let needed = connected(asks, SQ_PSN, SQ_PSN, asks, TIMEOUT | SQ_PSN);
            let all = CUR_STATE | ACCESS_FLAGS | paths;
            let may =
                connected(all | MIN_RNR_TIMER, all, CUR_STATE | QKEY, all, all | MIN_RNR_TIMER);
            (if from == RtrState { needed } else { 0 }, may)
        }
        (Sqe, RtsState) if qp_type == Uc => (0, CUR_STATE | ACCESS_FLAGS),
        (Sqe, RtsState) if qp_type == Ud => (0, CUR_STATE | QKEY),
        (RtsState, Sqd) => (0, EN_SQD_ASYNC_NOTIFY),
        (Sqd, Sqd) => {
            let all = AV | ACCESS_FLAGS | PKEY_INDEX | paths;
            let asks = all | PORT | TIMEOUT | RETRY_CNT | RNR_RETRY | MAX_QP_RD_ATOMIC;
            let answers = all | PORT | TIMEOUT | MAX_DEST_RD_ATOMIC | MIN_RNR_TIMER;
            (0, connected(asks | answers, all, PKEY_INDEX | QKEY, asks, answers))
        }
        _ => return None,
    })
}

/// What is not looked at.
fn ends_do_not_have(qp_type: QpType) -> u32 {
    match qp_type {
        XrcInitiator => MAX_DEST_RD_ATOMIC | MIN_RNR_TIMER,
        XrcTarget => MAX_QP_RD_ATOMIC | RETRY_CNT | RNR_RETRY,
        Rc | Uc | Ud => 0,
    }
}

/// Attributes that are valid wherever they are taken.
fn valid(from: State, to: State) -> ibv_qp_attr {
    let av = ibv_ah_attr { is_global: 1, port_num: 1, ..ibv_ah_attr::zeroed() };
    ibv_qp_attr {
        qp_state: qp::state_number(to),
        cur_qp_state: qp::state_number(from),
        path_mtu: 3,
        port_num: 1,
        ah_attr: av,
        alt_ah_attr: av,
        ..ibv_qp_attr::zeroed()
    }
}

fn edges() -> impl Iterator<Item = (QpType, State, State)> {
    let states = || State::ALL.into_iter();
    TYPES.into_iter().flat_map(move |qp_type| {
        states().flat_map(move |from| states().map(move |to| (qp_type, from, to)))
    })
}

#[test]
fn edges_take_what_the_table_says() {
    for (qp_type, from, to) in edges() {
        let of = |mask: u32| Transition::of(qp_type, from, &valid(from, to), mask);
        let what = format!("{qp_type} from {from} to {to}");
        let Some((required, optional)) = table(qp_type, from, to) else {
            assert_eq!(of(STATE), Err(Errno::INVAL), "{what}");
            continue;
        };
        assert!(of(STATE | required).is_ok(), "{what}");
        assert!(of(STATE | required | optional).is_ok(), "{what}");
        for bit in (1..=LAST).map(|bit| 1 << bit) {
            if required & bit != 0 {
                assert_eq!(
                    of(STATE | required & !bit),
                    Err(Errno::INVAL),
                    "{what} without {bit:#x}"
                );
            } else if optional & bit != 0 || ends_do_not_have(qp_type) & bit != 0 {
                assert!(of(STATE | required | bit).is_ok(), "{what} with {bit:#x}");
            } else {
                assert_eq!(of(STATE | required | bit), Err(Errno::INVAL), "{what} with {bit:#x}");
            }
        }
    }
}

#[test]
fn without_a_new_state_it_stays() {
    for (qp_type, from, _) in edges() {
        let of = |mask: u32| Transition::of(qp_type, from, &valid(from, Error), mask);
        let expected = match from {
            Reset | Error => Ok(Transition::Stay),
            InitState | Sqd => Ok(Transition::Change(QpUpdate::NONE)),
            RtsState => Ok(Transition::Rts(Rts::Resume, QpUpdate::NONE)),
            RtrState | Sqe => Err(Errno::INVAL),
        };
        assert_eq!(of(0), expected, "{qp_type} in {from}");
    }
    let attr = ibv_qp_attr { qp_access_flags: 6, ..valid(InitState, InitState) };
    let access = Some(mr::rights(6).unwrap());
    let changed = Transition::Change(QpUpdate { access, ..QpUpdate::NONE });
    assert_eq!(Transition::of(Rc, InitState, &attr, ACCESS_FLAGS), Ok(changed));
}

#[test]
fn attributes_reach_the_transition() {
    let attr = ibv_qp_attr {
        dest_qp_num: 0x123,
        rq_psn: 0x456,
        sq_psn: 0x789,
        path_mtu: 5,
        max_rd_atomic: 1,
        max_dest_rd_atomic: 2,
        min_rnr_timer: 3,
        timeout: 4,
        retry_cnt: 5,
        rnr_retry: 6,
        pkey_index: 7,
        qp_access_flags: 2,
        qkey: 8,
        ..valid(InitState, RtrState)
    };
    let mask = STATE | AV | PATH_MTU | DEST_QPN | RQ_PSN | MAX_DEST_RD_ATOMIC | MIN_RNR_TIMER;
    let rtr = Rtr::Rc {
        dest_qpn: Qpn::new(0x123),
        path_mtu: Mtu::B4096,
        rq_psn: Psn::new(0x456),
        av: ah::vector(&attr.ah_attr).unwrap(),
        max_dest_rd_atomic: 2,
        min_rnr_timer: 3,
    };
    assert_eq!(
        Transition::of(Rc, InitState, &attr, mask),
        Ok(Transition::Rtr(rtr, QpUpdate::NONE))
    );
    let access = Some(mr::rights(2).unwrap());
    let changes = QpUpdate { pkey_index: Some(7), access, ..QpUpdate::NONE };
    assert_eq!(
        Transition::of(Rc, InitState, &attr, mask | PKEY_INDEX | ACCESS_FLAGS),
        Ok(Transition::Rtr(rtr, changes))
    );

    let attr = ibv_qp_attr { qp_state: qp::state_number(RtsState), ..attr };
    let mask = STATE | TIMEOUT | RETRY_CNT | RNR_RETRY | SQ_PSN | MAX_QP_RD_ATOMIC;
    let rts = Rts::Rc {
        sq_psn: Psn::new(0x789),
        timeout: 4,
        retry_cnt: 5,
        rnr_retry: 6,
        max_rd_atomic: 1,
    };
    assert_eq!(Transition::of(Rc, RtrState, &attr, mask), Ok(Transition::Rts(rts, QpUpdate::NONE)));
    // what a transition does not need, it does not change, whatever stands in the structure
    assert_eq!(
        Transition::of(Ud, Sqe, &attr, STATE),
        Ok(Transition::Rts(Rts::Resume, QpUpdate::NONE))
    );

    let attr = ibv_qp_attr { qp_state: qp::state_number(InitState), ..attr };
    let init = Init { pkey_index: 7, access: Default::default(), qkey: QKey(8) };
    assert_eq!(
        Transition::of(Ud, Reset, &attr, STATE | PKEY_INDEX | PORT | QKEY),
        Ok(Transition::Init(init))
    );
}

#[test]
fn there_is_one_port() {
    let mask = STATE | PKEY_INDEX | PORT | ACCESS_FLAGS;
    for port_num in [0, 2] {
        let attr = ibv_qp_attr { port_num, ..valid(Reset, InitState) };
        assert_eq!(Transition::of(Rc, Reset, &attr, mask), Err(Errno::INVAL));
    }
    let mask = STATE | AV | PATH_MTU | DEST_QPN | RQ_PSN;
    for (port_num, is_global) in [(2, 1), (1, 0)] {
        let ah_attr = ibv_ah_attr { port_num, is_global, ..ibv_ah_attr::zeroed() };
        let attr = ibv_qp_attr { ah_attr, ..valid(InitState, RtrState) };
        assert_eq!(Transition::of(Uc, InitState, &attr, mask), Err(Errno::INVAL));
    }
}

#[test]
fn notification_of_a_drained_queue() {
    for (en_sqd_async_notify, mask, notify) in
        [(1, EN_SQD_ASYNC_NOTIFY, true), (0, EN_SQD_ASYNC_NOTIFY, false), (1, 0, false)]
    {
        let attr = ibv_qp_attr { en_sqd_async_notify, ..valid(RtsState, Sqd) };
        assert_eq!(
            Transition::of(Rc, RtsState, &attr, STATE | mask),
            Ok(Transition::Sqd { notify })
        );
    }
}

#[test]
fn bits_and_states_that_do_not_exist() {
    assert_eq!(known(RATE_LIMIT as c_int), Err(Errno::NOTSUPP));
    assert_eq!(known((1 << 21) - 1), Ok((1 << 21) - 1));
    let attr = ibv_qp_attr { qp_state: 7, ..valid(Reset, InitState) };
    assert_eq!(Transition::of(Rc, Reset, &attr, STATE), Err(Errno::INVAL));
    let attr = ibv_qp_attr { path_mtu: 6, ..valid(InitState, RtrState) };
    assert_eq!(
        Transition::of(Uc, InitState, &attr, STATE | AV | PATH_MTU | DEST_QPN | RQ_PSN),
        Err(Errno::INVAL)
    );
}
