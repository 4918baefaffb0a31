//! Functions of the C interface: each begins with a `Call`, so that no thread is cancelled in it
//! and none forks meanwhile, but for those that are listed here.

use std::{collections::BTreeSet, fs, path::Path};

use syn::{Expr, Item, ItemFn, Pat, Stmt};

/// Functions that move data, or are called between two that do. They lock nothing but the engine,
/// and make no call at which a thread can be cancelled, but where the engine disables that.
const DATA: &str = "
    post_send post_recv post_srq_recv bind_mw poll_cq req_notify_cq memcpy_to_dm memcpy_from_dm
    start_poll next_poll end_poll checked_start_poll checked_next_poll
    read_opcode read_vendor_err read_byte_len read_imm_data read_qp_num read_src_qp read_wc_flags
    read_slid read_sl read_dlid_path_bits read_flow_tag read_completion_ts read_completion_wallclock_ns
    wr_start wr_complete wr_abort wr_send wr_send_imm wr_send_inv wr_rdma_write wr_rdma_write_imm
    wr_rdma_read wr_atomic_cmp_swp wr_atomic_fetch_add wr_atomic_write wr_flush wr_local_inv
    wr_bind_mw wr_set_ud_addr wr_set_xrc_srqn wr_set_sge wr_set_sge_list wr_set_inline_data
    wr_set_inline_data_list verdict
    faulted_poll_cq faulted_req_notify_cq faulted_post_send faulted_post_recv
    faulted_post_srq_recv faulted_create_cq_ex faulted_start_poll faulted_next_poll
    faulted_wr_complete
";

/// Functions that compute, or touch nothing but what they are given. `rdma_getaddrinfo` is not
/// cancelled, but a fork does not wait for it: the server of a name may never answer.
const OTHERS: &str = "
    at_exit at_load tell_all
    refuse make_nothing ignore ibv_read_ibdev_sysfs_file
    ibv_copy_ah_attr_from_kern ibv_copy_path_rec_from_kern ibv_copy_path_rec_to_kern
    ibv_copy_qp_attr_from_kern
    ibv_event_type_str ibv_node_type_str ibv_port_state_str ibv_wc_status_str rdma_event_str
    ibv_rate_to_mbps ibv_rate_to_mult mbps_to_ibv_rate mult_to_ibv_rate
    ibv_fork_init ibv_is_fork_initialized ibv_dofork_range ibv_dontfork_range
    ibv_free_device_list rdma_free_devices rdma_freeaddrinfo rdma_getaddrinfo
    ibv_get_device_name ibv_get_sysfs_path ibv_qp_to_qp_ex
    ibv_query_ece ibv_set_ece ibv_query_qp_data_in_order ibv_wr_opcode_str
    ibv_alloc_dmah ibv_dealloc_dmah ibv_dm_export_dmabuf_fd ibv_export_buf_dmabuf_fd
    ibv_resolve_eth_l2_from_gid modify_qp_rate_limit
    rdma_get_src_port rdma_get_dst_port rdma_get_remote_ece rdma_set_local_ece
";

#[test]
fn every_function_of_the_c_interface_is_a_call() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("provider/abi/src");
    let mut left: BTreeSet<&str> =
        DATA.split_whitespace().chain(OTHERS.split_whitespace()).collect();
    let (mut calls, mut faults) = (0, Vec::new());
    for function in functions(&folder) {
        let name = function.sig.ident.to_string();
        let begins = function.block.stmts.first().is_some_and(is_begin);
        if is_unwound(&function) {
            // it would be dropped when the thread is cancelled while it waits
            if function.block.stmts.iter().any(is_begin) {
                faults.push(format!("{name} waits, and is a call meanwhile"));
            }
        } else if begins {
            calls += 1;
        } else if !left.remove(name.as_str()) {
            faults.push(format!("{name} does not begin with a call"));
        }
    }
    faults.extend(left.iter().map(|name| format!("{name} is listed for nothing")));
    assert!(faults.is_empty(), "\n{}", faults.join("\n"));
    assert!(calls > 90, "only {calls} functions were found");
}

/// The functions with C's calling convention in a folder, without those of tests.
fn functions(folder: &Path) -> Vec<ItemFn> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(functions(&path));
        } else if path.file_name().is_some_and(|name| name != "tests.rs") {
            let file = syn::parse_file(&fs::read_to_string(&path).unwrap()).unwrap();
            found.extend(file.items.into_iter().filter_map(|item| match item {
                Item::Fn(function) if function.sig.abi.is_some() && !is_naked(&function) => {
                    Some(function)
                }
                _ => None,
            }));
        }
    }
    found
}

/// True of one in assembly, which calls another.
fn is_naked(function: &ItemFn) -> bool {
    let is_naked = |attribute: &syn::Attribute| {
        attribute.path().is_ident("unsafe")
            && attribute.parse_args::<syn::Ident>().is_ok_and(|inner| inner == "naked")
    };
    function.attrs.iter().any(is_naked)
}

fn is_unwound(function: &ItemFn) -> bool {
    let name = function.sig.abi.as_ref().and_then(|abi| abi.name.as_ref());
    name.is_some_and(|name| name.value() == "C-unwind")
}

/// True of `let _call = Call::begin();`.
fn is_begin(statement: &Stmt) -> bool {
    let Stmt::Local(local) = statement else { return false };
    let Some(Expr::Call(call)) = local.init.as_ref().map(|init| &*init.expr) else { return false };
    let (Pat::Ident(name), Expr::Path(path)) = (&local.pat, &*call.func) else { return false };
    let path = path.path.segments.iter().map(|segment| segment.ident.to_string());
    name.ident == "_call" && path.eq(["Call", "begin"])
}
