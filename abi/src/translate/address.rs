//! `ibv_ah_attr`.

use roce_provider::transport::addr::{AddressVector, Gid, StaticRate};

use crate::prelude::*;

/// `EINVAL` without a GID, or for a port other than 1.
pub(crate) fn from_c(attr: &ibv_ah_attr) -> Result<AddressVector> {
    refuse_if(attr.is_global == 0, Rule::NoGid)?;
    refuse_if(attr.port_num != 1, Rule::Port)?;
    let ibv_global_route { dgid, flow_label, sgid_index, hop_limit, traffic_class } = attr.grh;
    Ok(AddressVector {
        dgid: Gid(dgid.raw),
        sgid_index: sgid_index.into(),
        service_level: attr.sl,
        flow_label,
        traffic_class,
        hop_limit,
        static_rate: StaticRate::from_code(attr.static_rate).ok_or(Rule::StaticRate)?,
    })
}

pub(crate) const fn to_c(av: &AddressVector) -> ibv_ah_attr {
    let AddressVector {
        dgid,
        sgid_index,
        service_level,
        flow_label,
        traffic_class,
        hop_limit,
        static_rate,
    } = *av;
    ibv_ah_attr {
        grh: ibv_global_route {
            dgid: ibv_gid { raw: dgid.0 },
            flow_label,
            sgid_index: sgid_index as u8, // at most 256 entries
            hop_limit,
            traffic_class,
        },
        sl: service_level,
        static_rate: static_rate as u8,
        is_global: 1,
        port_num: 1,
        ..ibv_ah_attr::zeroed()
    }
}
