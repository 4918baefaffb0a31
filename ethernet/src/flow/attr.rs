//! Flows: which frames they are about, and whether there can be such frames.

use pnet_datalink::MacAddr;
use thiserror::Error;

use super::{
    fields::{self, Fields},
    filter::{EthFilter, Ipv4Filter, Ipv6Filter, PortFilter},
};

/// The most specs of a flow, as in the kernel.
const SPECS: usize = 10;
/// A flow label has 20 bits.
pub(super) const FLOW_LABEL: u32 = 0xF_FFFF;

/// Kind of a flow (`ibv_flow_attr_type`).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum FlowKind {
    /// Frames that match its specs (`IBV_FLOW_ATTR_NORMAL`).
    #[default]
    Normal,
    /// Every frame that no other flow takes (`IBV_FLOW_ATTR_ALL_DEFAULT`), whatever its address:
    /// the interface receives everything meanwhile.
    AllDefault,
    /// Every frame to a group that no [`Normal`](Self::Normal) flow takes
    /// (`IBV_FLOW_ATTR_MC_DEFAULT`).
    McDefault,
    /// A copy of every frame that arrives (`IBV_FLOW_ATTR_SNIFFER`), whatever its address, and of
    /// those that the transport takes, too.
    Sniffer,
}

/// What frames of a flow have, or what becomes of them (`ibv_flow_spec`): of a value the bits count
/// that its mask has. A frame without the header that a spec is about does not match.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum FlowSpec {
    /// Ethernet (`IBV_FLOW_SPEC_ETH`).
    Eth {
        /// The value.
        value: EthFilter,
        /// Its bits that count.
        mask: EthFilter,
    },
    /// IPv4 (`IBV_FLOW_SPEC_IPV4`, `IBV_FLOW_SPEC_IPV4_EXT`).
    Ipv4 {
        /// The value.
        value: Ipv4Filter,
        /// Its bits that count.
        mask: Ipv4Filter,
    },
    /// IPv6 (`IBV_FLOW_SPEC_IPV6`).
    Ipv6 {
        /// The value.
        value: Ipv6Filter,
        /// Its bits that count.
        mask: Ipv6Filter,
    },
    /// TCP (`IBV_FLOW_SPEC_TCP`).
    Tcp {
        /// The value.
        value: PortFilter,
        /// Its bits that count.
        mask: PortFilter,
    },
    /// UDP (`IBV_FLOW_SPEC_UDP`).
    Udp {
        /// The value.
        value: PortFilter,
        /// Its bits that count.
        mask: PortFilter,
    },
    /// Completions of these frames have this tag (`IBV_FLOW_SPEC_ACTION_TAG`).
    Tag(u32),
    /// These frames are dropped, and counted (`IBV_FLOW_SPEC_ACTION_DROP`).
    Drop,
}

impl FlowSpec {
    /// True if it says what becomes of a frame, and not which one it is.
    const fn is_action(&self) -> bool {
        matches!(self, Self::Tag(_) | Self::Drop)
    }

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

/// A flow (`ibv_flow_attr`): which frames a queue pair of raw packets receives.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct FlowAttr {
    /// Its kind.
    pub kind: FlowKind,
    /// Of several flows that a frame matches, the one with the least number takes it, and of those
    /// the oldest. Flows with the same priority and the same specs each get a copy.
    pub priority: u16,
    /// What its frames have, all of it; at most ten. None: every frame to the device's MAC address,
    /// to everybody or to a group. Flows of other kinds have none.
    pub specs: Vec<FlowSpec>,
    /// Flows of lower priority get a copy, too (`IBV_FLOW_ATTR_FLAGS_DONT_TRAP`).
    pub dont_trap: bool,
}

/// Reason why there can be no such flow (`EINVAL`).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Error)]
#[non_exhaustive]
pub enum FlowSpecError {
    /// More specs than the kernel takes.
    #[error("a flow has no more than {SPECS} specs")]
    TooMany,
    /// A flow other than a normal one, with specs.
    #[error("only a normal flow has specs")]
    OnlyNormal,
    /// No frame has all that is asked for.
    #[error("no frame matches: {0}")]
    Impossible(&'static str),
    /// A flow that gets what others leave, and leaves it.
    #[error("a default flow has no lower ones that could get a copy")]
    DefaultThatPasses,
    /// A flow that drops frames and leaves them to others.
    #[error("what a flow drops no other gets")]
    DropThatPasses,
    /// Bits of a mask that the field does not have.
    #[error("the mask has bits that the field does not have")]
    Mask,
}

impl FlowAttr {
    /// Checks that there can be such a flow.
    ///
    /// # Errors
    /// See [`FlowSpecError`].
    pub fn check(&self) -> Result<(), FlowSpecError> {
        use FlowSpec as Spec;
        if self.specs.len() > SPECS {
            return Err(FlowSpecError::TooMany);
        }
        if self.kind != FlowKind::Normal && !self.specs.is_empty() {
            return Err(FlowSpecError::OnlyNormal);
        }
        if self.dont_trap && matches!(self.kind, FlowKind::AllDefault | FlowKind::McDefault) {
            return Err(FlowSpecError::DefaultThatPasses);
        }
        if self.dont_trap && self.specs.contains(&FlowSpec::Drop) {
            return Err(FlowSpecError::DropThatPasses);
        }
        let has = |of: fn(&Spec) -> bool| self.specs.iter().any(of);
        let v4 = has(|spec| matches!(spec, Spec::Ipv4 { .. }));
        let v6 = has(|spec| matches!(spec, Spec::Ipv6 { .. }));
        let tcp = has(|spec| matches!(spec, Spec::Tcp { .. }));
        let udp = has(|spec| matches!(spec, Spec::Udp { .. }));
        if v4 && v6 {
            return Err(FlowSpecError::Impossible("it would be both IPv4 and IPv6"));
        }
        if tcp && udp {
            return Err(FlowSpecError::Impossible("it would be both TCP and UDP"));
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

    /// Receivers' MAC address that its specs name, if they do: with how many bits.
    fn dst(&self) -> Option<([u8; 6], [u8; 6])> {
        self.specs.iter().find_map(|spec| match spec {
            FlowSpec::Eth { value, mask } if mask.dst != [0; 6] => Some((value.dst, mask.dst)),
            _ => None,
        })
    }

    /// Frames that the interface of a device with this MAC address is asked to take for this flow.
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

    /// The tag of its frames' completions.
    pub(super) fn tag(&self) -> u32 {
        let tag = |spec: &FlowSpec| if let FlowSpec::Tag(tag) = spec { Some(*tag) } else { None };
        self.specs.iter().find_map(tag).unwrap_or(0)
    }

    /// True if frames of one are frames of the other.
    pub(super) fn is_like(&self, other: &Self) -> bool {
        fn which(attr: &FlowAttr) -> impl Iterator<Item = &FlowSpec> {
            attr.specs.iter().filter(|spec| !spec.is_action())
        }
        self.priority == other.priority && which(self).eq(which(other))
    }

    /// True if a frame is of this flow. A frame from the wire must have the device's address,
    /// unless the flow names another. Frames of the device's own queue pairs have passed no
    /// interface.
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

/// Frames that an interface takes besides those to its own MAC address and to everybody, for as
/// long as somebody asks for it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Membership {
    /// Those to this address, of a host or of a group.
    Address(MacAddr),
    /// Those to any group.
    Groups,
    /// All (promiscuous mode).
    Everything,
}
