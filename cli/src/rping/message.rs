//! The stock tool's format.

use roce::{RKey, Remote};

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Info {
    pub(super) at: Remote,
    pub(super) size: u32,
}

impl Info {
    pub(super) const LEN: usize = 16;

    pub(super) fn encode(&self) -> [u8; Self::LEN] {
        let Self { at: Remote { address, rkey }, size } = *self;
        (u128::from(address) << 64 | u128::from(rkey.0) << 32 | u128::from(size)).to_be_bytes()
    }

    pub(super) fn decode(bytes: [u8; Self::LEN]) -> Self {
        let number = u128::from_be_bytes(bytes);
        let at = Remote { address: (number >> 64) as u64, rkey: RKey((number >> 32) as u32) };
        Self { at, size: number as u32 }
    }
}

/// A number, letters that start a letter later each time, a zero byte.
pub(super) fn ping_data(number: u32, size: usize) -> Vec<u8> {
    const LETTERS: u32 = (b'z' - b'A') as u32 + 1;
    let mut data = format!("rdma-ping-{number}: ").into_bytes();
    data.truncate(size);
    let head = data.len();
    data.extend(
        (head..size).map(|at| b'A' + ((number % LETTERS + (at - head) as u32) % LETTERS) as u8),
    );
    data[size - 1] = 0;
    data
}

pub(super) fn text(data: &[u8]) -> String {
    String::from_utf8_lossy(data.split(|&byte| byte == 0).next().unwrap_or_default()).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn info_is_what_the_stock_tool_sends() {
        let bytes = [0, 0, 0x55, 0xD0, 1, 2, 3, 4, 0, 0, 0x12, 0x34, 0, 0, 0, 100];
        let info = Info::decode(bytes);
        assert_eq!(
            info,
            Info { at: Remote { address: 0x55D0_0102_0304, rkey: RKey(0x1234) }, size: 100 }
        );
        assert_eq!(info.encode(), bytes);
    }

    #[test]
    fn ping_data_is_what_the_stock_tool_sends() {
        assert_eq!(text(&ping_data(0, 32)), "rdma-ping-0: ABCDEFGHIJKLMNOPQR");
        assert_eq!(text(&ping_data(57, 23)), "rdma-ping-57: zABCDEFG");
        assert_eq!(text(&ping_data(58, 23)), "rdma-ping-58: ABCDEFGH");
        assert_eq!(ping_data(u32::MAX, 23).len(), 23);
    }
}
