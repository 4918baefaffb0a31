use pnet_datalink::MacAddr;
use thiserror::Error;

use super::{
    fields::{self, Fields},
    filter::{EthFilter, Ipv4Filter, Ipv6Filter, PortFilter},
};

/// The kernel's limit.
const SPECS: usize = 10;
/// 20 bits
pub(super) const FLOW_LABEL: u32 = 0xF_FFFF;

/// `ibv_flow_attr_type`.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum FlowKind {
    /// Frames that match the specs (`IBV_FLOW_ATTR_NORMAL`).
    #[default]
    Normal,
    /// Every frame that no other flow takes (`IBV_FLOW_ATTR_ALL_DEFAULT`): the interface is
    /// promiscuous.
    AllDefault,
    /// Every multicast frame without a [`Normal`](Self::Normal) flow (`IBV_FLOW_ATTR_MC_DEFAULT`).
    McDefault,
    /// A copy of every arriving frame (`IBV_FLOW_ATTR_SNIFFER`), including the transport's.
    Sniffer,
}

/// A match or action (`ibv_flow_spec`). Only a value's masked bits count. A frame without the
/// spec's header does not match.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[allow(missing_docs, reason = "the enum's comment describes its fields")]
pub enum FlowSpec {
    /// Ethernet (`IBV_FLOW_SPEC_ETH`).
    Eth { value: EthFilter, mask: EthFilter },
    /// IPv4 (`IBV_FLOW_SPEC_IPV4`, `IBV_FLOW_SPEC_IPV4_EXT`).
    Ipv4 { value: Ipv4Filter, mask: Ipv4Filter },
    /// IPv6 (`IBV_FLOW_SPEC_IPV6`).
    Ipv6 { value: Ipv6Filter, mask: Ipv6Filter },
    /// TCP (`IBV_FLOW_SPEC_TCP`).
    Tcp { value: PortFilter, mask: PortFilter },
    /// UDP (`IBV_FLOW_SPEC_UDP`).
    Udp { value: PortFilter, mask: PortFilter },
    /// Tag of completions (`IBV_FLOW_SPEC_ACTION_TAG`).
    Tag(u32),
    /// Frames are dropped and counted (`IBV_FLOW_SPEC_ACTION_DROP`).
    Drop,
}

impl FlowSpec {
    pub(super) fn matches(&self, frame: &Fields) -> bool {
        match self {
            Self::Eth { value, mask } => frame.has_eth(value, mask),
            Self::Ipv4 { value, mask } => frame.has_ipv4(value, mask),
            Self::Ipv6 { value, mask } => frame.has_ipv6(value, mask),
            Self::Tcp { value, mask } => frame.has_ports(fields::TCP, value, mask),
            Self::Udp { value, mask } => frame.has_ports(fields::UDP, value, mask),
            Self::Tag(_) | Self::Drop => true,
        }
    }
}

/// A flow (`ibv_flow_attr`).
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct FlowAttr {
    /// Kind.
    pub kind: FlowKind,
    /// The matching flow with the least number takes a frame, the oldest first. Flows of equal
    /// priority and specs each get a copy.
    pub priority: u16,
    /// Conditions, at most ten, of normal flows only. Empty: every frame to the device's MAC
    /// address, to everybody or to a group.
    pub specs: Vec<FlowSpec>,
    /// Lower-priority flows get a copy (`IBV_FLOW_ATTR_FLAGS_DONT_TRAP`).
    pub dont_trap: bool,
}

/// Invalid flow (`EINVAL`).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Error)]
#[non_exhaustive]
pub enum FlowSpecError {
    /// Too many specs.
    #[error("too many specs in a flow; at most {SPECS}")]
    TooMany,
    /// Specs on a default or sniffer flow.
    #[error("only a normal flow has specs; remove them")]
    OnlyNormal,
    /// No frame matches all specs.
    #[error("no frame matches: {0}")]
    Impossible(&'static str),
    /// `dont_trap` on a default flow.
    #[error(
        "IBV_FLOW_ATTR_FLAGS_DONT_TRAP is invalid for a default flow: no flow has a lower priority"
    )]
    DefaultThatPasses,
    /// `dont_trap` with a drop action.
    #[error("IBV_FLOW_ATTR_FLAGS_DONT_TRAP is invalid with a drop action")]
    DropThatPasses,
    /// Mask bits beyond the field.
    #[error("the mask is wider than its field; clear its upper bits")]
    Mask,
}

impl FlowAttr {
    /// Checks validity.
    pub fn check(&self) -> Result<(), FlowSpecError> {
        use FlowSpec as Spec;
        let has = |of: fn(&Spec) -> bool| self.specs.iter().any(of);
        let v4 = has(|spec| matches!(spec, Spec::Ipv4 { .. }));
        let v6 = has(|spec| matches!(spec, Spec::Ipv6 { .. }));
        let tcp = has(|spec| matches!(spec, Spec::Tcp { .. }));
        let udp = has(|spec| matches!(spec, Spec::Udp { .. }));
        let is_default = matches!(self.kind, FlowKind::AllDefault | FlowKind::McDefault);
        let faults = [
            (self.specs.len() > SPECS, FlowSpecError::TooMany),
            (self.kind != FlowKind::Normal && !self.specs.is_empty(), FlowSpecError::OnlyNormal),
            (self.dont_trap && is_default, FlowSpecError::DefaultThatPasses),
            (self.dont_trap && self.specs.contains(&Spec::Drop), FlowSpecError::DropThatPasses),
            (v4 && v6, FlowSpecError::Impossible("it would be both IPv4 and IPv6")),
            (tcp && udp, FlowSpecError::Impossible("it would be both TCP and UDP")),
        ];
        if let Some((_, fault)) = faults.into_iter().find(|(is_one, _)| *is_one) {
            return Err(fault);
        }
        for spec in &self.specs {
            match spec {
                Spec::Eth { value, mask } if mask.ether_type == u16::MAX => {
                    let of_other = match value.ether_type {
                        fields::IPV4 => v6,
                        fields::IPV6 => v4,
                        _ => v4 || v6 || tcp || udp,
                    };
                    if of_other {
                        let what = "its ether_type is not that of its other specs";
                        return Err(FlowSpecError::Impossible(what));
                    }
                }
                Spec::Ipv6 { mask, .. } if mask.flow_label & !FLOW_LABEL != 0 => {
                    return Err(FlowSpecError::Mask);
                }
                _ => {}
            }
        }
        Ok(())
    }

    fn dst(&self) -> Option<([u8; 6], [u8; 6])> {
        self.specs.iter().find_map(|spec| match spec {
            FlowSpec::Eth { value, mask } if mask.dst != [0; 6] => Some((value.dst, mask.dst)),
            _ => None,
        })
    }

    /// Frames that the interface of device `own` must accept for this flow.
    pub fn membership(&self, own: MacAddr) -> Option<Membership> {
        match self.kind {
            FlowKind::AllDefault | FlowKind::Sniffer => Some(Membership::Everything),
            FlowKind::McDefault => Some(Membership::Groups),
            FlowKind::Normal => match self.dst()? {
                (dst, mask) if mask == [255; 6] => {
                    let dst = MacAddr::from(dst);
                    let comes = dst == own || dst == MacAddr::broadcast();
                    (!comes).then_some(Membership::Address(dst))
                }
                (_, [1, 0, 0, 0, 0, 0]) => Some(Membership::Groups),
                _ => Some(Membership::Everything),
            },
        }
    }

    pub(super) fn tag(&self) -> u32 {
        let tag = |spec: &FlowSpec| if let FlowSpec::Tag(tag) = spec { Some(*tag) } else { None };
        self.specs.iter().find_map(tag).unwrap_or(0)
    }

    /// True if both match the same frames.
    pub(super) fn is_like(&self, other: &Self) -> bool {
        fn which(attr: &FlowAttr) -> impl Iterator<Item = &FlowSpec> {
            attr.specs.iter().filter(|spec| !matches!(spec, FlowSpec::Tag(_) | FlowSpec::Drop))
        }
        self.priority == other.priority && which(self).eq(which(other))
    }

    /// A frame from the wire must have the device's address unless the flow names another. Frames
    /// of the device's own queue pairs have passed no interface.
    pub(super) fn matches(&self, frame: &Fields, own: MacAddr, is_from_wire: bool) -> bool {
        match self.kind {
            FlowKind::AllDefault | FlowKind::Sniffer => true,
            FlowKind::McDefault => frame.is_to_group(),
            FlowKind::Normal => {
                let named = self.dst().is_some();
                (named || !is_from_wire || frame.is_to_group() || frame.dst() == own.octets())
                    && self.specs.iter().all(|spec| spec.matches(frame))
            }
        }
    }
}

/// Frames that an interface accepts besides those to its MAC address and to everybody.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Membership {
    /// Address of a host or group.
    Address(MacAddr),
    /// Any group.
    Groups,
    /// Promiscuous mode.
    Everything,
}
