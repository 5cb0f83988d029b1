//! Several sites over a lossless network: for experiments that count traffic.
//!
//! Invariant: deterministic. Messages arrive in order, and the observer sees each of them once, and
//! each fetched content of a file.

use std::sync::Arc;

use legwork_model::id::ServerId;
use legwork_placement::Topology;
use legwork_site::{Answer, Config, Member, Message, Request};

use crate::dice::Dice;
use crate::world::World;

/// More turns than any experiment needs to become quiet.
const TURNS_MAX: u32 = 1_000;

pub struct Calm {
    worlds: Vec<World>,
}

/// An observed transfer.
#[derive(Clone, Debug)]
pub enum Seen {
    Said {
        from: ServerId,
        to: ServerId,
        message: Message,
    },
    /// The content of a file arrives at a server.
    Brought {
        to: ServerId,
        bytes: u64,
    },
}

impl Calm {
    /// All servers of a topology, with an organisation and a definition.
    pub fn new(topology: Topology, organisation: &str, definition: &str) -> Result<Self, String> {
        let text: Arc<str> = topology.to_yaml().into();
        let members = topology.servers.iter().map(|server| {
            let member = Member { name: server.name.clone(), topology: text.clone() };
            let mut world = World::of(Config { member: Some(member), ..Config::default() });
            world.calm();
            world
        });
        let mut calm = Self { worlds: members.collect() };
        let registrar = topology.registrar().ok_or("there is no server")?;
        let (organisation, definition) = (organisation.to_owned(), definition.to_owned());
        for request in [
            Request::PublishOrganisation { source: organisation },
            Request::Deploy { source: definition },
        ] {
            calm.ask(registrar, request, &mut |_| {})?;
        }
        Ok(calm)
    }

    /// Sends a request to a server, and delivers messages until there are none left; the observer
    /// sees each of them.
    pub fn ask(
        &mut self,
        server: ServerId,
        request: Request,
        look: &mut dyn FnMut(&Seen),
    ) -> Result<Answer, String> {
        let place = usize::from(server.0);
        let asked = self.worlds.get_mut(place).ok_or("no such server")?.ask(request);
        self.settle(look)?;
        let reply = self.worlds[place].reply(asked).ok_or("there is no answer")?;
        reply.map_err(|refusal| format!("{refusal}: {:?}", refusal.findings))
    }

    fn settle(&mut self, look: &mut dyn FnMut(&Seen)) -> Result<(), String> {
        for _ in 0..TURNS_MAX {
            let mut said = Vec::new();
            for (number, world) in self.worlds.iter_mut().enumerate() {
                world.cycle(&mut Dice::new(0))?;
                let from = ServerId(number as u16);
                let name = world.name();
                for (instance, file) in world.take_wanted() {
                    if !world.has_blob(&file.blob) {
                        look(&Seen::Brought { to: from, bytes: file.size });
                        world.brought(file.blob, vec![instance])?;
                    }
                }
                let all = world.take_said().into_iter();
                said.extend(all.map(|(to, message)| (from, name.clone(), to, message)));
            }
            if said.is_empty() && !self.worlds.iter().any(World::is_busy) {
                return Ok(());
            }
            for (from, name, to, message) in said {
                let place = self.worlds.iter().position(|world| world.name() == to);
                let place = place.ok_or("no such server")?;
                let to = ServerId(place as u16);
                look(&Seen::Said { from, to, message: message.clone() });
                self.worlds[place].on_message(name, message);
            }
        }
        Err("the servers do not come to rest".to_owned())
    }
}
