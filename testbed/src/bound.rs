//! The least time that any assignment can take.
//!
//! Whatever prices executors have, the work cannot be done for less than what each type costs at its
//! cheapest executor, and all executors together earn the sum of the prices in a unit of time. So every vector
//! of prices gives a bound (weak duality of the fluid assignment); the best of them is looked for by
//! raising the prices of those that are overbooked.

const ROUNDS: u32 = 4_000;

/// The least time for so many units of each type, where each executor does so many in a unit of time.
pub fn least<const E: usize, const K: usize>(speeds: &[[f64; E]; K], work: &[f64; K]) -> f64 {
    let mut prices = [1.0 / E as f64; E];
    let mut mean = [0.0; E];
    let mut best = 0.0_f64;
    for round in 0..ROUNDS {
        let booked = booked(speeds, work, &prices);
        let usual = booked.iter().sum::<f64>() / E as f64;
        let pace = 0.3 / (1.0 + f64::from(round) / 50.0).sqrt();
        for (price, booked) in prices.iter_mut().zip(booked) {
            *price *= (pace * (booked / usual - 1.0)).exp();
        }
        let sum: f64 = prices.iter().sum();
        for (price, mean) in prices.iter_mut().zip(&mut mean) {
            *price /= sum;
            *mean += *price;
        }
        best = best.max(at_prices(speeds, work, &prices));
    }
    let sum: f64 = mean.iter().sum();
    best.max(at_prices(speeds, work, &mean.map(|price| price / sum)))
}

/// The bound that prices of a sum of one give.
fn at_prices<const E: usize, const K: usize>(
    speeds: &[[f64; E]; K],
    work: &[f64; K],
    prices: &[f64; E],
) -> f64 {
    speeds.iter().zip(work).map(|(row, work)| work * cheapest(row, prices).1).sum()
}

/// For how long each executor would work if every type went to its cheapest.
fn booked<const E: usize, const K: usize>(
    speeds: &[[f64; E]; K],
    work: &[f64; K],
    prices: &[f64; E],
) -> [f64; E] {
    let mut booked = [0.0; E];
    for (row, work) in speeds.iter().zip(work) {
        let (executor, _) = cheapest(row, prices);
        booked[executor] += work / row[executor];
    }
    booked
}

fn cheapest<const E: usize>(row: &[f64; E], prices: &[f64; E]) -> (usize, f64) {
    let costs = row.iter().zip(prices).map(|(speed, price)| price / speed).enumerate();
    costs.min_by(|(_, one), (_, other)| one.total_cmp(other)).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    const EXECUTORS: usize = 6;
    const KINDS: usize = 5;

    #[test]
    fn where_all_are_alike_it_is_the_work_over_the_speed() {
        let bound = least(&[[5.0; EXECUTORS]; KINDS], &[600.0; KINDS]);
        assert!((bound - 100.0).abs() < 0.1, "{bound}");
    }

    #[test]
    fn where_each_is_good_at_one_thing_nobody_does_another() {
        let mut speeds = [[1.0; EXECUTORS]; KINDS];
        for (kind, row) in speeds.iter_mut().enumerate() {
            row[kind] = 10.0;
        }
        // The sixth takes a share of all: (60 - x) / 10 = 5 x.
        let bound = least(&speeds, &[60.0; KINDS]);
        let exact = 60.0 / (10.0 + 1.0 / 5.0);
        assert!((bound - exact).abs() < 0.02, "{bound} {exact}");
    }
}
