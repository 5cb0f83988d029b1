//! Reads assignment rules: `Role(manager) EXCEPT NodePerformingAgent(capture)`.
//!
//! ```text
//! expr    := term {OR term}
//! term    := fact {AND fact}
//! fact    := operand [EXCEPT operand]
//! operand := prim | '(' expr ')'
//! ```
//!
//! The words between are read in any case, the forms as they are spelled. What `Display` writes
//! reads as the same rule.

use std::str::FromStr;
use std::sync::Arc;

use crate::rule::{Actors, Rule, UnitReach, is_bare};
use crate::yaml::nearest;

/// The longest rule, in characters.
pub const RULE_LEN_MAX: usize = 2_000;
/// The longest name inside a rule, in characters.
pub const RULE_NAME_LEN_MAX: usize = 128;
/// How deeply parentheses may nest.
pub const RULE_DEPTH_MAX: usize = 16;

/// The forms a rule is made of, as they are spelled.
pub const FORMS: [&str; 9] = [
    "Agent",
    "Role",
    "OrgUnit",
    "OrgPosition",
    "Ability",
    "NodePerformingAgent",
    "OrgUnitOf",
    "ManagerOf",
    "StartingAgent",
];

/// A text that is not a rule; columns count characters from 1.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SyntaxError {
    #[error("at column {column}: expected {expected}, found {found}")]
    Unexpected { column: u32, expected: &'static str, found: String },
    #[error("at column {column}: there is no form `{found}`; did you mean `{meant}`?")]
    Misspelled { column: u32, found: String, meant: &'static str },
    #[error("at column {column}: put parentheses around what stands before the second EXCEPT")]
    SecondExcept { column: u32 },
    #[error("at column {column}: a name is empty or longer than {RULE_NAME_LEN_MAX} characters")]
    NameLength { column: u32 },
    #[error("at column {column}: parentheses nest deeper than {RULE_DEPTH_MAX} levels")]
    TooDeep { column: u32 },
    #[error("the rule is longer than {RULE_LEN_MAX} characters")]
    TooLong,
}

impl SyntaxError {
    /// The column in the rule; 1 for the rule as a whole.
    pub fn column(&self) -> u32 {
        match self {
            Self::Unexpected { column, .. }
            | Self::Misspelled { column, .. }
            | Self::SecondExcept { column }
            | Self::NameLength { column }
            | Self::TooDeep { column } => *column,
            Self::TooLong => 1,
        }
    }
}

impl FromStr for Rule {
    type Err = SyntaxError;

    fn from_str(text: &str) -> Result<Self, SyntaxError> {
        if text.chars().nth(RULE_LEN_MAX).is_some() {
            return Err(SyntaxError::TooLong);
        }
        let mut parser = Parser { text, place: 0, depth: 0 };
        let rule = parser.expr()?;
        match parser.peek() {
            None => Ok(rule),
            Some(_) => Err(parser.unexpected("AND, OR, EXCEPT or the end of the rule")),
        }
    }
}

struct Parser<'t> {
    text: &'t str,
    /// In bytes.
    place: usize,
    depth: usize,
}

impl<'t> Parser<'t> {
    fn expr(&mut self) -> Result<Rule, SyntaxError> {
        self.joined("OR", Self::term, Rule::Any)
    }

    fn term(&mut self) -> Result<Rule, SyntaxError> {
        self.joined("AND", Self::fact, Rule::All)
    }

    fn joined(
        &mut self,
        word: &str,
        part: fn(&mut Self) -> Result<Rule, SyntaxError>,
        join: fn(Vec<Rule>) -> Rule,
    ) -> Result<Rule, SyntaxError> {
        let first = part(self)?;
        if !self.eat_word(word) {
            return Ok(first);
        }
        let mut parts = vec![first, part(self)?];
        while self.eat_word(word) {
            parts.push(part(self)?);
        }
        Ok(join(parts))
    }

    fn fact(&mut self) -> Result<Rule, SyntaxError> {
        let from = self.operand()?;
        if !self.eat_word("EXCEPT") {
            return Ok(from);
        }
        let without = self.operand()?;
        let column = self.column_of_next();
        if self.eat_word("EXCEPT") {
            return Err(SyntaxError::SecondExcept { column });
        }
        Ok(Rule::Except(Box::new(from), Box::new(without)))
    }

    fn operand(&mut self) -> Result<Rule, SyntaxError> {
        let column = self.column_of_next();
        if !self.eat('(') {
            return self.actors().map(Rule::Are);
        }
        self.depth += 1;
        if self.depth > RULE_DEPTH_MAX {
            return Err(SyntaxError::TooDeep { column });
        }
        let rule = self.expr()?;
        self.expect(')', "AND, OR, EXCEPT or `)`")?;
        self.depth -= 1;
        Ok(rule)
    }

    fn actors(&mut self) -> Result<Actors, SyntaxError> {
        let column = self.column_of_next();
        let form = self.form()?;
        self.expect('(', "`(`")?;
        let actors = match form {
            "Agent" => {
                let anybody = self.peek() == Some(')');
                Actors::Agent(if anybody { None } else { Some(self.name()?) })
            }
            "Role" => Actors::Role(self.name()?),
            "OrgUnit" => Actors::OrgUnit(self.name()?, self.reach()),
            "OrgPosition" => Actors::OrgPosition(self.name()?),
            "Ability" => Actors::Ability(self.name()?),
            "NodePerformingAgent" => Actors::Performer(self.name()?),
            "OrgUnitOf" => Actors::UnitOfPerformer(self.performer()?),
            "ManagerOf" => Actors::ManagerOfPerformer(self.performer()?),
            "StartingAgent" => Actors::Starter,
            _ => return Err(unknown_form(form, column)),
        };
        self.expect(')', "`)`")?;
        Ok(actors)
    }

    /// The word before a parenthesis.
    fn form(&mut self) -> Result<&'t str, SyntaxError> {
        const EXPECTED: &str = "a form such as Role(…), or `(`";
        self.skip_space();
        let (column, word) = (self.column(), self.word());
        if FORMS.contains(&word) {
            self.place += word.len();
            return Ok(word);
        }
        if word.is_empty() || ["AND", "OR", "EXCEPT"].iter().any(|w| w.eq_ignore_ascii_case(word)) {
            return Err(self.unexpected(EXPECTED));
        }
        Err(unknown_form(word, column))
    }

    fn performer(&mut self) -> Result<Arc<str>, SyntaxError> {
        self.skip_space();
        if self.word() != "NodePerformingAgent" {
            return Err(self.unexpected("NodePerformingAgent(…)"));
        }
        self.place += self.word().len();
        self.expect('(', "`(`")?;
        let step = self.name()?;
        self.expect(')', "`)`")?;
        Ok(step)
    }

    fn reach(&mut self) -> UnitReach {
        if self.eat('*') {
            UnitReach::AndBelow
        } else if self.eat('+') {
            UnitReach::Below
        } else {
            UnitReach::Itself
        }
    }

    fn name(&mut self) -> Result<Arc<str>, SyntaxError> {
        const EXPECTED: &str = "a name, in quotes if it holds spaces";
        let column = self.column_of_next();
        let name = match self.peek() {
            Some('"') => self.quoted()?,
            Some(c) if is_bare(c) => {
                let rest = self.rest();
                let end = rest.find(|c| !is_bare(c)).unwrap_or(rest.len());
                self.place += end;
                rest[..end].to_owned()
            }
            Some(_) | None => return Err(self.unexpected(EXPECTED)),
        };
        if name.is_empty() || name.chars().nth(RULE_NAME_LEN_MAX).is_some() {
            return Err(SyntaxError::NameLength { column });
        }
        Ok(Arc::from(name))
    }

    /// A name in quotes, in which `\"` and `\\` stand for `"` and `\`.
    fn quoted(&mut self) -> Result<String, SyntaxError> {
        let rest = self.rest();
        let mut name = String::new();
        let mut chars = rest.char_indices().skip(1);
        while let Some((place, c)) = chars.next() {
            match c {
                '"' => {
                    self.place += place + 1;
                    return Ok(name);
                }
                '\\' => match chars.next() {
                    Some((_, escaped @ ('"' | '\\'))) => name.push(escaped),
                    Some((place, _)) => {
                        self.place += place;
                        return Err(self.unexpected("`\"` or `\\` after `\\`"));
                    }
                    None => break,
                },
                c => name.push(c),
            }
        }
        self.place = self.text.len();
        Err(self.unexpected("a closing quote"))
    }

    fn rest(&self) -> &'t str {
        &self.text[self.place..]
    }

    fn skip_space(&mut self) {
        self.place = self.text.len() - self.rest().trim_start().len();
    }

    fn peek(&mut self) -> Option<char> {
        self.skip_space();
        self.rest().chars().next()
    }

    fn word(&self) -> &'t str {
        let rest = self.rest();
        &rest[..rest.find(|c: char| !c.is_alphanumeric()).unwrap_or(rest.len())]
    }

    fn eat_word(&mut self, word: &str) -> bool {
        self.skip_space();
        let found = self.word().eq_ignore_ascii_case(word);
        if found {
            self.place += word.len();
        }
        found
    }

    fn eat(&mut self, c: char) -> bool {
        let found = self.peek() == Some(c);
        if found {
            self.place += c.len_utf8();
        }
        found
    }

    fn expect(&mut self, c: char, expected: &'static str) -> Result<(), SyntaxError> {
        if self.eat(c) { Ok(()) } else { Err(self.unexpected(expected)) }
    }

    fn column(&self) -> u32 {
        // At most RULE_LEN_MAX.
        self.text[..self.place].chars().count() as u32 + 1
    }

    fn column_of_next(&mut self) -> u32 {
        self.skip_space();
        self.column()
    }

    fn unexpected(&mut self, expected: &'static str) -> SyntaxError {
        let column = self.column_of_next();
        let found = match self.rest().chars().next() {
            None => "the end".to_owned(),
            Some(c) if c.is_alphanumeric() => format!("`{}`", shortened(self.word())),
            Some(c) => format!("`{c}`"),
        };
        SyntaxError::Unexpected { column, expected, found }
    }
}

fn unknown_form(word: &str, column: u32) -> SyntaxError {
    let same = |form: &&&str| form.eq_ignore_ascii_case(word);
    let meant = FORMS.iter().find(same).copied().or_else(|| nearest(word, FORMS.into_iter()));
    let found = shortened(word);
    match meant {
        Some(meant) => SyntaxError::Misspelled { column, found, meant },
        None => SyntaxError::Unexpected {
            column,
            expected: "a form: Agent, Role, OrgUnit, OrgPosition, Ability, NodePerformingAgent, \
                       OrgUnitOf, ManagerOf or StartingAgent",
            found: format!("`{found}`"),
        },
    }
}

fn shortened(word: &str) -> String {
    word.chars().take(32).collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn actors() -> impl Strategy<Value = Actors> {
        let name = || "[a-zäß0-9_.@-]{1,8}|[ -~äß]{1,12}".prop_map(|name| Arc::from(name.as_str()));
        prop_oneof![
            Just(Actors::Starter),
            Just(Actors::Agent(None)),
            name().prop_map(|name| Actors::Agent(Some(name))),
            name().prop_map(Actors::Role),
            (name(), 0..3_usize).prop_map(|(name, reach)| {
                let reaches = [UnitReach::Itself, UnitReach::AndBelow, UnitReach::Below];
                Actors::OrgUnit(name, reaches[reach])
            }),
            name().prop_map(Actors::OrgPosition),
            name().prop_map(Actors::Ability),
            name().prop_map(Actors::Performer),
            name().prop_map(Actors::UnitOfPerformer),
            name().prop_map(Actors::ManagerOfPerformer),
        ]
    }

    fn rule() -> impl Strategy<Value = Rule> {
        actors().prop_map(Rule::Are).prop_recursive(4, 16, 3, |inner| {
            let list = || proptest::collection::vec(inner.clone(), 2..=3);
            prop_oneof![
                list().prop_map(Rule::Any),
                list().prop_map(Rule::All),
                (inner.clone(), inner.clone())
                    .prop_map(|(a, b)| Rule::Except(Box::new(a), Box::new(b))),
            ]
        })
    }

    proptest! {
        #[test]
        fn a_rule_reads_back_from_its_text(rule in rule()) {
            let text = rule.to_string();
            prop_assert_eq!(text.parse(), Ok(rule), "{}", text);
        }

        #[test]
        fn any_text_gives_a_rule_or_an_error_with_its_column(
            text in r#"([A-Za-z]{1,3}|Role|Agent|OrgUnitOf|\(|\)|"|\\| |\*|AND|or|EXCEPT|ä){0,40}"#
        ) {
            if let Err(error) = text.parse::<Rule>() {
                prop_assert!(error.column() as usize <= text.chars().count() + 1);
            }
        }
    }

    #[test]
    fn and_binds_tighter_than_or_and_except_tighter_than_both() {
        let rule: Rule = "Role(a) or Role(b) And Role(c) except StartingAgent()".parse().unwrap();
        assert_eq!(rule.to_string(), "Role(a) OR (Role(b) AND Role(c) EXCEPT StartingAgent())");
        let Rule::Any(parts) = &rule else { panic!("{rule:?}") };
        let Rule::All(parts) = &parts[1] else { panic!("{rule:?}") };
        assert!(matches!(parts[1], Rule::Except(..)), "{rule:?}");
    }

    #[test]
    fn forms_are_read_as_the_guide_spells_them() {
        for text in [
            "Agent()",
            "Agent(ann)",
            "Role(\"senior clerk\")",
            "OrgUnit(sales*) AND Ability(french)",
            "OrgUnit(\"back \\\"office\\\"\"+)",
            "OrgPosition(head.of@sales)",
            "(Role(a) OR Role(b)) EXCEPT NodePerformingAgent(capture)",
            "OrgUnitOf(NodePerformingAgent(capture)) EXCEPT (Role(a) OR StartingAgent())",
            "ManagerOf(NodePerformingAgent(capture))",
        ] {
            assert_eq!(text.parse::<Rule>().map(|rule| rule.to_string()).as_deref(), Ok(text));
        }
        let spaced: Rule = " Role ( a )\n\tEXCEPT OrgUnit( b + ) ".parse().unwrap();
        assert_eq!(spaced.to_string(), "Role(a) EXCEPT OrgUnit(b+)");
    }

    #[test]
    fn mistakes_are_told_with_their_column_and_what_was_expected() {
        for (text, message) in [
            ("", "at column 1: expected a form such as Role(…), or `(`, found the end"),
            ("Role(", "at column 6: expected a name, in quotes if it holds spaces, found the end"),
            ("Role(a b)", "at column 8: expected `)`, found `b`"),
            ("Role(\"a", "at column 8: expected a closing quote, found the end"),
            ("Role(\"\\a\")", "at column 8: expected `\"` or `\\` after `\\`, found `a`"),
            ("Role(\"\")", "at column 6: a name is empty or longer than 128 characters"),
            ("role(a)", "at column 1: there is no form `role`; did you mean `Role`?"),
            (
                "Role(a) Role(b)",
                "at column 9: expected AND, OR, EXCEPT or the end of the rule, found `Role`",
            ),
            ("Role(a) AND OR", "at column 13: expected a form such as Role(…), or `(`, found `OR`"),
            ("(Role(a)", "at column 9: expected AND, OR, EXCEPT or `)`, found the end"),
            ("Agent(a*)", "at column 8: expected `)`, found `*`"),
            ("StartingAgent(x)", "at column 15: expected `)`, found `x`"),
            ("ManagerOf(Role(a))", "at column 11: expected NodePerformingAgent(…), found `Role`"),
        ] {
            let error = text.parse::<Rule>().unwrap_err();
            assert_eq!(error.to_string(), message, "{text}");
        }
    }

    #[test]
    fn rules_have_limits() {
        let deep = |levels| format!("{}Agent(){}", "(".repeat(levels), ")".repeat(levels));
        assert!(deep(RULE_DEPTH_MAX).parse::<Rule>().is_ok());
        let error = deep(RULE_DEPTH_MAX + 1).parse::<Rule>().unwrap_err();
        assert_eq!(error, SyntaxError::TooDeep { column: RULE_DEPTH_MAX as u32 + 1 });
        let side_by_side = vec!["(Agent())"; RULE_DEPTH_MAX + 1].join(" OR ");
        assert!(side_by_side.parse::<Rule>().is_ok());
        let long = "(".repeat(10_000_000);
        assert_eq!(long.parse::<Rule>(), Err(SyntaxError::TooLong));
    }
}
