use proptest::prelude::*;

use super::*;
use crate::device::Device;

fn parse(text: &str) -> Result<Profile, ProfileError> {
    text.parse()
}

const HEAD: &str = "name = \"mine\"\ntitle = \"Mine\"\n";

#[test]
fn every_built_in_profile_is_right_and_says_where_its_numbers_are_from() {
    for name in Profile::built_in() {
        let profile = Profile::named(name).unwrap();
        assert_eq!(profile.name(), name);
        assert!(profile.sources().count() >= 2, "{name}");
        assert!(profile.number("device.vendor_id").is_some(), "{name}");
        let limits = profile.limits(Limits::default());
        let wanted = profile.number("limits.max_qp_wr").unwrap();
        assert_eq!(u64::from(limits.max_qp_wr), wanted, "{name}");
    }
}

#[test]
fn mlx5_differs_in_queues_posting_and_timers() {
    for name in Profile::built_in() {
        let limits = Profile::named(name).unwrap().limits(Limits::default());
        let is_mlx5 = name.starts_with("connectx") || name.starts_with("bluefield");
        assert_eq!((limits.early_posts, limits.send_queue.is_some()), (is_mlx5, is_mlx5), "{name}");
        let timer = AckTimer { least: 16, percent: 171, backs_off: false };
        let timer = if is_mlx5 { timer } else { AckTimer::default() };
        assert_eq!(Profile::named(name).unwrap().ack_timer(), timer, "{name}");
    }
}

#[test]
fn what_is_wrong_is_said_in_one_line_with_what_could_stand_there() {
    for (text, wanted) in [
        ("", "name: give it a text"),
        ("name = 7\ntitle = \"x\"", "name: give it a text"),
        ("name = \"x\n", "line 1: "),
        ("{HEAD}colour = \"red\"", "colour: unknown key; expected name, title, [device],"),
        ("{HEAD}limits = 3", "limits: write it as a section, [limits]"),
        ("{HEAD}[limits]\nmax_sge = 30", "limits.max_sge: no source"),
        (
            "{HEAD}[limits]\nsource = \"https://a\"\nmax_sgee = 30",
            "limits.max_sgee: unknown key; [limits] has source, max_mr_size,",
        ),
        (
            "{HEAD}[limits]\nsource = \"https://a\"\nmax_sge = 0",
            "limits.max_sge: 0 is not a number from 1 to 2147483647",
        ),
        (
            "{HEAD}[limits]\nsource = \"https://a\"\nmax_sge = \"many\"",
            "limits.max_sge: \"many\" is not a number",
        ),
        (
            "{HEAD}[limits]\nsource = \"somewhere\"\nmax_sge = 3",
            "limits.source: \"somewhere\" is not the address of a page",
        ),
        (
            "{HEAD}[limits]\nmax_sge = { value = 3 }",
            "limits.max_sge: write the value alone, or { value = …, source = ",
        ),
        (
            "{HEAD}[device]\nsource = \"https://a\"\nnames = \"mlx5_0\"",
            "device.names: \"mlx5_0\" is not a name of letters, digits and _ with {} for the number",
        ),
        (
            "{HEAD}[device]\nsource = \"https://a\"\nnames = \"../{}\"",
            "device.names: \"../{}\" is not a name",
        ),
        (
            "{HEAD}[errno]\nsource = \"https://a\"\nsizes = \"EWHAT\"",
            "errno.sizes: \"EWHAT\" is not one of \"EINVAL\", \"ENOMEM\"",
        ),
        (
            "{HEAD}[port]\nsource = \"https://a\"\nroce_v1 = 1",
            "port.roce_v1: 1 is not true or false",
        ),
    ] {
        let error = parse(&text.replace("{HEAD}", HEAD)).unwrap_err().to_string();
        assert!(error.starts_with(wanted) && error.lines().count() == 1, "{text:?}: {error}");
    }
    for (name, wanted) in [
        ("connectx-99", "unknown profile \"connectx-99\"; expected connectx-5, connectx-6dx,"),
        ("siw", "siw: siw is iWARP"),
        ("/nowhere/mine.toml", "/nowhere/mine.toml: No such file"),
    ] {
        let error = Profile::named(name).unwrap_err().to_string();
        assert!(error.starts_with(wanted) && error.lines().count() == 1, "{error}");
    }
}

#[test]
fn no_limit_is_beyond_what_can_be_done() {
    let profile = parse(&format!(
        "{HEAD}[limits]\nsource = \"https://a\"\nmax_sge = 1000\nmax_qp_wr = 2000000\n\
         max_cqe = 2147483647\nmax_mcast_qp_attach = 5000\n"
    ))
    .unwrap();
    let limits = profile.limits(Limits::default());
    assert_eq!(
        (limits.max_sge, limits.max_recv_sge, limits.max_qp_wr, limits.max_cqe),
        (MOST.max_sge, MOST.max_recv_sge, MOST.max_qp_wr, MOST.max_cqe)
    );
    assert_eq!(limits.max_mcast_qp_attach, MOST.max_mcast_qp_attach);
    // silent keys are as without a profile
    assert_eq!(limits.max_mr, Limits::default().max_mr);
}

#[test]
fn devices_have_the_adapters_names() {
    let profile = Profile::named("connectx-5").unwrap();
    let names = |devices: Vec<Device>| -> Vec<_> {
        devices.iter().map(|device| device.name().to_owned()).collect()
    };
    let lo = || vec![Device::named("roce_lo").unwrap()];
    assert_eq!(names(profile.shown(lo(), true)), ["mlx5_0", "mlx5_1"]);
    assert_eq!(names(profile.shown(lo(), false)), ["mlx5_0"]);
}

proptest! {
    #[test]
    fn any_text_is_a_profile_or_an_error_of_one_line(text in "(?s).{0,400}") {
        if let Err(error) = parse(&text) {
            prop_assert_eq!(error.to_string().lines().count(), 1, "{}", error);
        }
    }

    #[test]
    fn any_value_of_any_key_is_taken_or_refused(
        section in 0..schema::SECTIONS.len(),
        key in 0..40_usize,
        value in prop_oneof![
            any::<i64>().prop_map(|number| number.to_string()),
            "[a-zA-Z0-9_{}./ -]{0,70}".prop_map(|text| format!("{text:?}")),
            any::<bool>().prop_map(|flag| flag.to_string()),
            Just("1.5".to_owned()),
            Just("[1, 2]".to_owned()),
            Just("1979-05-27".to_owned()),
            Just("{ value = 3, source = \"https://b\" }".to_owned()),
        ],
    ) {
        let (name, keys) = schema::SECTIONS[section];
        let (key, _) = keys[key % keys.len()];
        let text = format!("{HEAD}[{name}]\nsource = \"https://a\"\n{key} = {value}\n");
        match parse(&text) {
            Ok(profile) => {
                let limits = profile.limits(Limits::default());
                prop_assert!(limits.max_sge <= MOST.max_sge && limits.max_cqe <= MOST.max_cqe);
                let _ = profile.shown(vec![], false);
            }
            Err(error) => {
                let error = error.to_string();
                prop_assert!(error.starts_with(&format!("{name}.{key}: ")), "{}", error);
                prop_assert_eq!(error.lines().count(), 1, "{}", error);
            }
        }
    }
}
