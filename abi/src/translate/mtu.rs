//! `enum ibv_mtu`.

use std::ffi::c_uint;

use roce_provider::transport::addr::Mtu;

use crate::{
    errno::{Errno, Result},
    layout::consts::*,
    rule::Rule,
};

pub(crate) const fn to_c(mtu: Mtu) -> c_uint {
    match mtu {
        Mtu::B256 => IBV_MTU_256,
        Mtu::B512 => IBV_MTU_512,
        Mtu::B1024 => IBV_MTU_1024,
        Mtu::B2048 => IBV_MTU_2048,
        Mtu::B4096 => IBV_MTU_4096,
    }
}

pub(crate) const fn from_c(number: c_uint) -> Result<Mtu> {
    match number {
        IBV_MTU_256 => Ok(Mtu::B256),
        IBV_MTU_512 => Ok(Mtu::B512),
        IBV_MTU_1024 => Ok(Mtu::B1024),
        IBV_MTU_2048 => Ok(Mtu::B2048),
        IBV_MTU_4096 => Ok(Mtu::B4096),
        _ => Err(Errno::of(Rule::PathMtu)),
    }
}
