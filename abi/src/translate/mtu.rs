//! `enum ibv_mtu`.

use roce_provider::transport::addr::Mtu;

use super::number::numbers;
use crate::layout::consts::*;

numbers! {
    from_c, to_c: Mtu {
        IBV_MTU_256 B256,
        IBV_MTU_512 B512,
        IBV_MTU_1024 B1024,
        IBV_MTU_2048 B2048,
        IBV_MTU_4096 B4096,
    }
    _ => PathMtu,
}
