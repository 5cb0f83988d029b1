//! Executors shared by all servers: each server learns about them by itself, and assigns tasks without
//! knowing those of the others.
//!
//! Invariant: messages of a host that its server has left, or has not reached yet, are ignored.

use legwork_model::arbitrary::JOBS;
use legwork_model::id::ServerId;

use super::{Cluster, oracle};
use crate::dice::Dice;
use crate::executors::checks::{Histories, outstanding};
use crate::executors::staff::{Field, Staff};

impl Cluster {
    pub(crate) fn hire(&mut self, domains: &[&'static str], dice: &mut Dice) -> Result<(), String> {
        let staff = Staff::draw(JOBS, domains, dice);
        if self.seed.is_multiple_of(2) {
            staff.set_policies(&mut self.worlds[0], dice)?;
        }
        self.staff = Some(staff);
        Ok(())
    }

    pub(crate) fn is_shared(&self) -> bool {
        self.staff.is_some()
    }

    pub(crate) fn turn_of_staff(&mut self, dice: &mut Dice) -> Result<(), String> {
        let Some(mut staff) = self.staff.take() else { return Ok(()) };
        let mut worlds = std::mem::take(&mut self.worlds);
        let (this, id) = (&*self, |place| ServerId(place as u16));
        let mut field = Field {
            worlds: &mut worlds,
            now: this.now,
            data: &|activity| {
                oracle::data(&this.schema(activity.instance), activity.instance, activity)
            },
            is_cut: &|a, b| this.network.is_cut(id(a), id(b)),
        };
        let turned = staff.turn(&mut field, dice);
        (self.worlds, self.staff) = (worlds, Some(staff));
        turned
    }

    /// What servers and executors still wait for, once all cases have ended.
    pub(crate) fn awaited_of_staff(&mut self) -> Result<Option<String>, String> {
        let Some(staff) = &self.staff else { return Ok(None) };
        if let Some(what) = staff.awaits() {
            return Ok(Some(what));
        }
        for (place, world) in self.worlds.iter_mut().enumerate() {
            if let Some(what) = outstanding(world)? {
                return Ok(Some(format!("{what} at {place}")));
            }
        }
        Ok(None)
    }

    /// Compares the accepted results in the histories with the verdicts at the executors.
    pub(crate) fn compare_with_staff(&self) -> Result<(), String> {
        let Some(staff) = &self.staff else { return Ok(()) };
        let schema = |instance| self.schema(instance);
        Histories::read(&self.worlds, &schema)?.compare(staff)
    }
}
