use std::process::{Command, Output};

fn roce(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_roce")).args(arguments).output().unwrap()
}

fn commands() -> Vec<String> {
    let help = String::from_utf8(roce(&["--help"]).stdout).unwrap();
    let list = help.split("Commands:").nth(1).unwrap().split("\n\n").next().unwrap();
    let names = list.lines().filter_map(|line| line.strip_prefix("  ")?.split(' ').next());
    names.filter(|name| !name.is_empty() && *name != "help").map(str::to_owned).collect()
}

/// `-h` fits 24 lines at 80 columns, and every width.
#[test]
fn the_short_help_of_each_command_fits_a_screen() {
    let mut names = commands();
    names.extend(["perf write", "perf read", "perf send", "perf atomic"].map(str::to_owned));
    names.extend(["conform agent", "conform diff", ""].map(str::to_owned));
    for name in names {
        for columns in [60, 80, 120] {
            let mut command = Command::new(env!("CARGO_BIN_EXE_roce"));
            command.args(name.split_whitespace()).arg("-h").env("COLUMNS", columns.to_string());
            let output = command.output().unwrap();
            assert!(output.status.success(), "{name}: {output:?}");
            let help = String::from_utf8(output.stdout).unwrap();
            let widest = help.lines().map(|line| line.chars().count()).max().unwrap_or(0);
            assert!(widest <= columns, "{name}, {columns}: {help}");
            assert!(columns < 80 || help.lines().count() <= 24, "{name}, {columns}: {help}");
        }
    }
}

#[test]
fn every_shell_learns_every_command() {
    let commands = commands();
    assert!(commands.len() > 8 && !commands.contains(&"manual".to_owned()), "{commands:?}");
    for shell in ["bash", "elvish", "fish", "powershell", "zsh"] {
        let output = roce(&["completions", shell]);
        assert!(output.status.success(), "{output:?}");
        let script = String::from_utf8(output.stdout).unwrap();
        for command in &commands {
            assert!(script.contains(command.as_str()), "{shell}: {command}");
        }
    }
    let output = roce(&["completions", "csh"]);
    assert_eq!(output.status.code(), Some(2), "{output:?}");
}

#[test]
fn every_command_has_a_page() {
    let scratch = tempfile::tempdir().unwrap();
    let pages = scratch.path().join("man1");
    assert!(roce(&["manual", pages.to_str().unwrap()]).status.success());
    for command in commands() {
        let page = std::fs::read_to_string(pages.join(format!("roce-{command}.1"))).unwrap();
        assert!(page.contains(".SH DESCRIPTION"), "{command}: {page}");
    }
    let page = std::fs::read_to_string(pages.join("roce.1")).unwrap();
    assert!(page.contains("roce\\-run(1)"), "{page}");
    let output = roce(&["manual", "/proc/nowhere"]);
    let line = String::from_utf8(output.stderr).unwrap();
    assert!(
        line.starts_with("roce: cannot write to /proc/nowhere") && line.lines().count() == 1,
        "{line}"
    );
}
