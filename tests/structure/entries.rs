//! Functions of the C interface go through the layer of calls, or are listed.
//!
//! The layer lets no thread be cancelled in them, and none forks meanwhile unless they wait.

use std::{collections::BTreeSet, fs, path::Path};

use syn::{Expr, Item, ItemFn, ItemMacro, Pat, Stmt};

/// Functions that read a completion or build a request between data calls. They lock only the
/// engine, and cannot be cancelled.
const PARTS: &str = "
    start_poll end_poll read_completion_wallclock_ns
    wr_start wr_complete wr_abort wr_atomic_write wr_flush wr_bind_mw wr_set_ud_addr wr_set_xrc_srqn
    wr_set_sge wr_set_sge_list wr_set_inline_data wr_set_inline_data_list
";

/// Macros that make such functions.
const MACROS: &str = "names readers plain";

/// Functions that compute, touch only their arguments, or make calls wait.
const OTHERS: &str = "
    at_exit at_load report_all on_signal wait_for
    refuse make_nothing ignore ibv_read_ibdev_sysfs_file
    ibv_copy_ah_attr_from_kern ibv_copy_path_rec_from_kern ibv_copy_path_rec_to_kern
    ibv_copy_qp_attr_from_kern
    ibv_rate_to_mbps ibv_rate_to_mult mbps_to_ibv_rate mult_to_ibv_rate
    ibv_is_fork_initialized
    ibv_free_device_list rdma_free_devices rdma_freeaddrinfo
    ibv_get_device_name ibv_get_sysfs_path ibv_qp_to_qp_ex
    ibv_query_qp_data_in_order
    rdma_get_src_port rdma_get_dst_port
";

/// The layer, and functions through it.
const LAYER: &str = "control waiting data query_port posting";

/// Macros whose functions are calls by construction.
const LAYER_MACROS: [&str; 3] = ["calls", "operations", "waiting_calls"];

/// Not cancelled, but a fork does not wait for it: a name server may never respond.
const IS_LONG: &str = "rdma_getaddrinfo";

#[test]
fn every_function_of_the_c_interface_is_a_call() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("abi/src");
    let mut left: BTreeSet<&str> =
        [PARTS, MACROS, OTHERS].into_iter().flat_map(str::split_whitespace).collect();
    let (mut calls, mut faults) = (0, Vec::new());
    let items = items(&folder);
    calls += items.iter().map(functions_of_layer).sum::<usize>();
    for name in items.iter().filter_map(macro_of_functions) {
        if !left.remove(name.as_str()) {
            faults.push(format!("{name} makes functions that are not seen here"));
        }
    }
    for function in items.iter().filter_map(function) {
        let name = function.sig.ident.to_string();
        let layer = layer(function);
        match layer.as_deref() {
            // it would be dropped if its thread is cancelled while it waits
            Some("control" | "begin") if is_unwound(function) => {
                faults.push(format!("{name} waits, and is a call meanwhile"));
            }
            Some("waiting") if !is_unwound(function) && name != IS_LONG => {
                faults.push(format!("{name} waits, and cannot be cancelled"));
            }
            Some(_) => calls += 1,
            None if !left.remove(name.as_str()) => {
                faults.push(format!("{name} does not begin with a call"));
            }
            None => {}
        }
    }
    faults.extend(left.iter().map(|name| format!("{name} is listed for nothing")));
    assert!(faults.is_empty(), "\n{}", faults.join("\n"));
    assert!(calls > 180, "only {calls} functions were found");
}

/// Items of the sources, without tests'.
fn items(folder: &Path) -> Vec<Item> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(items(&path));
        } else if path.file_name().is_some_and(|name| name != "tests.rs") {
            let file = syn::parse_file(&fs::read_to_string(&path).unwrap()).unwrap();
            found.extend(file.items);
        }
    }
    found
}

/// A function with C's calling convention.
fn function(item: &Item) -> Option<&ItemFn> {
    let Item::Fn(function) = item else { return None };
    function.sig.abi.is_some().then_some(function)
}

/// Name of a macro that makes such functions; `extern "C" fn(…)` is only a type.
fn macro_of_functions(item: &Item) -> Option<String> {
    let Item::Macro(item) = item else { return None };
    let text = item.mac.tokens.to_string();
    let mut rest = text.match_indices("extern \"C").map(|(at, _)| text[at..].split_whitespace());
    let makes = rest.any(|mut words| {
        words.nth(2) == Some("fn") && words.next().is_some_and(|name| !name.starts_with('('))
    });
    let name = item.ident.as_ref().or_else(|| item.mac.path.get_ident())?;
    makes.then(|| name.to_string())
}

/// Number of functions in one of [`LAYER_MACROS`].
fn functions_of_layer(item: &Item) -> usize {
    let Item::Macro(ItemMacro { mac, .. }) = item else { return 0 };
    let is_of_layer = LAYER_MACROS.iter().any(|name| mac.path.is_ident(name));
    let functions = mac.tokens.clone().into_iter().filter(|token| token.to_string() == "fn");
    if is_of_layer { functions.count() } else { 0 }
}

fn is_unwound(function: &ItemFn) -> bool {
    let name = function.sig.abi.as_ref().and_then(|abi| abi.name.as_ref());
    name.is_some_and(|name| name.value() == "C-unwind")
}

/// Its last expression, or `begin`.
fn layer(function: &ItemFn) -> Option<String> {
    if function.block.stmts.first().is_some_and(is_begin) {
        return Some("begin".to_owned());
    }
    let Stmt::Expr(mut last, None) = function.block.stmts.last()?.clone() else { return None };
    while let Expr::MethodCall(method) = last {
        last = *method.receiver; // a cast of its result
    }
    let Expr::Call(call) = last else { return None };
    let Expr::Path(path) = *call.func else { return None };
    let name = path.path.segments.last()?.ident.to_string();
    LAYER.split_whitespace().any(|known| known == name).then_some(name)
}

/// True for `let _call = Call::begin();`.
fn is_begin(statement: &Stmt) -> bool {
    let Stmt::Local(local) = statement else { return false };
    let Some(Expr::Call(call)) = local.init.as_ref().map(|init| &*init.expr) else { return false };
    let (Pat::Ident(name), Expr::Path(path)) = (&local.pat, &*call.func) else { return false };
    let path = path.path.segments.iter().map(|segment| segment.ident.to_string());
    name.ident == "_call" && path.eq(["Call", "begin"])
}
