//! Failures injected by `ROCE_FAULT`.

use std::{
    ffi::{c_int, c_void},
    fs, mem, thread,
    time::Duration,
};

use roce_provider::{
    control,
    faults::{CallId, Failure},
};

use super::{
    common::Directory,
    library::{Library, operation},
    program, run_compiled, runs_alone, symbols,
};

/// Functions without a failure value.
const CANNOT_FAIL: &str = "
    ibv_ack_async_event ibv_ack_cq_events ibv_copy_ah_attr_from_kern ibv_copy_path_rec_from_kern
    ibv_copy_path_rec_to_kern ibv_copy_qp_attr_from_kern ibv_event_type_str ibv_free_buf
    ibv_free_device_list ibv_get_device_guid ibv_get_device_index ibv_get_device_name
    ibv_get_sysfs_path ibv_is_fork_initialized ibv_node_type_str ibv_port_state_str
    ibv_qp_to_qp_ex ibv_query_qp_data_in_order ibv_rate_to_mbps ibv_rate_to_mult ibv_unimport_dm
    ibv_unimport_mr ibv_unimport_pd ibv_wc_status_str mbps_to_ibv_rate mult_to_ibv_rate
    rdma_destroy_ep rdma_destroy_event_channel rdma_destroy_qp rdma_destroy_srq rdma_event_str
    rdma_free_devices rdma_freeaddrinfo rdma_get_dst_port rdma_get_src_port
";

/// With their calls.
const OPERATIONS: [(&str, &str); 33] = [
    ("poll_cq", "ibv_poll_cq"),
    ("req_notify_cq", "ibv_req_notify_cq"),
    ("post_send", "ibv_post_send"),
    ("post_recv", "ibv_post_recv"),
    ("post_srq_recv", "ibv_post_srq_recv"),
    ("create_cq_ex", "ibv_create_cq_ex"),
    ("query_port", "ibv_query_port"),
    ("query_device_ex", "ibv_query_device_ex"),
    ("modify_cq", "ibv_modify_cq"),
    ("alloc_td", "ibv_alloc_td"),
    ("dealloc_td", "ibv_dealloc_td"),
    ("alloc_parent_domain", "ibv_alloc_parent_domain"),
    ("alloc_dm", "ibv_alloc_dm"),
    ("free_dm", "ibv_free_dm"),
    ("reg_dm_mr", "ibv_reg_dm_mr"),
    ("alloc_null_mr", "ibv_alloc_null_mr"),
    ("advise_mr", "ibv_advise_mr"),
    ("create_counters", "ibv_create_counters"),
    ("destroy_counters", "ibv_destroy_counters"),
    ("attach_counters_point_flow", "ibv_attach_counters_point_flow"),
    ("read_counters", "ibv_read_counters"),
    ("ibv_create_flow", "ibv_create_flow"),
    ("ibv_destroy_flow", "ibv_destroy_flow"),
    ("query_rt_values", "ibv_query_rt_values_ex"),
    ("alloc_mw", "ibv_alloc_mw"),
    ("bind_mw", "ibv_bind_mw"),
    ("dealloc_mw", "ibv_dealloc_mw"),
    ("create_qp_ex", "ibv_create_qp_ex"),
    ("open_qp", "ibv_open_qp"),
    ("modify_qp_rate_limit", "ibv_modify_qp_rate_limit"),
    ("create_srq_ex", "ibv_create_srq_ex"),
    ("get_srq_num", "ibv_get_srq_num"),
    ("open_xrcd", "ibv_open_xrcd"),
];

/// Covered by C programs.
const OF_OBJECTS: &str = "ibv_close_xrcd ibv_memcpy_to_dm ibv_memcpy_from_dm ibv_start_poll \
                          ibv_next_poll ibv_wr_complete";

/// No call gives this itself.
const ERRNO: c_int = libc::EXDEV;

type Function =
    unsafe extern "C" fn([*mut u64; 1], *mut u64, *mut u64, *mut u64, *mut u64, *mut u64) -> isize;

/// The arguments are garbage.
fn assert_fails(call: CallId, function: *const c_void) {
    let failing = call.failing();
    assert!(!function.is_null(), "{}", failing.name);
    let mut scratch = [0x5555_5555_5555_5555_u64; 64];
    let at = scratch.as_mut_ptr();
    // SAFETY: The function takes at most six words, and does nothing.
    let function: Function = unsafe { mem::transmute(function) };
    // SAFETY: `errno` is thread-local.
    let errno = unsafe { &mut *libc::__errno_location() };
    *errno = 0;
    // SAFETY: As above; posts read `scratch` as a request.
    let answer = unsafe { function([at], at, at, at, at, at) };
    let returned = match failing.failure {
        Failure::Null => answer,
        _ => isize::try_from(answer as c_int).unwrap(),
    };
    assert_eq!((returned, *errno), (failing.failure.value(ERRNO), ERRNO), "{}", failing.name);
}

/// Newest of each name.
fn public() -> Vec<(String, String)> {
    let symbols = symbols::exported();
    let public = symbols.into_iter().filter(|symbol| !symbol.contains("PRIVATE"));
    public.map(|symbol| (symbol.split('@').next().unwrap().to_owned(), symbol)).collect()
}

#[test]
fn each_exported_call_that_can_fail_fails_before_it_has_done_anything() {
    let name = "faults::each_exported_call_that_can_fail_fails_before_it_has_done_anything";
    if runs_alone(name, ("ROCE_FAULT", "fail any EXDEV")) {
        return;
    }
    let library = Library::load();
    let cannot: Vec<_> = CANNOT_FAIL.split_whitespace().collect();
    for (name, symbol) in public() {
        match CallId::of(&name) {
            Some(call) => {
                assert!(!cannot.contains(&&*name), "{name} can fail");
                assert_fails(call, library.find(&symbol));
            }
            None => assert!(cannot.contains(&&*name), "{name} has no name in the grammar"),
        }
    }
}

#[test]
fn each_operation_of_a_context_fails_before_it_has_done_anything() {
    let names: Vec<_> = OPERATIONS.iter().map(|(_, call)| format!("fail {call} EXDEV")).collect();
    let name = "faults::each_operation_of_a_context_fails_before_it_has_done_anything";
    if runs_alone(name, ("ROCE_FAULT", &names.join(", "))) {
        return;
    }
    let library = Library::load();
    let mut memory = [0; 16];
    let objects = library.open(&raw mut memory, 0);
    for (member, call) in OPERATIONS {
        // SAFETY: An open context.
        let function: *const c_void = unsafe { operation(objects[0], member) };
        assert_fails(CallId::of(call).unwrap(), function);
    }
    library.close(objects);
}

#[test]
fn what_a_call_makes_in_turn_is_no_call_of_the_programs() {
    let name = "faults::what_a_call_makes_in_turn_is_no_call_of_the_programs";
    if runs_alone(name, ("ROCE_FAULT", "fail ibv_alloc_pd EXDEV")) {
        return;
    }
    let library = Library::load();
    let mut number: c_int = 0;
    // SAFETY: Types match; a listed context.
    unsafe {
        let get_devices: unsafe extern "C" fn(*mut c_int) -> *mut *mut c_void =
            library.function("rdma_get_devices");
        let alloc_pd: unsafe extern "C" fn(*mut c_void) -> *mut c_void =
            library.function("ibv_alloc_pd");
        // each has a protection domain for ids
        let contexts = get_devices(&raw mut number);
        assert!(number > 0 && !(*contexts).is_null());
        assert!(alloc_pd(*contexts).is_null());
    }
}

#[test]
fn there_is_no_name_without_a_call() {
    let exported = public();
    for call in CallId::all() {
        let name = call.failing().name;
        assert!(
            exported.iter().any(|(symbol, _)| symbol.trim_start_matches('_') == name)
                || OPERATIONS.iter().any(|(_, call)| *call == name)
                || OF_OBJECTS.split_whitespace().any(|call| call == name),
            "{name}"
        );
    }
}

/// Failed calls had no effect.
#[test]
fn programs_go_on_after_calls_that_have_failed() {
    for case in ["objects", "moving", "wait", "extended", "incidents"] {
        let rules = match case {
            "objects" => {
                "fail query_gid nth 2 EPERM, fail create_cq nth 2 ENOMEM, fail modify_qp nth 1, \
                 fail destroy_qp once, fail alloc_pd nth 2, fail reg_mr nth 2 EAGAIN"
            }
            "moving" => "fail post_send once EINVAL; fail post_recv once; fail poll_cq nth 2 EINTR",
            "incidents" => {
                "complete send nth 3 with REM_OP_ERR; gid change at 500ms; port down at 1s for 100ms; \
                 qp any fatal after 3s; device fatal at 3100ms"
            }
            "wait" => "slow query_gid by 50ms once, hang alloc_pd 60ms once",
            _ => "fail start_poll nth 2 EIO, fail wr_complete once, fail memcpy_to_dm once EFAULT",
        };
        for check in ["0", "1"] {
            let variables = [("CASE", case), ("ROCE_FAULT", rules), ("ROCE_CHECK", check)];
            if !run_compiled("faults", &variables) {
                println!("no C compiler is installed: nothing was run");
                return;
            }
        }
    }
}

#[test]
fn a_failure_is_explained_by_its_rule() {
    let rules = "fail query_gid nth 2 EPERM";
    let variables = [("CASE", "one"), ("ROCE_FAULT", rules), ("ROCE_EXPLAIN", "1")];
    let Some(program) = program("faults") else { return };
    let output = program.run(&variables, 0);
    assert!(output.stderr.contains("ibv_query_gid: EPERM"), "{}", output.stderr);
    assert!(output.stderr.contains("\"fail query_gid nth 2 EPERM\""), "{}", output.stderr);
}

/// Sent in turn to the control socket.
const SWITCHED: [&str; 15] = [
    "drop 3%",
    "duplicate 10%",
    "reorder 10%",
    "corrupt 2%",
    "delay 200us",
    "rnr 5%",
    "drop ack every 5, duplicate send 20%",
    "fail post_send 20% EAGAIN",
    "fail post_recv 20%",
    "fail poll_cq 30%",
    "slow poll 5% by 200us",
    "hang post_send 1ms once, fail wr_complete",
    "port down for 1ms",
    "gid change",
    "complete send nth 1000000 with RETRY_EXC_ERR",
];

/// Oracle: every message once, in order, whole.
#[test]
fn a_thousand_faults_are_switched_while_a_program_is_under_load() {
    let Some(program) = program("faults") else {
        println!("no C compiler is installed: nothing was run");
        return;
    };
    let directory = Directory::new();
    let (socket, stop) = (directory.file("control.%p"), directory.file("stop"));
    let variables = [
        ("CASE", "load"),
        ("STOP", stop.to_str().unwrap()),
        ("ROCE_CONTROL", socket.to_str().unwrap()),
    ];
    let switches = || {
        let found = || {
            let entries = fs::read_dir(directory.file("")).unwrap().flatten();
            entries
                .map(|entry| entry.path())
                .find(|path| path.to_string_lossy().contains("control"))
        };
        let socket = loop {
            match found() {
                Some(socket) => break socket,
                None => thread::sleep(Duration::from_millis(5)),
            }
        };
        let ask = |command: &str| loop {
            match control::ask(&socket, command) {
                Ok(answer) => break answer,
                Err(_) => thread::sleep(Duration::from_millis(5)), // not listening yet
            }
        };
        assert!(ask("explode 3%").unwrap_err().contains("\"explode\""));
        assert!(ask("clear 77").unwrap_err().contains("rule 77 does not exist"));
        let mut hits = 0;
        for number in 0..500 {
            let rule = SWITCHED[number % SWITCHED.len()];
            let first = ask(rule).unwrap();
            let listed = ask("list").unwrap();
            assert_eq!(listed.len(), first.len(), "{rule}: {listed:?}");
            hits += u32::from(listed.iter().any(|line| !line.contains(" 0 of ")));
            match number % 2 {
                0 => assert!(ask("clear").is_ok()),
                _ => first.iter().for_each(|number| drop(ask(&format!("clear {number}")).unwrap())),
            }
        }
        assert_eq!(ask("list").unwrap(), [""; 0]);
        fs::write(&stop, "").unwrap();
        hits
    };
    let (output, hits) = thread::scope(|scope| {
        let switches = scope.spawn(switches);
        (program.run(&variables, 0), switches.join().unwrap())
    });
    assert!(output.stderr.starts_with("rounds ") && hits > 0, "{}", output.stderr);
}
