use roce_provider::{cm::PortSpace, transport::qp::QpType};

use super::{
    channel::{self, Channel},
    event::acknowledge_last,
    id::{Id, port_space},
    registry,
};
use crate::prelude::*;

/// Without a channel, the id's calls block.
pub(super) unsafe fn create(
    channel: *mut rdma_event_channel,
    context: *mut c_void,
    port_space: PortSpace,
    qp_type: Option<QpType>,
) -> Result<*mut rdma_cm_id> {
    let sync = channel.is_null();
    let channel = if sync { channel::create()? } else { channel };
    let cm = Channel::get(channel)?.channel.create_id(port_space);
    if let Some(Err(error)) = qp_type.map(|qp_type| cm.set_qp_type(qp_type)) {
        if sync {
            channel::destroy(channel);
        }
        return Err(error.into());
    }
    let id = Id::create_raw(&cm, channel, context);
    Id::get(id)?.settings().sync = sync;
    Ok(id)
}

pub(super) unsafe fn destroy(id: *mut rdma_cm_id) -> Result<()> {
    let object = Id::get(id)?;
    let cm = object.take_cm();
    drop(cm); // outside the lock
    acknowledge_last(id);
    registry::remove(object.serial);
    let sync = object.is_sync();
    let channel = (*id).channel;
    drop(Id::from_raw(id));
    if sync {
        channel::destroy(channel);
    }
    Ok(())
}

calls!(
    fn rdma_create_id(
        channel: *mut rdma_event_channel,
        id: *mut *mut rdma_cm_id,
        context: *mut c_void,
        space: c_uint,
    ) -> c_int {
        let space = port_space(space)?;
        *id.as_mut().ok_or(Rule::NullArgument)? = create(channel, context, space, None)?;
        Ok(())
    }

    fn rdma_destroy_id(id: *mut rdma_cm_id) -> c_int {
        destroy(id)
    }

    fn rdma_migrate_id(id: *mut rdma_cm_id, channel: *mut rdma_event_channel) -> c_int {
        migrate(id, channel)
    }
);

pub(super) unsafe fn migrate(id: *mut rdma_cm_id, channel: *mut rdma_event_channel) -> Result<()> {
    let object = Id::get(id)?;
    let was_sync = object.is_sync();
    refuse_if(was_sync && channel.is_null(), Rule::NullArgument)?;
    let sync = channel.is_null();
    let channel = if sync { channel::create()? } else { channel };
    object.cm()?.migrate_id(&Channel::get(channel)?.channel);
    if was_sync {
        acknowledge_last(id);
    }
    registry::wait_for_acknowledgements(object.serial);
    if was_sync {
        channel::destroy((*id).channel);
    }
    object.settings().sync = sync;
    (*id).channel = channel;
    Ok(())
}
