use core::fmt;

use super::{
    about::About,
    fields::{At, Bits, Field, layout, newtype},
    private_data::PrivateData,
};

layout! {
    /// Reject (12.6.7).
    Rej {
        /// Sender's ID, or 0.
        local_id: u32 = At(0);
        /// Receiver's ID.
        remote_id: u32 = At(4);
        /// Rejected message.
        about: About = Bits(8, 31, 30);
        /// Valid bytes of `info`.
        info_length: u8 = Bits(8, 23, 17);
        /// Reason.
        reason: RejectReason = At(10);
        /// Additional reject information (ARI).
        info: PrivateData<{ Rej::INFO }> = At(12);
        /// Private data.
        private_data: PrivateData<{ Rej::PRIVATE_DATA }> = At(84);
    }
}

newtype!(RejectReason);

impl Rej {
    /// In bytes.
    pub const INFO: usize = 72;
    /// In bytes.
    pub const PRIVATE_DATA: usize = 148;

    /// Rejection without ARI.
    #[must_use]
    pub fn new(local_id: u32, remote_id: u32, about: About, reason: RejectReason) -> Self {
        Self {
            local_id,
            remote_id,
            about,
            info_length: 0,
            reason,
            info: PrivateData::default(),
            private_data: PrivateData::default(),
        }
    }

    /// Adds ARI, at most [`INFO`](Self::INFO) bytes.
    #[must_use]
    pub fn with_info(mut self, info: &[u8]) -> Self {
        let used = info.len().min(Self::INFO);
        self.info_length = used as u8;
        self.info.0[..used].copy_from_slice(&info[..used]);
        self
    }

    /// GUID in a TIMEOUT rejection.
    #[must_use]
    pub fn requester_guid(&self) -> Option<u64> {
        let gives_up = self.reason == RejectReason::TIMEOUT && self.info_length >= 8;
        self.info.0.first_chunk().filter(|_| gives_up).map(|guid| u64::from_be_bytes(*guid))
    }
}

/// Rejection reason (12.6.7.2).
#[derive(Clone, Copy, PartialEq, Eq, Hash, derive_more::Debug)]
#[debug("{_0} ({self})")]
pub struct RejectReason(pub u16);

impl RejectReason {
    /// No response in time.
    pub const TIMEOUT: Self = Self(4);
    /// Unknown communication ID.
    pub const INVALID_COMM_ID: Self = Self(6);
    /// No listener.
    pub const INVALID_SERVICE_ID: Self = Self(8);
    /// Other transport service.
    pub const INVALID_TRANSPORT: Self = Self(9);
    /// Queue pair already connected.
    pub const STALE_CONNECTION: Self = Self(10);
    /// Address not local.
    pub const INVALID_GID: Self = Self(12);
    /// Path MTU above the port's.
    pub const INVALID_MTU: Self = Self(26);
    /// Rejected by the program.
    pub const CONSUMER: Self = Self(28);
    /// Unsupported vendor option.
    pub const VENDOR_OPTION: Self = Self(35);
}

impl fmt::Display for RejectReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.0 {
            1 => "no queue pair available",
            3 => "no resources available",
            4 => "timeout",
            5 => "unsupported request",
            6 => "invalid communication ID",
            7 => "invalid communication instance",
            8 => "invalid service ID",
            9 => "invalid transport service type",
            10 => "stale connection",
            12 => "primary remote GID rejected",
            13 => "primary remote LID rejected",
            14 => "invalid primary SL",
            15 => "invalid primary traffic class",
            16 => "invalid primary hop limit",
            17 => "invalid primary packet rate",
            24 => "port and CM redirection",
            25 => "port redirection",
            26 => "invalid path MTU",
            27 => "insufficient responder resources",
            28 => "consumer reject",
            29 => "RNR retry count reject",
            30 => "duplicate local communication ID",
            31 => "invalid class version",
            32 => "invalid primary flow label",
            35 => "vendor option not supported",
            code => return write!(f, "reason {code}"),
        })
    }
}
