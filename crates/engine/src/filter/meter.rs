//! The meter: what an evaluation may still cost, and the functions that a checked expression asks
//! it by. Each takes the meter as its first argument and hands on the value it charged for.
//!
//! A step is about what it takes to evaluate one node of the expression. Whoever repeats something
//! pays for all repetitions beforehand, whoever touches a value pays for its size; what is left is
//! the expression itself, once, and that is bounded by its length. So the work is bounded, and the
//! memory with it.

use std::any::Any;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, LazyLock};

use cel::common::types::{
    CelBool, CelBytes, CelDouble, CelInt, CelList, CelMap, CelString, DYN_TYPE, INT_TYPE, Kind,
    Type,
};
use cel::common::value::{CowVal, StaticVal, Val};
use cel::{DeclarationError, Env, ExecutionError};

use super::pattern::{PATTERN_TYPE, Pattern};

/// The steps that one evaluation may take, and those of all filters on one event.
pub const MAX_STEPS: u64 = 1_000_000;
pub const MAX_STEPS_PER_EVENT: u64 = 3_000_000;

/// How much of a text is one step: to copy, to compare, to search.
const TEXT_BYTES_PER_STEP: usize = 16;

/// What an entry of a map takes beside its key and its value.
const STEPS_PER_ENTRY: u64 = 2;

/// A double below it that is whole is the same number as an int.
const MAX_INDEX: f64 = 9e15;

/// The variable that the meter is bound to. No expression can spell it.
pub(super) const METER: &str = "@meter";

/// Charges for the whole of a value.
pub(super) const WHOLE: &str = "@whole";
/// Charges for a text, and next to nothing for a list or a map that is not looked into.
pub(super) const OUTSIDE: &str = "@outside";
/// Charges for an index or a key.
pub(super) const KEY: &str = "@key";
/// Charges for a loop over a value, given the steps of one turn.
pub(super) const LOOP: &str = "@loop";
/// `in`: a value is compared with each element.
pub(super) const MEMBER: &str = "@member";
/// `matches`, with a [`Pattern`].
pub(super) const MATCHES: &str = "@matches";

/// What all filters are evaluated with: the standard functions without the optional types, and
/// those that charge.
pub(super) fn env() -> Arc<Env> {
    static ENV: LazyLock<Arc<Env>> = LazyLock::new(|| {
        let mut env = Env::default().with_optional_support(false).with_stdlib();
        declare(&mut env).expect("the names begin with @, which no other function's does");
        Arc::new(env)
    });
    Arc::clone(&ENV)
}

fn declare(env: &mut Env) -> Result<(), DeclarationError> {
    let meter = || METER_TYPE.to_owned();
    env.add_overload(WHOLE, WHOLE, vec![meter(), DYN_TYPE], whole)?;
    env.add_overload(OUTSIDE, OUTSIDE, vec![meter(), DYN_TYPE], outside)?;
    env.add_overload(KEY, KEY, vec![meter(), DYN_TYPE], key)?;
    env.add_overload(LOOP, LOOP, vec![meter(), DYN_TYPE, INT_TYPE], each)?;
    env.add_overload(MEMBER, MEMBER, vec![meter(), DYN_TYPE, DYN_TYPE], member)?;
    env.add_overload(MATCHES, MATCHES, vec![meter(), DYN_TYPE, PATTERN_TYPE.to_owned()], matches)
}

type Args<'b, 'v> = Vec<CowVal<'b, 'v>>;
type Answer<'b, 'v> = Result<CowVal<'b, 'v>, ExecutionError>;

fn whole<'b, 'v>(mut args: Args<'b, 'v>) -> Answer<'b, 'v> {
    let meter = Meter::of(&args)?;
    meter.charge(weigh(args[1].as_ref(), meter.left()))?;
    Ok(args.swap_remove(1))
}

fn outside<'b, 'v>(mut args: Args<'b, 'v>) -> Answer<'b, 'v> {
    Meter::of(&args)?.charge(weigh_outside(args[1].as_ref()))?;
    Ok(args.swap_remove(1))
}

fn key<'b, 'v>(mut args: Args<'b, 'v>) -> Answer<'b, 'v> {
    Meter::of(&args)?.charge(weigh_outside(args[1].as_ref()))?;
    // The evaluator answers a broken index with an error that holds a copy of the whole list.
    if let Some(number) = args[1].downcast_ref::<CelDouble>()
        && !(number.inner().fract() == 0.0 && number.inner().abs() < MAX_INDEX)
    {
        return Err(ExecutionError::no_such_overload("_[_]", vec!["list".into(), "double".into()]));
    }
    Ok(args.swap_remove(1))
}

fn each<'b, 'v>(mut args: Args<'b, 'v>) -> Answer<'b, 'v> {
    let meter = Meter::of(&args)?;
    let turn = args[2].downcast_ref::<CelInt>().map_or(0, |steps| steps.inner().unsigned_abs());
    let turns = elements(args[1].as_ref());
    // Each turn begins with a copy of its element.
    let copies = weigh(args[1].as_ref(), meter.left());
    meter.charge(turns.saturating_mul(turn).saturating_add(copies))?;
    Ok(args.swap_remove(1))
}

#[allow(clippy::needless_pass_by_value, reason = "the evaluator calls it so")]
fn member<'b, 'v>(args: Args<'b, 'v>) -> Answer<'b, 'v> {
    let meter = Meter::of(&args)?;
    let (value, holder) = (args[1].as_ref(), args[2].as_ref());
    let comparisons = match holder.get_type().kind() {
        Kind::List => elements(holder),
        _ => 1,
    };
    let one = weigh(value, meter.left());
    meter.charge(one.saturating_mul(comparisons).saturating_add(1))?;
    let mismatch = || {
        let types = [value, holder].map(|value| value.get_type().name().to_owned());
        ExecutionError::no_such_overload("@in", types.to_vec())
    };
    let holder = holder.as_container().ok_or_else(mismatch)?;
    let found = holder.contains(value).map_err(|_| mismatch())?;
    Ok(CowVal::owned(CelBool::from(found)))
}

#[allow(clippy::needless_pass_by_value, reason = "the evaluator calls it so")]
fn matches<'b, 'v>(args: Args<'b, 'v>) -> Answer<'b, 'v> {
    let meter = Meter::of(&args)?;
    let text = args[1].downcast_ref::<CelString>();
    let pattern = args[2].downcast_ref::<Pattern>();
    let (Some(text), Some(pattern)) = (text, pattern) else {
        let types = vec![args[1].get_type().name().to_owned(), "string".to_owned()];
        return Err(ExecutionError::no_such_member_overload("matches", types));
    };
    meter.charge(weigh_outside(text))?;
    Ok(CowVal::owned(CelBool::from(pattern.is_match(text))))
}

/// The steps that it takes to copy a value or to compare it, or anything above `limit`.
fn weigh(value: &dyn Val, limit: u64) -> u64 {
    let mut steps = weigh_outside(value);
    match value.get_type().kind() {
        Kind::List => {
            for item in value.downcast_ref::<CelList>().into_iter().flat_map(CelList::inner) {
                if steps > limit {
                    break;
                }
                steps += weigh(item.as_ref(), limit);
            }
        }
        Kind::Map => {
            for (name, item) in value.downcast_ref::<CelMap>().into_iter().flat_map(CelMap::inner) {
                if steps > limit {
                    break;
                }
                steps +=
                    STEPS_PER_ENTRY + weigh_outside(name.inner()) + weigh(item.as_ref(), limit);
            }
        }
        _ => {}
    }
    steps
}

fn weigh_outside(value: &dyn Val) -> u64 {
    let bytes = match value.get_type().kind() {
        Kind::String => value.downcast_ref::<CelString>().map_or(0, |text| text.len()),
        Kind::Bytes => value.downcast_ref::<CelBytes>().map_or(0, |bytes| bytes.inner().len()),
        _ => 0,
    };
    text_steps(bytes)
}

/// The steps that a value takes which is so many bytes of text, or none.
pub(super) fn text_steps(bytes: usize) -> u64 {
    1 + u64::try_from(bytes / TEXT_BYTES_PER_STEP).unwrap_or(u64::MAX)
}

/// The elements of a list or map.
fn elements(value: &dyn Val) -> u64 {
    match value.get_type().kind() {
        Kind::List | Kind::Map => {
            value.as_sizer().map_or(0, |sizer| sizer.size().inner().unsigned_abs())
        }
        _ => 0,
    }
}

static METER_TYPE: Type = Type::new_unspecified_type("meter");

/// What one evaluation has left.
#[derive(Debug)]
pub(super) struct Meter {
    left: AtomicU64,
    exhausted: AtomicBool,
}

impl Meter {
    pub(super) fn new(steps: u64) -> Self {
        Self { left: AtomicU64::new(steps), exhausted: AtomicBool::new(false) }
    }

    pub(super) fn is_exhausted(&self) -> bool {
        self.exhausted.load(Ordering::Relaxed)
    }

    fn of<'m>(args: &'m [CowVal<'_, '_>]) -> Result<&'m Self, ExecutionError> {
        let meter = args.first().and_then(|meter| meter.downcast_ref::<Self>());
        meter.ok_or(ExecutionError::MissingArgumentOrTarget)
    }

    pub(super) fn left(&self) -> u64 {
        self.left.load(Ordering::Relaxed)
    }

    /// Once a charge was too high every further one is, so that the rest ends quickly.
    pub(super) fn charge(&self, steps: u64) -> Result<(), ExecutionError> {
        if let Some(left) = self.left().checked_sub(steps) {
            self.left.store(left, Ordering::Relaxed);
            return Ok(());
        }
        self.left.store(0, Ordering::Relaxed);
        self.exhausted.store(true, Ordering::Relaxed);
        Err(ExecutionError::InternalError("too many steps".to_owned()))
    }
}

impl Val for Meter {
    fn get_type(&self) -> &Type {
        &METER_TYPE
    }

    fn cel_type() -> &'static Type {
        &METER_TYPE
    }

    /// Nothing copies the meter, since no expression can name it. A copy would be empty.
    fn clone_as_boxed<'v>(&self) -> Box<dyn Val + 'v> {
        Box::new(Self { left: AtomicU64::new(0), exhausted: AtomicBool::new(true) })
    }

    fn as_any(&self) -> Option<&dyn Any> {
        Some(self)
    }
}

impl StaticVal for Meter {}
