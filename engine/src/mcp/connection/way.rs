//! In which order the ways to speak to a server are tried, and which failure leads to the next one.

use super::super::Era;
use super::super::config::{EraChoice, Transport};
use super::negotiate::{Kind, Refused};

/// A way to speak to a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Way {
    /// `initialize`, over a process' pipes or Streamable HTTP.
    Legacy,
    /// The stateless revisions.
    Modern,
    /// `initialize` over HTTP+SSE.
    Sse,
}

impl Way {
    const ALL: [Self; 3] = [Self::Legacy, Self::Modern, Self::Sse];

    /// The name that is stored.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Legacy => "legacy",
            Self::Modern => "modern",
            Self::Sse => "sse",
        }
    }

    /// The way of that name, where there is one.
    pub(super) fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|way| way.name() == name)
    }

    pub(super) fn era(self) -> Era {
        match self {
            Self::Legacy | Self::Sse => Era::Legacy,
            Self::Modern => Era::Modern,
        }
    }
}

/// The ways in the order in which they are tried, and which one worked last.
#[derive(Debug)]
pub(super) struct Order {
    left: Vec<Way>,
    known: Option<Way>,
    choice: EraChoice,
    /// An answer looked like one of an address of the older kind.
    older: bool,
}

impl Order {
    /// Every server known to us accepts `initialize`, so that comes first unless another way worked last.
    pub(super) fn of(transport: &Transport, choice: EraChoice, known: Option<Way>) -> Result<Self, &'static str> {
        let mut left = match (transport, choice) {
            (Transport::Sse { .. }, EraChoice::Modern) => {
                return Err("\"type\": \"sse\" knows no modern era; set \"era\" to \"auto\", or \"type\" to \"http\"");
            }
            (Transport::Sse { .. }, EraChoice::Auto | EraChoice::Legacy) => vec![Way::Sse],
            (_, EraChoice::Modern) => vec![Way::Modern],
            (Transport::Http { .. }, EraChoice::Legacy) => vec![Way::Legacy, Way::Sse],
            (Transport::Http { .. }, EraChoice::Auto) => vec![Way::Legacy, Way::Sse, Way::Modern],
            (Transport::Stdio { .. }, EraChoice::Legacy) => vec![Way::Legacy],
            (Transport::Stdio { .. }, EraChoice::Auto) => vec![Way::Legacy, Way::Modern],
        };
        let known = known.filter(|known| left.contains(known));
        left.sort_by_key(|way| Some(*way) != known);
        Ok(Self { left, known, choice, older: false })
    }

    /// The first way.
    pub(super) fn first(&mut self) -> Option<Way> {
        if self.left.is_empty() { None } else { Some(self.left.remove(0)) }
    }

    /// Whether another way may follow this one, which must then not take for ever.
    pub(super) fn goes_on(&self) -> bool {
        self.left.iter().any(|way| *way != Way::Sse)
    }

    /// The next way after this one failed, where that makes sense.
    pub(super) fn after(&mut self, way: Way, refused: &Refused) -> Option<Way> {
        self.older |= refused.older;
        let goes_on = match refused.failure.kind {
            Kind::Setup | Kind::SignIn => false,
            // What was known may be out of date.
            Kind::Server | Kind::Unreachable if self.known == Some(way) && way != Way::Legacy => true,
            // That the older kind of address is not there says nothing about the newest.
            Kind::Server if way == Way::Sse => self.known.is_none() && self.choice == EraChoice::Auto,
            // Some programs end at a first request that they do not know.
            Kind::Server if refused.failure.exit.is_some() => self.known.is_none() && self.choice == EraChoice::Auto,
            Kind::Server | Kind::Unreachable => refused.other_era,
        };
        if !goes_on {
            return None;
        }
        let older = self.older;
        self.left.retain(|way| *way != Way::Sse || older);
        self.first()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::super::negotiate::Failure;
    use super::*;

    fn http() -> Transport {
        Transport::Http { url: "https://x.test/mcp".to_owned(), headers: BTreeMap::new() }
    }

    fn stdio() -> Transport {
        Transport::Stdio { command: "x".to_owned(), args: Vec::new(), env: BTreeMap::new(), cwd: None }
    }

    fn refused(kind: Kind, other_era: bool, older: bool) -> Refused {
        Refused { failure: Failure { reason: String::new(), exit: None, kind }, other_era, older }
    }

    fn walk(transport: &Transport, choice: EraChoice, known: Option<Way>, failure: &Refused) -> Vec<Way> {
        let mut order = Order::of(transport, choice, known).unwrap();
        let mut ways: Vec<Way> = order.first().into_iter().collect();
        while let Some(next) = order.after(ways[ways.len() - 1], failure) {
            ways.push(next);
        }
        ways
    }

    #[test]
    fn initialize_comes_first_and_what_worked_last_before_that() {
        use Way::{Legacy, Modern, Sse};
        let foreign = refused(Kind::Server, true, true);
        assert_eq!(walk(&http(), EraChoice::Auto, None, &foreign), [Legacy, Sse, Modern]);
        assert_eq!(walk(&http(), EraChoice::Auto, Some(Modern), &foreign), [Modern, Legacy, Sse]);
        assert_eq!(walk(&http(), EraChoice::Auto, Some(Sse), &foreign), [Sse, Legacy, Modern]);
        let error = refused(Kind::Server, true, false);
        assert_eq!(walk(&http(), EraChoice::Auto, None, &error), [Legacy, Modern], "an error of the protocol is none of an older address");
        assert_eq!(walk(&stdio(), EraChoice::Auto, None, &error), [Legacy, Modern]);
        assert_eq!(walk(&stdio(), EraChoice::Auto, Some(Sse), &error), [Legacy, Modern], "no way of a process");
    }

    #[test]
    fn a_failed_try_of_the_older_kind_leads_on_to_the_newest() {
        let mut order = Order::of(&http(), EraChoice::Auto, None).unwrap();
        assert_eq!(order.first(), Some(Way::Legacy));
        assert_eq!(order.after(Way::Legacy, &refused(Kind::Server, true, true)), Some(Way::Sse));
        assert_eq!(order.after(Way::Sse, &refused(Kind::Server, false, false)), Some(Way::Modern));
        assert_eq!(order.after(Way::Modern, &refused(Kind::Server, true, false)), None);
    }

    #[test]
    fn a_chosen_era_is_the_only_one() {
        use Way::{Legacy, Modern, Sse};
        let foreign = refused(Kind::Server, true, true);
        assert_eq!(walk(&http(), EraChoice::Legacy, Some(Modern), &foreign), [Legacy, Sse]);
        assert_eq!(walk(&http(), EraChoice::Modern, Some(Legacy), &foreign), [Modern]);
        assert_eq!(walk(&stdio(), EraChoice::Legacy, None, &foreign), [Legacy]);
        let sse = Transport::Sse { url: "http://x.test/sse".to_owned(), headers: BTreeMap::new() };
        assert_eq!(walk(&sse, EraChoice::Auto, Some(Modern), &foreign), [Sse]);
        assert!(Order::of(&sse, EraChoice::Modern, None).unwrap_err().contains("\"era\""));
    }

    #[test]
    fn a_sign_in_a_wrong_entry_and_silence_lead_nowhere_else_but_a_stale_verdict_does() {
        use Way::{Legacy, Modern};
        for kind in [Kind::SignIn, Kind::Setup] {
            assert_eq!(walk(&http(), EraChoice::Auto, Some(Modern), &refused(kind, true, true)), [Modern]);
        }
        let silent = refused(Kind::Server, false, false);
        assert_eq!(walk(&stdio(), EraChoice::Auto, None, &silent), [Legacy]);
        assert_eq!(walk(&stdio(), EraChoice::Auto, Some(Modern), &silent), [Modern, Legacy]);
    }
}
