//! Work when the library is loaded, before any call.

use roce_provider::survive_forks;

use crate::{
    hooks::{check, fault},
    second,
};

/// A thread may fork while another makes the first call.
#[used]
#[unsafe(link_section = ".init_array")]
static AT_LOAD: extern "C" fn() = at_load;

extern "C" fn at_load() {
    survive_forks();
    second::warn();
    check::at_load();
    fault::at_load();
}
