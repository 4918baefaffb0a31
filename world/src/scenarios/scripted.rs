//! What a script says.

use crate::{
    failure::Failure,
    line::Side,
    script::{Script, Step},
    world::World,
};

pub(crate) fn play(world: &mut World<'_>, script: &Script) -> Result<(), Failure> {
    for side in [Side::Left, Side::Right] {
        world.node_mut(side).buffer(Script::MEMORY);
    }
    let is_connect = |step: &&Step| matches!(step, Step::Connect(..));
    let are_named = script.steps.iter().filter(is_connect).count() > 1;
    for step in &script.steps {
        match step {
            Step::Say(text) => world.say(text)?,
            Step::Connect(service, options) => {
                let (a, b) = world.connect_as(*service, *options, *options);
                if are_named {
                    let number = world.node(Side::Left).queue_pairs().len();
                    world.name(a, &format!("A{number}"));
                    world.name(b, &format!("B{number}"));
                }
            }
            Step::Post(side, request) => world.post_request(*side, request)?,
            Step::Set(side, offset, value) => {
                let buffer = world.node_mut(*side).first_buffer();
                buffer.put_at(*offset, &value.to_ne_bytes());
            }
            Step::Wait(None) => world.run()?,
            Step::Wait(Some(time)) => world.run_for(*time)?,
        }
    }
    world.run()
}
