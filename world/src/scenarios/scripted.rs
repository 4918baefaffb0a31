use crate::{
    failure::Failure,
    script::{Script, Step},
    world::World,
};

pub(crate) fn play(world: &mut World<'_>, script: &Script) -> Result<(), Failure> {
    for node in &mut world.nodes {
        node.buffer(Script::MEMORY);
    }
    let is_connect = |step: &&Step| matches!(step, Step::Connect(..));
    let are_named = script.steps.iter().filter(is_connect).count() > 1;
    for step in &script.steps {
        match step {
            Step::Say(text) => world.say(text)?,
            Step::Connect(ends, service, options) => {
                let made = world.connect_as(*ends, *service, [*options; 2]);
                if are_named {
                    for (end, qpn) in ends.iter().zip([made.0, made.1]) {
                        let number = world[*end].queue_pairs.len();
                        world.name(qpn, &format!("{end}{number}"));
                    }
                }
            }
            Step::Post(end, request) => world.post_request(*end, request)?,
            Step::Set(end, offset, value) => {
                let buffer = world[*end].first_buffer();
                buffer.put(*offset, &value.to_ne_bytes());
            }
            Step::Wait(None) => world.run()?,
            Step::Wait(Some(time)) => world.run_for(*time)?,
        }
    }
    world.run()
}
