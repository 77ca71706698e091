//! Plan and actual, side by side.

use crate::Session;
use crate::memory::probe::{self, Resident};
use crate::memory::smaps::Area;
use crate::plan::{Kind, Section, name};

/// What a section may differ from its plan, as a part of it.
pub const TOLERANCE: f64 = 0.10;

/// A section of the plan and what it holds.
#[derive(Clone, Debug, PartialEq)]
pub struct SectionActual {
    /// As planned.
    pub section: Section,
    /// Bytes held: resident pages of regions and mappings, heap as the allocator counted it; `None` for what cannot be
    /// read here.
    pub actual: Option<u64>,
    /// Whether `section` is what may be held at most: rows that a text may or may not use, weights that stream.
    pub at_most: bool,
}

impl SectionActual {
    /// `actual / planned - 1`; 0 for an empty section that is empty.
    pub fn drift(&self) -> Option<f64> {
        let (plan, actual) = (self.section.bytes as f64, self.actual? as f64);
        Some(match plan {
            0.0 if actual == 0.0 => 0.0,
            _ => actual / plan - 1.0,
        })
    }

    /// Whether plan and actual agree within [`TOLERANCE`]. Less than planned is agreement where
    /// [`SectionActual::at_most`].
    pub fn is_kept(&self) -> Option<bool> {
        let drift = self.drift()?;
        let floor = match self.at_most {
            true => f64::NEG_INFINITY,
            false => -TOLERANCE - 1e-9,
        };
        // Room for the rounding of the quotient.
        Some((floor..TOLERANCE + 1e-9).contains(&drift))
    }
}

/// The whole plan held against the process.
#[derive(Clone, Debug)]
pub struct Held {
    /// Each section.
    pub sections: Vec<SectionActual>,
    /// Bytes of all of them together.
    pub planned: u64,
    /// Resident memory now, and the highest it ever was.
    pub resident: Option<Resident>,
}

impl Held {
    /// Whether every section agrees with its plan, and the process never held more than all of it. `None` where
    /// something cannot be read.
    pub fn is_kept(&self) -> Option<bool> {
        let sections: Option<Vec<bool>> =
            self.sections.iter().map(SectionActual::is_kept).collect();
        let resident = self.resident?;
        let within = resident.total().max(resident.peak) <= self.planned;
        Some(sections?.iter().all(|&kept| kept) && within)
    }
}

/// Holds the plan of `session` against what it and its process hold now; `sampler` are the heap bytes of the sampler that
/// goes with it, `text` those by which the tokenizer grew when it was used; with `streams` the mapped weights cannot all
/// be resident.
pub fn held(
    session: &Session,
    sampler: Option<usize>,
    text: Option<usize>,
    areas: Option<&[Area]>,
    streams: bool,
) -> Held {
    let (model, plan) = (session.model(), session.plan());
    let spec = &model.spec;
    let file = areas.map(|areas| spec.file.resident(areas, spec.graph.sparse_table()));
    let bytes = |n: Option<usize>| n.map(|n| n as u64);
    let mut known = session.held(areas);
    known.extend([
        (name::WEIGHTS, file.map(|(weights, _)| weights)),
        (name::ROWS, file.map(|(_, rows)| rows)),
        (name::SAMPLER, bytes(sampler)),
        (
            name::TOKENIZER,
            bytes(model.tokenizer_heap().zip(text).map(|(a, b)| a + b)),
        ),
        (name::HEADER, bytes(spec.heap_bytes())),
    ]);
    let resident = probe::resident();
    let others: Option<u64> = known.iter().map(|(_, bytes)| *bytes).sum();
    // What is resident and belongs to no other section.
    let base = resident
        .zip(others)
        .map(|(r, n)| r.total().saturating_sub(n));
    known.push((name::BASE, base));
    let sections: Vec<SectionActual> = plan
        .sections()
        .iter()
        .map(|section| SectionActual {
            section: section.clone(),
            at_most: match section.kind {
                Kind::ByRow => true,
                Kind::Mapped => streams,
                _ => false,
            },
            actual: known
                .iter()
                .find(|(name, _)| *name == section.name)
                .and_then(|(_, bytes)| *bytes),
        })
        .collect();
    Held {
        planned: sections
            .iter()
            .map(|s| s.section.bytes)
            .fold(0, u64::saturating_add),
        sections,
        resident,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(plan: u64, actual: Option<u64>, kind: Kind) -> SectionActual {
        let section = Section {
            name: name::WEIGHTS,
            bytes: plan,
            kind,
        };
        SectionActual {
            at_most: kind == Kind::ByRow,
            section,
            actual,
        }
    }

    #[test]
    fn agreement_is_ten_percent_either_way() {
        let kept = |plan, actual, kind| of(plan, actual, kind).is_kept();
        assert_eq!(kept(100, Some(110), Kind::Committed), Some(true));
        assert_eq!(kept(100, Some(111), Kind::Committed), Some(false));
        assert_eq!(kept(100, Some(89), Kind::Mapped), Some(false));
        assert_eq!(kept(100, Some(1), Kind::ByRow), Some(true));
        assert_eq!(kept(100, Some(111), Kind::ByRow), Some(false));
        assert_eq!(kept(100, None, Kind::Mapped), None);
        assert_eq!(kept(0, Some(0), Kind::Reserved), Some(true));
        assert_eq!(kept(0, Some(1), Kind::Reserved), Some(false));
        let streamed = |actual| SectionActual {
            at_most: true,
            ..of(100, Some(actual), Kind::Mapped)
        };
        assert_eq!(streamed(40).is_kept(), Some(true));
        assert_eq!(streamed(111).is_kept(), Some(false));
    }

    #[test]
    fn more_in_all_than_planned_is_not_kept() {
        let held = |resident, peak| Held {
            sections: vec![of(100, Some(100), Kind::Committed)],
            planned: 100,
            resident: Some(Resident {
                anon: resident,
                file: 0,
                peak,
            }),
        };
        assert_eq!(held(100, 100).is_kept(), Some(true));
        assert_eq!(held(90, 101).is_kept(), Some(false));
        let blind = Held {
            resident: None,
            ..held(1, 1)
        };
        assert_eq!(blind.is_kept(), None);
    }
}
