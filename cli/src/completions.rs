use clap_complete::{Shell, generate};

use crate::{failure::Failure, output::outln};

/// Print completions for a shell.
///
/// For bash: `roce completions bash > ~/.local/share/bash-completion/completions/roce`; for zsh a
/// file `_roce` in a directory of fpath; for fish `~/.config/fish/completions/roce.fish`.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// The shell
    shell: Shell,
}

/// `tool`: the command line.
pub(crate) fn run(args: &Args, mut tool: clap::Command) -> Result<(), Failure> {
    let mut text = Vec::new();
    generate(args.shell, &mut tool, "roce", &mut text);
    outln!("{}", String::from_utf8(text)?.trim_end());
    Ok(())
}
