//! A cache that is bounded by bytes: footers and deletion vectors live in it from batch to batch.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Values by name; the least recently used go first once all together pass the bound.
#[derive(Debug)]
pub(super) struct ByteCache<T> {
    bytes_max: usize,
    inner: Mutex<Inner<T>>,
}

#[derive(Debug)]
struct Inner<T> {
    entries: HashMap<String, Entry<T>>,
    bytes: usize,
    clock: u64,
}

#[derive(Debug)]
struct Entry<T> {
    value: Arc<T>,
    bytes: usize,
    used: u64,
}

impl<T> ByteCache<T> {
    pub fn new(bytes_max: usize) -> Self {
        Self { bytes_max, inner: Mutex::new(Inner { entries: HashMap::new(), bytes: 0, clock: 0 }) }
    }

    pub fn get(&self, name: &str) -> Option<Arc<T>> {
        let mut inner = self.lock();
        inner.clock += 1;
        let clock = inner.clock;
        let entry = inner.entries.get_mut(name)?;
        entry.used = clock;
        Some(entry.value.clone())
    }

    /// Keeps `value` of the given size, unless it alone is larger than the cache.
    pub fn put(&self, name: &str, value: Arc<T>, bytes: usize) {
        let mut inner = self.lock();
        inner.remove(name);
        if bytes > self.bytes_max {
            return;
        }
        inner.clock += 1;
        let entry = Entry { value, bytes, used: inner.clock };
        inner.entries.insert(name.to_string(), entry);
        inner.bytes += bytes;
        while inner.bytes > self.bytes_max && inner.evict() {}
    }

    pub fn remove(&self, name: &str) {
        self.lock().remove(name);
    }

    /// A panic elsewhere leaves the map whole, for no code of ours runs between its changes.
    fn lock(&self) -> MutexGuard<'_, Inner<T>> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<T> Inner<T> {
    fn remove(&mut self, name: &str) {
        if let Some(entry) = self.entries.remove(name) {
            self.bytes -= entry.bytes;
        }
    }

    fn evict(&mut self) -> bool {
        let oldest = self.entries.iter().min_by_key(|(_, entry)| entry.used).map(|(name, _)| name.clone());
        let found = oldest.is_some();
        oldest.inspect(|name| self.remove(name));
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(steps: &[(&str, usize)], kept: &[&str]) {
        let cache = ByteCache::new(10);
        for (name, bytes) in steps {
            if *bytes == 0 {
                cache.get(name);
            } else {
                cache.put(name, Arc::new(()), *bytes);
            }
        }
        let inner = cache.lock();
        let mut names: Vec<_> = inner.entries.keys().cloned().collect();
        names.sort();
        assert_eq!(names, kept);
        assert_eq!(inner.bytes, inner.entries.values().map(|entry| entry.bytes).sum::<usize>());
    }

    #[test]
    fn the_least_recently_used_goes_first() {
        check(&[("a", 4), ("b", 4), ("c", 4)], &["b", "c"]);
        check(&[("a", 4), ("b", 4), ("a", 0), ("c", 4)], &["a", "c"]);
    }

    #[test]
    fn what_is_larger_than_the_cache_is_not_kept() {
        check(&[("a", 4), ("b", 11)], &["a"]);
        check(&[("a", 4), ("a", 11)], &[]);
    }

    #[test]
    fn a_new_value_replaces_the_old_one() {
        check(&[("a", 4), ("a", 9)], &["a"]);
    }
}
