//! All tests of the stores, in one binary.
//!
//! Invariant: the common contract is in `contract`, and runs over every store.

#[cfg(test)]
mod backup;
#[cfg(test)]
mod contract;
#[cfg(test)]
mod crash;
#[cfg(test)]
mod damage;
#[cfg(test)]
mod full_disk;
#[cfg(test)]
mod leases;
#[cfg(test)]
mod listing;
#[cfg(test)]
mod opening;
#[cfg(test)]
mod postgres;
#[cfg(test)]
mod random;
#[cfg(test)]
mod support;
