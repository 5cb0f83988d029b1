//! Planners that are offered a task one after the other, because those who had bid for it have no time any more.

mod works;

use std::collections::BTreeMap;

use legwork_model::id::{InstanceId, ServerId};
use legwork_model::time::Timestamp;
use legwork_promise::{
    Desk, Discipline, Effect, Message, Node, Policy, ResourceId, Said, Strategy, Task, TaskId,
    Window, Work,
};
use works::always;

const DELAY: i64 = 100;
/// The one that asks, and as many as are asked for bids.
const NODES: u16 = 9;

/// Planners with one resource each, and messages that take as long as is said.
struct Net {
    nodes: Vec<Node>,
    on_the_way: BTreeMap<(i64, usize), (u16, Said)>,
    said: usize,
    told: Vec<Effect>,
}

fn resource(number: u16) -> ResourceId {
    ResourceId::Executor(format!("node-{number}").into())
}

impl Net {
    fn new(strategy: Strategy) -> Self {
        let policy = Policy { strategy, delay_ms: DELAY, ..Policy::default() };
        assert_eq!(policy.bidders_max, usize::from(NODES) - 1);
        let node = |number: u16| {
            let mut desk = Desk::default();
            assert!(desk.add(resource(number), &always(Discipline::Preemptive), Timestamp(0)));
            let mut node = Node::new(ServerId(number), desk, policy.clone(), 1);
            (0..NODES).for_each(|other| node.know(resource(other), ServerId(other)));
            node
        };
        let nodes = (0..NODES).map(node).collect();
        Self { nodes, on_the_way: BTreeMap::new(), said: 0, told: Vec::new() }
    }

    fn follow(&mut self, from: u16, effects: Vec<Effect>, now: i64) {
        for effect in effects {
            if let Effect::Say(said) = effect {
                self.said += 1;
                self.on_the_way.insert((now + DELAY, self.said), (from, said));
            } else {
                self.told.push(effect);
            }
        }
    }

    /// Up to a moment; of those who are offered something only the last has time.
    fn run(&mut self, until: i64) {
        for now in 0..until {
            while let Some(first) = self.on_the_way.first_entry().filter(|it| it.key().0 <= now) {
                let (from, said) = first.remove();
                let (to, at) = (said.to, Timestamp(now));
                if is_not_the_last(&said.message) {
                    self.nodes[usize::from(to.0)].submit(busy(to.0), at);
                }
                let effects = self.nodes[usize::from(to.0)].hear(ServerId(from), said, at);
                self.follow(to.0, effects, now);
            }
            for number in 0..NODES {
                let node = &mut self.nodes[usize::from(number)];
                if node.next_due().is_some_and(|due| due.0 <= now) {
                    let effects = node.tick(Timestamp(now));
                    self.follow(number, effects, now);
                }
            }
        }
    }
}

fn task(number: u128, takes: i64, who: Vec<ResourceId>) -> Task {
    let window = Window { release: Timestamp(0), deadline: Timestamp(100_000) };
    Task::new(TaskId::new(InstanceId(number), 0), window, Work(takes), who)
}

/// Whether somebody is offered something, and another would be after them.
fn is_not_the_last(message: &Message) -> bool {
    matches!(message, Message::Offer(offer) if !offer.next.is_empty() || offer.bids_until.is_some())
}

/// What takes nearly all the time of one of them.
fn busy(number: u16) -> Task {
    task(100 + u128::from(number), 95_000, vec![resource(number)])
}

#[test]
fn the_last_of_those_who_bid_is_waited_for() {
    for strategy in [Strategy::Bidding, Strategy::Flexible] {
        let mut net = Net::new(strategy);
        net.nodes[0].submit(busy(0), Timestamp(0));
        net.told.clear();
        let wanted = task(1, 50_000, (0..NODES).map(resource).collect());
        let effects = net.nodes[0].submit(wanted.clone(), Timestamp(0));
        net.follow(0, effects, 0);
        net.run(30 * DELAY);
        let own = net.told.iter().find(|it| match it {
            Effect::Promised { promise, .. } => promise.task == wanted.id,
            Effect::Refused { task, .. } => *task == wanted.id,
            Effect::Say(_) | Effect::Removed { .. } | Effect::Lost { .. } => false,
        });
        let own = own.expect("it is answered");
        assert!(matches!(own, Effect::Promised { .. }), "{strategy:?}: {own:?}");
        let holders = net.nodes.iter().filter(|node| node.desk.task(wanted.id).is_some());
        assert_eq!(holders.count(), 1);
    }
}
