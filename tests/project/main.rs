//! The project itself: texts that must be true, files in order, lists of faults that fit.

mod extending;
mod faults;
mod readme;
mod tidy;
mod words;
