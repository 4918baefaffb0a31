use roce_provider::survive_forks;

use crate::{
    hooks::{check, fault},
    second,
};

/// Runs at load, since another thread may fork during the first call.
#[used]
#[unsafe(link_section = ".init_array")]
static AT_LOAD: extern "C" fn() = at_load;

extern "C" fn at_load() {
    survive_forks();
    second::warn();
    check::at_load();
    fault::at_load();
}
