//! Every edge of every service, against a table for C programs.

use roce_provider::transport::{addr::Mtu, qp::EDGES};

use super::*;
use crate::{layout::ibv_ah_attr, translate::qp};

use QpType::{RawPacket, Rc, Uc, Ud, XrcInitiator, XrcTarget};
use State::{Err as Error, Init as InitState, Reset, Rtr as RtrState, Rts as RtsState, Sqd, Sqe};

const TYPES: [QpType; 6] = [Rc, Uc, Ud, XrcInitiator, XrcTarget, RawPacket];
const LAST: u32 = 20;

/// Required and optional attributes of an edge, from the kernel's table; `None`: no edge.
fn table(qp_type: QpType, from: State, to: State) -> Option<(u32, u32)> {
    if qp_type == RawPacket {
        let exists = match (from, to) {
            (Reset, Error) => false,
            (Reset, InitState) => return Some((IBV_QP_PORT, 0)),
            (_, Reset | Error) => true,
            edge => EDGES.contains(&edge),
        };
        return exists.then_some((0, 0));
    }
    let connected = |rc: u32, uc: u32, ud: u32, initiator: u32, target: u32| match qp_type {
        Rc => rc,
        Uc => uc,
        Ud => ud,
        XrcInitiator => initiator,
        XrcTarget => target,
        RawPacket => 0,
    };
    let paths = IBV_QP_ALT_PATH | IBV_QP_PATH_MIG_STATE;
    Some(match (from, to) {
        (_, Reset) => (0, 0),
        (Reset, Error) => return None,
        (_, Error) => (0, 0),
        (Reset, InitState) => {
            let (key, rights) = (
                IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY,
                IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS,
            );
            (connected(rights, rights, key, rights, rights), 0)
        }
        (InitState, InitState) => {
            let (key, rights) = (
                IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY,
                IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS,
            );
            (0, connected(rights, rights, key, rights, rights))
        }
        (InitState, RtrState) => {
            let path = IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN;
            let responds = path | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
            let (key, rights) = (
                IBV_QP_PKEY_INDEX | IBV_QP_QKEY,
                IBV_QP_PKEY_INDEX | IBV_QP_ACCESS_FLAGS | IBV_QP_ALT_PATH,
            );
            (
                connected(responds, path, 0, path, responds),
                connected(rights, rights, key, rights, rights),
            )
        }
        (RtrState | RtsState | Sqd, RtsState) => {
            let asks = IBV_QP_TIMEOUT
                | IBV_QP_RETRY_CNT
                | IBV_QP_RNR_RETRY
                | IBV_QP_SQ_PSN
                | IBV_QP_MAX_QP_RD_ATOMIC;
            let needed =
                connected(asks, IBV_QP_SQ_PSN, IBV_QP_SQ_PSN, asks, IBV_QP_TIMEOUT | IBV_QP_SQ_PSN);
            let all = IBV_QP_CUR_STATE | IBV_QP_ACCESS_FLAGS | paths;
            let may = connected(
                all | IBV_QP_MIN_RNR_TIMER,
                all,
                IBV_QP_CUR_STATE | IBV_QP_QKEY,
                all,
                all | IBV_QP_MIN_RNR_TIMER,
            );
            (if from == RtrState { needed } else { 0 }, may)
        }
        (Sqe, RtsState) if qp_type == Uc => (0, IBV_QP_CUR_STATE | IBV_QP_ACCESS_FLAGS),
        (Sqe, RtsState) if qp_type == Ud => (0, IBV_QP_CUR_STATE | IBV_QP_QKEY),
        (RtsState, Sqd) => (0, IBV_QP_EN_SQD_ASYNC_NOTIFY),
        (Sqd, Sqd) => {
            let all = IBV_QP_AV | IBV_QP_ACCESS_FLAGS | IBV_QP_PKEY_INDEX | paths;
            let asks = all
                | IBV_QP_PORT
                | IBV_QP_TIMEOUT
                | IBV_QP_RETRY_CNT
                | IBV_QP_RNR_RETRY
                | IBV_QP_MAX_QP_RD_ATOMIC;
            let responds = all
                | IBV_QP_PORT
                | IBV_QP_TIMEOUT
                | IBV_QP_MAX_DEST_RD_ATOMIC
                | IBV_QP_MIN_RNR_TIMER;
            (0, connected(asks | responds, all, IBV_QP_PKEY_INDEX | IBV_QP_QKEY, asks, responds))
        }
        _ => return None,
    })
}

/// Ignored attributes.
fn ends_do_not_have(qp_type: QpType) -> u32 {
    match qp_type {
        XrcInitiator => IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER,
        XrcTarget => IBV_QP_MAX_QP_RD_ATOMIC | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY,
        Rc | Uc | Ud | RawPacket => 0,
    }
}

/// Attributes valid for any edge.
fn valid(from: State, to: State) -> ibv_qp_attr {
    let av = ibv_ah_attr { is_global: 1, port_num: 1, ..ibv_ah_attr::zeroed() };
    ibv_qp_attr {
        qp_state: qp::state_to_c(to),
        cur_qp_state: qp::state_to_c(from),
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
            assert_eq!(of(IBV_QP_STATE), Err(Errno::plain(libc::EINVAL)), "{what}");
            continue;
        };
        assert!(of(IBV_QP_STATE | required).is_ok(), "{what}");
        assert!(of(IBV_QP_STATE | required | optional).is_ok(), "{what}");
        for bit in (1..=LAST).map(|bit| 1 << bit) {
            if required & bit != 0 {
                assert_eq!(
                    of(IBV_QP_STATE | required & !bit),
                    Err(Errno::plain(libc::EINVAL)),
                    "{what} without {bit:#x}"
                );
            } else if optional & bit != 0 || ends_do_not_have(qp_type) & bit != 0 {
                assert!(of(IBV_QP_STATE | required | bit).is_ok(), "{what} with {bit:#x}");
            } else {
                assert_eq!(
                    of(IBV_QP_STATE | required | bit),
                    Err(Errno::plain(libc::EINVAL)),
                    "{what} with {bit:#x}"
                );
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
            RtrState | Sqe => Err(Errno::plain(libc::EINVAL)),
        };
        assert_eq!(of(0), expected, "{qp_type} in {from}");
    }
    let attr = ibv_qp_attr { qp_access_flags: 6, ..valid(InitState, InitState) };
    let access = Some(rights::from_c(6).unwrap());
    let changed = Transition::Change(QpUpdate { access, ..QpUpdate::NONE });
    assert_eq!(Transition::of(Rc, InitState, &attr, IBV_QP_ACCESS_FLAGS), Ok(changed));
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
    let mask = IBV_QP_STATE
        | IBV_QP_AV
        | IBV_QP_PATH_MTU
        | IBV_QP_DEST_QPN
        | IBV_QP_RQ_PSN
        | IBV_QP_MAX_DEST_RD_ATOMIC
        | IBV_QP_MIN_RNR_TIMER;
    let rtr = Rtr::Rc(
        PeerAttr {
            dest_qpn: Qpn::new(0x123),
            path_mtu: Mtu::B4096,
            rq_psn: Psn::new(0x456),
            av: address::from_c(&attr.ah_attr).unwrap(),
        },
        ResponderAttr { max_dest_rd_atomic: 2, min_rnr_timer: 3 },
    );
    assert_eq!(
        Transition::of(Rc, InitState, &attr, mask),
        Ok(Transition::Rtr(rtr, QpUpdate::NONE))
    );
    let access = Some(rights::from_c(2).unwrap());
    let changes = QpUpdate { pkey_index: Some(7), access, ..QpUpdate::NONE };
    assert_eq!(
        Transition::of(Rc, InitState, &attr, mask | IBV_QP_PKEY_INDEX | IBV_QP_ACCESS_FLAGS),
        Ok(Transition::Rtr(rtr, changes))
    );

    let attr = ibv_qp_attr { qp_state: qp::state_to_c(RtsState), ..attr };
    let mask = IBV_QP_STATE
        | IBV_QP_TIMEOUT
        | IBV_QP_RETRY_CNT
        | IBV_QP_RNR_RETRY
        | IBV_QP_SQ_PSN
        | IBV_QP_MAX_QP_RD_ATOMIC;
    let rts = Rts::Rc(
        Psn::new(0x789),
        RequesterAttr { timeout: 4, retry_cnt: 5, rnr_retry: 6, max_rd_atomic: 1 },
    );
    assert_eq!(Transition::of(Rc, RtrState, &attr, mask), Ok(Transition::Rts(rts, QpUpdate::NONE)));
    // unneeded attributes change nothing
    assert_eq!(
        Transition::of(Ud, Sqe, &attr, IBV_QP_STATE),
        Ok(Transition::Rts(Rts::Resume, QpUpdate::NONE))
    );

    let attr = ibv_qp_attr { qp_state: qp::state_to_c(InitState), ..attr };
    let init = Init { pkey_index: 7, access: Default::default(), qkey: QKey(8) };
    assert_eq!(
        Transition::of(
            Ud,
            Reset,
            &attr,
            IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY
        ),
        Ok(Transition::Init(init))
    );
}

#[test]
fn there_is_one_port() {
    let mask = IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS;
    for port_num in [0, 2] {
        let attr = ibv_qp_attr { port_num, ..valid(Reset, InitState) };
        assert_eq!(Transition::of(Rc, Reset, &attr, mask), Err(Errno::plain(libc::EINVAL)));
    }
    let mask = IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN;
    for (port_num, is_global) in [(2, 1), (1, 0)] {
        let ah_attr = ibv_ah_attr { port_num, is_global, ..ibv_ah_attr::zeroed() };
        let attr = ibv_qp_attr { ah_attr, ..valid(InitState, RtrState) };
        assert_eq!(Transition::of(Uc, InitState, &attr, mask), Err(Errno::plain(libc::EINVAL)));
    }
}

#[test]
fn notification_of_a_drained_queue() {
    for (en_sqd_async_notify, mask, notify) in [
        (1, IBV_QP_EN_SQD_ASYNC_NOTIFY, true),
        (0, IBV_QP_EN_SQD_ASYNC_NOTIFY, false),
        (1, 0, false),
    ] {
        let attr = ibv_qp_attr { en_sqd_async_notify, ..valid(RtsState, Sqd) };
        assert_eq!(
            Transition::of(Rc, RtsState, &attr, IBV_QP_STATE | mask),
            Ok(Transition::Sqd { notify })
        );
    }
}

#[test]
fn bits_and_states_that_do_not_exist() {
    assert_eq!(known(IBV_QP_RATE_LIMIT as c_int), Err(Errno::plain(libc::EOPNOTSUPP)));
    assert_eq!(known((1 << 21) - 1), Ok((1 << 21) - 1));
    let attr = ibv_qp_attr { qp_state: 7, ..valid(Reset, InitState) };
    assert_eq!(Transition::of(Rc, Reset, &attr, IBV_QP_STATE), Err(Errno::plain(libc::EINVAL)));
    let attr = ibv_qp_attr { path_mtu: 6, ..valid(InitState, RtrState) };
    assert_eq!(
        Transition::of(
            Uc,
            InitState,
            &attr,
            IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN
        ),
        Err(Errno::plain(libc::EINVAL))
    );
}
