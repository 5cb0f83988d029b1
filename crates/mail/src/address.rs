//! Comparison of mail addresses.

/// Whether two addresses are of the same mailbox. Both sides of the `@` are case-insensitive, as in
/// all mail servers in use.
pub fn same_address(one: &str, other: &str) -> bool {
    one.trim().eq_ignore_ascii_case(other.trim())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn case_is_not_told_apart() {
        assert!(same_address("Ann@Example.com ", "ann@example.COM"));
        assert!(!same_address("ann@example.com", "ann@example.org"));
    }
}
