use core::fmt;

/// Transport service, an opcode's upper three bits.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[repr(u8)]
pub enum Service {
    /// Reliable connection.
    Rc = 0,
    /// Unreliable connection.
    Uc = 1,
    /// Unreliable datagram.
    Ud = 3,
    /// Congestion notification.
    Cnp = 4,
    /// XRC (A14).
    Xrc = 5,
}

impl Service {
    const fn from_bits(bits: u8) -> Option<Self> {
        match bits {
            0 => Some(Self::Rc),
            1 => Some(Self::Uc),
            3 => Some(Self::Ud),
            4 => Some(Self::Cnp),
            5 => Some(Self::Xrc),
            _ => None,
        }
    }

    /// Name in opcodes.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Rc => "RC",
            Self::Uc => "UC",
            Self::Ud => "UD",
            Self::Cnp => "CNP",
            Self::Xrc => "XRC",
        }
    }
}

/// Position of a packet in its message.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum PacketPosition {
    /// First of several.
    First,
    /// Neither first nor last.
    Middle,
    /// Last of several.
    Last,
    /// The whole message.
    Only,
}

impl PacketPosition {
    /// True if a message starts here.
    #[must_use]
    pub const fn starts(self) -> bool {
        matches!(self, Self::First | Self::Only)
    }

    /// True if a message ends here.
    #[must_use]
    pub const fn ends(self) -> bool {
        matches!(self, Self::Last | Self::Only)
    }

    /// Position of a packet.
    #[must_use]
    pub const fn of(index: u32, count: u32) -> Self {
        match (index == 0, index + 1 >= count) {
            (true, true) => Self::Only,
            (true, false) => Self::First,
            (false, true) => Self::Last,
            (false, false) => Self::Middle,
        }
    }
}

/// Extended headers after BTH or XRCETH.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[allow(missing_docs, reason = "each is named after the headers it stands for")]
pub enum Extension {
    None,
    Imm,
    Ieth,
    Reth,
    RethImm,
    Aeth,
    AethAtomicAck,
    Atomic,
    FethReth,
    Deth,
    DethImm,
}

macro_rules! operations {
    ($($(#[doc = $doc:literal])* $code:literal $variant:ident $name:literal $position:ident $rc:tt $uc:tt $ud:tt $cnp:tt;)*) => {
        /// Operation, an opcode's lower five bits.
        #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
        #[repr(u8)]
        pub enum Operation {
            $(#[doc = concat!($name, ".\n")] $(#[doc = $doc])* $variant = $code,)*
        }

        impl Operation {
            /// Every operation, by code.
            pub const ALL: &'static [Self] = &[$(Self::$variant,)*];

            const fn from_bits(bits: u8) -> Option<Self> {
                match bits {
                    $($code => Some(Self::$variant),)*
                    _ => None,
                }
            }

            /// Name in the specification.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self { $(Self::$variant => $name,)* }
            }

            /// Position in a message.
            #[must_use]
            pub const fn position(self) -> PacketPosition {
                match self { $(Self::$variant => PacketPosition::$position,)* }
            }

            /// True for a response.
            #[must_use]
            pub const fn is_response(self) -> bool {
                (self as u8) >= Self::ReadResponseFirst as u8 && (self as u8) <= Self::AtomicAcknowledge as u8
            }

            pub(crate) const fn is_write(self) -> bool {
                (self as u8) >= Self::WriteFirst as u8 && (self as u8) <= Self::WriteOnlyImm as u8
            }

            const fn extension(self, service: Service) -> Option<Extension> {
                match (self, service) {
                    $(
                        (Self::$variant, Service::Rc | Service::Xrc) => operations!(@ext $rc),
                        (Self::$variant, Service::Uc) => operations!(@ext $uc),
                        (Self::$variant, Service::Ud) => operations!(@ext $ud),
                        (Self::$variant, Service::Cnp) => operations!(@ext $cnp),
                    )*
                }
            }
        }
    };
    (@ext -) => { None };
    (@ext $ext:ident) => { Some(Extension::$ext) };
}

// code, variant, name, position; headers after the BTH in RC (and XRC), UC, UD, CNP; "-": none
operations! {
    0x00 SendFirst "SEND First" First  None None - -;
    /// SEND Middle; unused in CNPs.
    0x01 SendMiddle "SEND Middle" Middle  None None - None;
    0x02 SendLast "SEND Last" Last  None None - -;
    0x03 SendLastImm "SEND Last with Immediate" Last  Imm Imm - -;
    0x04 SendOnly "SEND Only" Only  None None Deth -;
    0x05 SendOnlyImm "SEND Only with Immediate" Only  Imm Imm DethImm -;
    0x06 WriteFirst "RDMA WRITE First" First  Reth Reth - -;
    0x07 WriteMiddle "RDMA WRITE Middle" Middle  None None - -;
    0x08 WriteLast "RDMA WRITE Last" Last  None None - -;
    0x09 WriteLastImm "RDMA WRITE Last with Immediate" Last  Imm Imm - -;
    0x0A WriteOnly "RDMA WRITE Only" Only  Reth Reth - -;
    0x0B WriteOnlyImm "RDMA WRITE Only with Immediate" Only  RethImm RethImm - -;
    0x0C ReadRequest "RDMA READ Request" Only  Reth - - -;
    0x0D ReadResponseFirst "RDMA READ response First" First  Aeth - - -;
    0x0E ReadResponseMiddle "RDMA READ response Middle" Middle  None - - -;
    0x0F ReadResponseLast "RDMA READ response Last" Last  Aeth - - -;
    0x10 ReadResponseOnly "RDMA READ response Only" Only  Aeth - - -;
    0x11 Acknowledge "Acknowledge" Only  Aeth - - -;
    0x12 AtomicAcknowledge "ATOMIC Acknowledge" Only  AethAtomicAck - - -;
    /// Compare and swap.
    0x13 CmpSwap "CmpSwap" Only  Atomic - - -;
    /// Fetch and add.
    0x14 FetchAdd "FetchAdd" Only  Atomic - - -;
    0x16 SendLastInvalidate "SEND Last with Invalidate" Last  Ieth - - -;
    0x17 SendOnlyInvalidate "SEND Only with Invalidate" Only  Ieth - - -;
    /// FLUSH of remote memory.
    0x1C Flush "FLUSH" Only  FethReth - - -;
    /// ATOMIC WRITE of eight bytes.
    0x1D AtomicWrite "ATOMIC WRITE" Only  Reth - - -;
}

/// A service and its operation.
#[derive(Clone, Copy, PartialEq, Eq, Hash, derive_more::Debug)]
#[debug("{self}")]
pub struct Opcode {
    service: Service,
    operation: Operation,
    extension: Extension,
}

impl Opcode {
    /// The congestion notification packet, 0x81.
    pub const CNP: Self = Self {
        service: Service::Cnp,
        operation: Operation::SendMiddle,
        extension: Extension::None,
    };

    /// Opcode, if the service has the operation.
    #[must_use]
    pub const fn new(service: Service, operation: Operation) -> Option<Self> {
        match operation.extension(service) {
            Some(extension) => Some(Self { service, operation, extension }),
            None => None,
        }
    }

    #[must_use]
    pub(crate) const fn known(service: Service, operation: Operation) -> Self {
        match Self::new(service, operation) {
            Some(opcode) => opcode,
            None => unreachable!(), // callers choose operations by service
        }
    }

    /// Opcode, if supported.
    #[must_use]
    pub const fn from_wire(byte: u8) -> Option<Self> {
        match (Service::from_bits(byte >> 5), Operation::from_bits(byte & 0x1F)) {
            (Some(service), Some(operation)) => Self::new(service, operation),
            _ => None,
        }
    }

    /// Byte on the wire.
    #[must_use]
    pub const fn to_wire(self) -> u8 {
        (self.service as u8) << 5 | self.operation as u8
    }

    /// Transport service.
    #[must_use]
    pub const fn service(self) -> Service {
        self.service
    }

    /// The operation.
    #[must_use]
    pub const fn operation(self) -> Operation {
        self.operation
    }

    /// True for XRC requests.
    #[must_use]
    pub const fn has_xrceth(self) -> bool {
        matches!(self.service, Service::Xrc) && !self.operation.is_response()
    }

    /// Extended headers.
    #[must_use]
    pub const fn extension(self) -> Extension {
        self.extension
    }
}

impl fmt::Display for Opcode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.service {
            Service::Cnp => f.write_str("CNP"),
            service => write!(f, "{} {}", service.name(), self.operation.name()),
        }
    }
}

#[cfg(test)]
mod tests {
    use alloc::vec::Vec;

    use super::*;

    #[test]
    fn bytes_and_opcodes_are_one_to_one() {
        let known: Vec<u8> = (0..=255).filter(|&b| Opcode::from_wire(b).is_some()).collect();
        for &byte in &known {
            assert_eq!(Opcode::from_wire(byte).unwrap().to_wire(), byte);
        }
        let mut expected: Vec<u8> = (0x00..=0x14).chain([0x16, 0x17, 0x1C, 0x1D]).collect();
        expected.extend(0x20..=0x2B);
        expected.extend([0x64, 0x65, 0x81]);
        expected.extend((0xA0..=0xB4).chain([0xB6, 0xB7, 0xBC, 0xBD]));
        assert_eq!(known, expected);
        assert_eq!(Opcode::from_wire(0x81), Some(Opcode::CNP));
    }

    #[test]
    fn every_operation_exists_in_both_reliable_services() {
        for &operation in Operation::ALL {
            let [rc, xrc] =
                [Service::Rc, Service::Xrc].map(|service| Opcode::known(service, operation));
            assert_eq!((rc.operation(), rc.extension()), (xrc.operation(), xrc.extension()));
            assert!(!rc.has_xrceth());
        }
    }

    #[test]
    fn requests_of_xrc_name_a_shared_receive_queue() {
        let with: Vec<u8> =
            (0..=255).filter(|&b| Opcode::from_wire(b).is_some_and(Opcode::has_xrceth)).collect();
        assert_eq!(
            with,
            (0xA0..=0xAC).chain([0xB3, 0xB4, 0xB6, 0xB7, 0xBC, 0xBD]).collect::<Vec<_>>()
        );
    }

    #[test]
    fn places() {
        assert_eq!(PacketPosition::of(0, 1), PacketPosition::Only);
        assert_eq!(
            [0, 1, 2].map(|i| PacketPosition::of(i, 3)),
            [PacketPosition::First, PacketPosition::Middle, PacketPosition::Last]
        );
    }
}
