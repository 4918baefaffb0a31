use roce_provider::{cm::IdState, transport::qp::QpType};

use super::id::Id;
use crate::prelude::*;

/// Flags of an accepted path: bidirectional, primary, for CM and data.
const WHOLE_PATH: u32 = IBV_PATH_FLAG_GMP | IBV_PATH_FLAG_PRIMARY | IBV_PATH_FLAG_BIDIRECTIONAL;

unsafe fn value<T: Copy>(value: *const c_void, length: usize) -> Result<T> {
    refuse_if(length != size_of::<T>(), Rule::Option)?;
    Ok(value.cast::<T>().read_unaligned())
}

unsafe fn check_paths(at: *const c_void, length: usize) -> Result<()> {
    const SIZE: usize = size_of::<ibv_path_data>();
    let paths = at.cast::<ibv_path_data>();
    let is_whole = |number| (&raw const (*paths.add(number)).flags).read_unaligned() == WHOLE_PATH;
    let is_valid = length.is_multiple_of(SIZE) && (0..length / SIZE).any(is_whole);
    refuse_if(!is_valid, Rule::Option)
}

calls!(
    fn rdma_set_option(
        id: *mut rdma_cm_id,
        level: c_int,
        option: c_int,
        at: *mut c_void,
        length: usize,
    ) -> c_int {
        let cm = Id::get(id)?.cm()?;
        // the kernel reads the value first
        refuse_if(at.is_null() && length != 0, Rule::Unmapped)?;
        match (level, option) {
            (RDMA_OPTION_ID, RDMA_OPTION_ID_TOS) => cm.set_tos(value(at, length)?),
            (RDMA_OPTION_ID, RDMA_OPTION_ID_REUSEADDR) => {
                cm.set_reuse_addr(value::<c_int>(at, length)? != 0)?;
            }
            (RDMA_OPTION_ID, RDMA_OPTION_ID_AFONLY) => {
                cm.set_afonly(value::<c_int>(at, length)? != 0)?;
            }
            (RDMA_OPTION_ID, RDMA_OPTION_ID_ACK_TIMEOUT) => {
                let code = value(at, length)?;
                let has_requester = matches!(cm.qp_type(), QpType::Rc | QpType::XrcInitiator);
                refuse_if(!has_requester, Rule::Option)?;
                cm.set_ack_timeout(code)?;
            }
            // There is only one path, resolved here.
            (RDMA_OPTION_IB, RDMA_OPTION_IB_PATH) => {
                check_paths(at, length)?;
                refuse_if(cm.state() != IdState::AddrResolved, Rule::Option)?;
                cm.resolve_route(std::time::Duration::ZERO)?;
            }
            _ => return Err(Errno::of(Rule::OptionUnknown)),
        }
        Ok(())
    }
);

#[cfg(test)]
#[allow(
    clippy::undocumented_unsafe_blocks,
    reason = "tests call as C programs do, and keep the same contract"
)]
mod tests {
    use std::ptr::{null, null_mut};

    use super::*;
    use crate::{
        cm::{id, lifecycle, resolve},
        tests::errno,
    };

    struct Created(*mut rdma_cm_id);

    impl Created {
        fn new(port_space: c_int) -> Self {
            let port_space = id::port_space(port_space as _).unwrap();
            Self(unsafe { lifecycle::create(null_mut(), null_mut(), port_space, None) }.unwrap())
        }

        fn set<T>(&self, level: c_int, option: c_int, value: *const T, length: usize) -> c_int {
            match unsafe { rdma_set_option(self.0, level, option, value.cast_mut().cast(), length) }
            {
                0 => 0,
                _ => errno(),
            }
        }
    }

    impl Drop for Created {
        fn drop(&mut self) {
            unsafe { lifecycle::destroy(self.0) }.unwrap();
        }
    }

    #[test]
    fn each_option_has_its_length_and_others_are_unknown() {
        let id = Created::new(RDMA_PS_TCP);
        let value = [1u8; 16];
        for (option, size) in [
            (RDMA_OPTION_ID_TOS, 1),
            (RDMA_OPTION_ID_REUSEADDR, 4),
            (RDMA_OPTION_ID_AFONLY, 4),
            (RDMA_OPTION_ID_ACK_TIMEOUT, 1),
        ] {
            for length in 0..9 {
                let expected = if length == size { 0 } else { libc::EINVAL };
                let got = id.set(RDMA_OPTION_ID, option, &raw const value, length);
                assert_eq!(got, expected, "option {option}, {length} bytes");
            }
            assert_eq!(id.set(RDMA_OPTION_ID, option, null::<u8>(), size), libc::EFAULT);
        }
        for (level, option) in [(RDMA_OPTION_ID, 77), (RDMA_OPTION_IB, 77), (77, 1)] {
            assert_eq!(
                id.set(level, option, &raw const value, 4),
                libc::ENOSYS,
                "{level} {option}"
            );
            assert_eq!(id.set(level, option, null::<u8>(), 0), libc::ENOSYS, "{level} {option}");
            assert_eq!(id.set(level, option, null::<u8>(), 1), libc::EFAULT, "{level} {option}");
        }
    }

    #[test]
    fn datagrams_have_no_acknowledge_timeout() {
        let (id, code) = (Created::new(RDMA_PS_UDP), 14u8);
        let set =
            |length| id.set(RDMA_OPTION_ID, RDMA_OPTION_ID_ACK_TIMEOUT, &raw const code, length);
        assert_eq!((set(1), set(0)), (libc::EINVAL, libc::EINVAL));
    }

    #[test]
    fn a_path_is_for_an_id_whose_address_is_resolved() {
        const SIZE: usize = size_of::<ibv_path_data>();
        let id = Created::new(RDMA_PS_TCP);
        let mut paths = [const { unsafe { std::mem::zeroed::<ibv_path_data>() } }; 2];
        let set = |paths: &[ibv_path_data; 2], length| {
            id.set(RDMA_OPTION_IB, RDMA_OPTION_IB_PATH, paths.as_ptr(), length)
        };
        paths[1].flags = WHOLE_PATH;
        assert_eq!(set(&paths, 2 * SIZE), libc::EINVAL, "before there is a device");

        let mut address: libc::sockaddr_in = unsafe { std::mem::zeroed() };
        address.sin_family = libc::AF_INET as _;
        address.sin_port = 7471u16.to_be();
        address.sin_addr.s_addr = u32::from_be_bytes([127, 0, 0, 1]).to_be();
        let to = (&raw mut address).cast::<libc::sockaddr>();
        // blocks without a channel
        assert_eq!(unsafe { resolve::rdma_resolve_addr(id.0, null_mut(), to, 2000) }, 0);
        for length in [0, 1, SIZE - 1, SIZE, SIZE + 1, 2 * SIZE - 1] {
            assert_eq!(set(&paths, length), libc::EINVAL, "{length} bytes, no whole path");
        }
        for flags in [0, IBV_PATH_FLAG_PRIMARY, WHOLE_PATH & !IBV_PATH_FLAG_GMP, WHOLE_PATH | 4] {
            paths[1].flags = flags;
            assert_eq!(set(&paths, 2 * SIZE), libc::EINVAL, "flags {flags:#x}");
        }
        paths[1].flags = WHOLE_PATH;
        assert_eq!(set(&paths, 2 * SIZE), 0, "{}", errno());
        assert_eq!(set(&paths, 2 * SIZE), libc::EINVAL, "there is a route");
    }
}
