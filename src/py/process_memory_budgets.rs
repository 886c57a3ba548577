//! The memory budgets of this process. Servers with the same number of bytes share one.

use std::sync::{Arc, Mutex, PoisonError, Weak};

use uringcore_io::PerProcess;
use uringcore_limits::memory_budget::Budget;

/// The memory budget of `bytes`. All servers of this process with the same number share one.
pub fn budget_of(bytes: usize) -> Arc<Budget> {
    let mut budgets = BUDGETS.get().lock().unwrap_or_else(PoisonError::into_inner);
    budgets.retain(|budget| budget.strong_count() > 0);
    let mut known = budgets.iter().filter_map(Weak::upgrade);
    if let Some(budget) = known.find(|budget| budget.limit() == bytes) {
        return budget;
    }
    let budget = Budget::new(bytes);
    budgets.push(Arc::downgrade(&budget));
    budget
}

/// The budgets in use. A forked child begins without any, because it has no connections that would release their bytes.
static BUDGETS: PerProcess<Mutex<Vec<Weak<Budget>>>> = PerProcess::new();
