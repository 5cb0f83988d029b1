//! Several sites over a network that loses nothing: for experiments that count what is said.
//!
//! Invariant: nothing depends on chance. Messages arrive in the order they are said, and whoever
//! looks on sees each of them once.

use legwork_model::id::ServerId;
use legwork_placement::Topology;
use legwork_site::{Answer, Message, Request, Seat};

use crate::dice::Dice;
use crate::world::World;

/// More turns than any experiment needs to come to rest.
const TURNS_MAX: u32 = 1_000;

pub struct Calm {
    worlds: Vec<World>,
}

/// A message on its way.
#[derive(Clone, Debug)]
pub struct Said {
    pub from: ServerId,
    pub to: ServerId,
    pub message: Message,
}

impl Calm {
    /// All servers of a topology, with an organisation and a definition.
    pub fn new(topology: Topology, organisation: &str, definition: &str) -> Result<Self, String> {
        let mut dice = Dice::new(0);
        let topology = std::sync::Arc::new(topology);
        let mut worlds = Vec::new();
        for number in 0..topology.servers.len() {
            let here = ServerId(number as u16);
            let mut world = World::seated(&mut dice, Seat { here, topology: topology.clone() });
            world.calm();
            let (organisation, definition) = (organisation.to_owned(), definition.to_owned());
            for request in [
                Request::PublishOrganisation { source: organisation },
                Request::Deploy { source: definition },
            ] {
                let reply = world.ask_calmly(request)?;
                reply.map_err(|refusal| format!("{refusal}: {:?}", refusal.findings))?;
            }
            worlds.push(world);
        }
        Ok(Self { worlds })
    }

    /// Asks a server something, and carries messages until nobody says anything any more; whoever
    /// looks on sees each of them.
    pub fn ask(
        &mut self,
        server: ServerId,
        request: Request,
        look: &mut dyn FnMut(&Said),
    ) -> Result<Answer, String> {
        let place = usize::from(server.0);
        let asked = self.worlds.get_mut(place).ok_or("no such server")?.ask(request);
        self.settle(look)?;
        let reply = self.worlds[place].reply(asked).ok_or("there is no answer")?;
        reply.map_err(|refusal| refusal.to_string())
    }

    fn settle(&mut self, look: &mut dyn FnMut(&Said)) -> Result<(), String> {
        for _ in 0..TURNS_MAX {
            let mut said = Vec::new();
            for (number, world) in self.worlds.iter_mut().enumerate() {
                world.cycle(&mut Dice::new(0))?;
                let from = ServerId(number as u16);
                let all = world.take_said().into_iter();
                said.extend(all.map(|(to, message)| Said { from, to, message }));
            }
            if said.is_empty() && !self.worlds.iter().any(World::is_busy) {
                return Ok(());
            }
            for said in said {
                look(&said);
                let world = self.worlds.get_mut(usize::from(said.to.0)).ok_or("no such server")?;
                world.hear(said.from, said.message);
            }
        }
        Err("the servers do not come to rest".to_owned())
    }
}
