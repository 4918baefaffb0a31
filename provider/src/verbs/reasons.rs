use roce_transport::reasons;

use super::{
    address::AhFromWcError, device_memory::DeviceMemoryError, flow::FlowError, memory::RegionError,
    queue_pair::AttachError,
};
use crate::region::Unreachable;

reasons! {
    Unreachable {
        Self { .. } => EFAULT "memory_unreachable"
            "addr and length of ibv_reg_mr must be mapped memory, writable for \
             IBV_ACCESS_LOCAL_WRITE; a constant or a file mapped read-only is not writable";
    }
}

reasons! {
    RegionError {
        Self::Memory(_) => ENOMEM "no_memory" "free memory of the process or host";
    }
    of {
        Self::Unreachable(error) => error;
        Self::Register(error) => error;
    }
}

reasons! {
    DeviceMemoryError {
        Self::Missing => EOPNOTSUPP "no_such_objects"
            "the device has none (max_dm_size 0 in ibv_query_device_ex): the program needs a \
             fallback";
        Self::Size { length: 0, .. } => EINVAL "no_bytes" "ask for one byte at least";
        Self::Size { .. } => ENOMEM "device_memory_used_up"
            "max_dm_size of ibv_query_device_ex is the total; ibv_free_dm frees some";
        Self::Range(_) => EINVAL "out_of_bounds"
            "offset and length must be inside the allocation";
        Self::OtherDevice => EINVAL "other_device" "take the domain and the device memory from \
                                                    one context";
        Self::Memory(_) => ENOMEM "no_memory" "free memory of the process or host";
    }
    of {
        Self::Region(error) => error;
    }
}

reasons! {
    AhFromWcError {
        Self::NotDatagram => EINVAL "not_a_datagram"
            "pass a successful receive completion with IBV_WC_GRH";
        Self::NoHeader => EINVAL "no_grh"
            "grh is the first 40 bytes of the receive buffer: read them before other data \
             overwrites them";
        Self::NoAddress => EINVAL "no_address" "the interface has lost the address";
    }
    of {
        Self::Object(error) => error;
    }
}

reasons! {
    AttachError {
        Self::Join { .. } => "cannot_join"
            "the interface must be up and carry multicast (`ip link`); \
             `net.ipv4.igmp_max_memberships` limits the groups of a socket";
    }
    of {
        Self::Adapter(error) => error;
    }
}

reasons! {
    FlowError {
        Self::Spec(_) => EINVAL "flow_spec"
            "use one family, one transport, at most ten specs; specs only with \
             IBV_FLOW_ATTR_NORMAL";
        Self::WrongService(_) => EINVAL "wrong_service"
            "make the flow on a queue pair of type IBV_QPT_RAW_PACKET";
        Self::NoFrames => EOPNOTSUPP "no_raw_packets"
            "raw packets need a raw device: -d raw:INTERFACE, or ROCE_DEVICES=raw:INTERFACE";
        Self::TooMany(_) => ENOMEM "too_many_flows"
            "destroy unused flows: ibv_destroy_flow";
        Self::Interface(_) => "interface_refuses"
            "promiscuous mode and more addresses need CAP_NET_RAW and an existing interface";
    }
}
