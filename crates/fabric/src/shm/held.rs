//! Memory that posted verbs keep alive, without touching a shared reference count per verb: a small table of the regions
//! used lately, each counted once, with a private count of the verbs that use it.

use std::sync::Arc;

/// How many regions are remembered when no verb uses them.
const IDLE_MAX: usize = 16;

/// The table. Places are stable while a verb uses them.
#[derive(Debug)]
pub(crate) struct Held<T> {
    places: Vec<Option<(Arc<T>, u32)>>,
    latest: usize,
}

impl<T> Held<T> {
    pub(crate) fn new() -> Self {
        Self { places: Vec::with_capacity(IDLE_MAX), latest: 0 }
    }

    /// A table that stands in for another for a moment.
    pub(crate) fn none() -> Self {
        Self { places: Vec::new(), latest: 0 }
    }

    /// Another owner of what is held at a place.
    pub(crate) fn share(&self, index: u32) -> Arc<T> {
        match &self.places[index as usize] {
            Some((item, _)) => item.clone(),
            None => unreachable!("a verb uses a place that is not held"),
        }
    }

    /// Keeps something alive for one more verb and says where.
    #[inline]
    pub(crate) fn hold(&mut self, item: &Arc<T>) -> u32 {
        if let Some(Some((held, uses))) = self.places.get_mut(self.latest)
            && Arc::ptr_eq(held, item)
        {
            *uses += 1;
            return self.latest as u32;
        }
        self.find(item)
    }

    fn find(&mut self, item: &Arc<T>) -> u32 {
        let same =
            |place: &Option<(Arc<T>, u32)>| place.as_ref().is_some_and(|(held, _)| Arc::ptr_eq(held, item));
        let index = match self.places.iter().position(same) {
            Some(index) => {
                if let Some((_, uses)) = &mut self.places[index] {
                    *uses += 1;
                }
                index
            }
            None => {
                let index = self.room();
                self.places[index] = Some((item.clone(), 1));
                index
            }
        };
        self.latest = index;
        index as u32
    }

    /// A place that no verb uses.
    fn room(&mut self) -> usize {
        if let Some(index) = self.places.iter().position(Option::is_none) {
            return index;
        }
        if self.places.len() >= IDLE_MAX {
            let start = self.latest + 1;
            let unused = |index: &usize| self.places[*index].as_ref().is_none_or(|(_, uses)| *uses == 0);
            let count = self.places.len();
            if let Some(index) = (start..start + count).map(|index| index % count).find(unused) {
                return index;
            }
        }
        self.places.push(None);
        self.places.len() - 1
    }

    /// What is held at a place.
    #[inline(always)]
    pub(crate) fn get(&self, index: u32) -> &T {
        match &self.places[index as usize] {
            Some((item, _)) => item,
            None => unreachable!("a verb uses a place that is not held"),
        }
    }

    /// One verb less uses a place.
    #[inline(always)]
    pub(crate) fn release(&mut self, index: u32) {
        if let Some((_, uses)) = &mut self.places[index as usize] {
            *uses -= 1;
        }
    }

    /// Gives up what nobody else has and no verb uses.
    pub(crate) fn sweep(&mut self) {
        for place in &mut self.places {
            if place.as_ref().is_some_and(|(item, uses)| *uses == 0 && Arc::strong_count(item) == 1) {
                *place = None;
            }
        }
    }
}
