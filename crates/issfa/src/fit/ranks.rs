//! How the ranks of a fit are divided, and what they tell each other between sweeps: where to start, what comes next, and
//! that they still agree.

use super::Ending;
use super::chain_run::Next;
use crate::chain::Chain;
use crate::comm::{Comm, Solo};
use crate::compiled::Sampled;
use crate::error::{Error, Result, setting};
use crate::model::{Model, State};
use crate::numeric::bytes::{Bundle, Element, Stored};
use crate::run::checkpoint::Checkpoint;
use crate::run::codec::{put_state, take_state};
use crate::run::held::Held;
use crate::spectral::{BAND, Sharing};
use std::path::Path;
use std::sync::Arc;

/// The ranks of a fit: all of them, and those that share a chain with this one.
#[derive(Clone)]
pub struct Ranks {
    /// Every rank of the job.
    pub all: Arc<dyn Comm>,
    /// The ranks that run the same chains as this one, each holding a part of the data.
    pub own: Arc<dyn Comm>,
    /// Groups run different chains at the same time, each with the data to itself.
    pub n_groups: usize,
    /// That of this rank.
    pub group: usize,
    /// Rows of a band ([`BAND`] but in tests): ranks share whole bands, and results depend on its length, not on the ranks.
    pub band: usize,
}

impl Ranks {
    /// One process.
    pub fn alone() -> Ranks {
        Ranks::together(Arc::new(Solo))
    }

    /// All ranks share every chain.
    pub fn together(all: Arc<dyn Comm>) -> Ranks {
        Ranks { own: all.clone(), all, n_groups: 1, group: 0, band: BAND }
    }

    /// Groups of `per_chain` ranks; unless it is given, as many groups as go into the ranks and the chains.
    pub fn for_chains(all: Arc<dyn Comm>, n_chains: u32, per_chain: Option<usize>) -> Result<Ranks> {
        let (n_ranks, n_chains) = (all.size(), n_chains as usize);
        agree_on_groups(all.as_ref(), n_chains, per_chain)?;
        let per_chain = per_chain.unwrap_or_else(|| n_ranks / greatest_common_divisor(n_ranks, n_chains.max(1)));
        if per_chain == 0 || !n_ranks.is_multiple_of(per_chain) || n_ranks / per_chain > n_chains {
            let problem = format!(
                "must divide the {n_ranks} rank(s) into groups, at most one for each of the {n_chains} chain(s)"
            );
            return Err(Error::setting("ranks-per-chain", per_chain, problem));
        }
        let n_groups = n_ranks / per_chain;
        if n_groups == 1 {
            return Ok(Ranks::together(all));
        }
        let group = all.rank() / per_chain;
        Ok(Ranks { own: all.split(group), all, n_groups, group, band: BAND })
    }

    /// Whether a chain (from 1) falls to this rank's group.
    pub(super) fn runs_chain(&self, chain: u32) -> bool {
        (chain as usize - 1) % self.n_groups == self.group
    }

    /// Holds a run folder, new or not: rank 0 for all, which learn of it where it is refused.
    pub fn hold(&self, folder: &Path, is_new: bool, take: impl FnOnce() -> Result<Held>) -> Result<Held> {
        hold(self.all.as_ref(), folder, is_new, take)
    }

    /// Waits until all ranks are here.
    pub(super) fn meet(&self) {
        if self.all.size() > 1 {
            self.all.all_gather(&[]);
        }
    }

    /// How all groups ended: finished, if all did.
    pub(super) fn end(&self, own: Ending) -> Ending {
        let codes = self.all.all_gather(&[code(Next::End(own))]);
        let worst = codes.iter().flatten().map(|code| next(*code)).find(|next| *next != Next::End(Ending::Finished));
        match worst {
            Some(Next::End(ending)) => ending,
            _ => Ending::Finished,
        }
    }
}

/// [`Ranks::hold`] before ranks are divided.
pub fn hold(comm: &dyn Comm, folder: &Path, is_new: bool, take: impl FnOnce() -> Result<Held>) -> Result<Held> {
    if comm.size() == 1 {
        return take();
    }
    let own = if comm.rank() == 0 { take() } else { Ok(Held::by_rank_0(folder, is_new)) };
    let mut refusal = own.as_ref().err().map_or(Vec::new(), |error| error.to_string().into_bytes());
    comm.broadcast(&mut refusal);
    match (own, &refusal[..]) {
        (Ok(held), []) => Ok(held),
        (Ok(_), refusal) => {
            let problem = format!("refused by rank 0: {}", String::from_utf8_lossy(refusal));
            Err(Error::malformed(folder, problem))
        }
        (refused, _) => refused,
    }
}

/// Groups are made before anything else is compared, so that all ranks must want the same ones.
fn agree_on_groups(all: &dyn Comm, n_chains: usize, per_chain: Option<usize>) -> Result<()> {
    if all.size() == 1 {
        return Ok(());
    }
    let own = format!("{n_chains} chains, ranks per chain {}", per_chain.map_or("unsaid".into(), |n| n.to_string()));
    let wanted = all.all_gather(own.as_bytes());
    let text = |rank: usize| String::from_utf8_lossy(&wanted[rank]).into_owned();
    match wanted.iter().position(|other| *other != wanted[0]) {
        None => Ok(()),
        Some(rank) => {
            let what = format!("number of chains or {}", setting("ranks-per-chain"));
            Err(Error::RanksDiffer { rank, what, found: text(rank), expected: text(0) })
        }
    }
}

fn greatest_common_divisor(a: usize, b: usize) -> usize {
    if b == 0 { a } else { greatest_common_divisor(b, a % b) }
}

/// Where a chain stands.
pub(super) struct Position<R> {
    pub sweep: u64,
    pub state: State<R>,
}

/// What rank 0 finds, on every rank.
pub(super) fn told(comm: &dyn Comm, look: impl FnOnce() -> bool) -> bool {
    let mut bytes = if comm.rank() == 0 { vec![u8::from(look())] } else { Vec::new() };
    comm.broadcast(&mut bytes);
    bytes == [1]
}

/// Gives every rank its part of the state that rank 0 has read.
pub(super) fn hand_out<R: Sampled>(model: &Model<R>, checkpoint: Option<Checkpoint<R>>) -> Result<Position<R>> {
    let comm = model.comm.as_ref();
    let position = checkpoint.map(|Checkpoint { sweep, state, .. }| Position { sweep, state });
    match (comm.size(), position) {
        (1, Some(position)) => Ok(position),
        (_, position) => {
            let whole = broadcast_state(model, position.map(|position| (position.sweep, position.state)))?;
            Ok(Position { sweep: whole.0, state: own_part(model, whole.1) })
        }
    }
}

/// The state of rank 0, whole, on every rank.
pub(super) fn broadcast_state<R: Sampled>(model: &Model<R>, known: Option<(u64, State<R>)>) -> Result<(u64, State<R>)> {
    let comm = model.comm.as_ref();
    let mut bytes = known.map_or_else(Vec::new, |(sweep, state)| {
        let mut bundle = Bundle::default();
        bundle.put("sweep", &[1], &[sweep]);
        put_state(&mut bundle, &state);
        bundle.to_bytes()
    });
    comm.broadcast(&mut bytes);
    let stored = Stored::from_bytes(bytes, Path::new("the state of rank 0"))?;
    Ok((stored.number("sweep")?, take_state(&stored, model.spectrum.n_modes())?))
}

/// The part of a whole state that belongs where the data are. Under a mask every rank has all features.
pub(super) fn own_part<R: Sampled>(model: &Model<R>, mut state: State<R>) -> State<R> {
    state.features = model.domain.own_part(state.features, model.data.tiles());
    state.loadings = state.loadings.part(model.data.rows_here());
    state
}

/// Compares what all ranks have with that of rank 0, the loadings of rows with those of the first rank that holds them, and,
/// where several ranks hold the same tiles, the features there with those of the first; and settles what comes next: a stop
/// that any rank was asked for; else as the clock of rank 0 says.
pub(super) fn agree<R: Sampled>(sharing: &Sharing, chain: &Chain<R>, own: Next) -> Result<Next> {
    let (comm, layout) = (sharing.all(), sharing.layout());
    if comm.size() == 1 {
        return Ok(own);
    }
    let features = if layout.cuts_rows() { chain.state.features.digest() } else { 0 };
    let digests = [chain.state.digest(), chain.state.loadings.digest(), features];
    let mut message = u64::write(&digests);
    message.push(code(own));
    let all = comm.all_gather(&message);
    let digests = |rank: usize| [0, 8, 16].map(|at| &all[rank][at..at + 8]);
    let differs = |&rank: &usize| {
        let (at, [_, n_columns]) = (layout.of(rank), layout.shape());
        let [common, rows, features] = digests(rank);
        let as_others =
            at.line().is_none_or(|line| rows == digests(line * n_columns)[1] && features == digests(at.column())[2]);
        common != digests(0)[0] || !as_others
    };
    if let Some(rank) = (0..all.len()).find(differs) {
        return Err(Error::RanksDiverged { rank, sweep: chain.sweep });
    }
    let (stop, last) = (Next::End(Ending::Stopped), all[0].len() - 1);
    Ok(if all.iter().any(|other| next(other[last]) == stop) { stop } else { next(all[0][last]) })
}

fn code(next: Next) -> u8 {
    match next {
        Next::GoOn => 0,
        Next::Save => 1,
        Next::End(Ending::Stopped) => 2,
        Next::End(Ending::OutOfTime) => 3,
        Next::End(Ending::Finished) => 4,
    }
}

fn next(code: u8) -> Next {
    match code {
        0 => Next::GoOn,
        1 => Next::Save,
        2 => Next::End(Ending::Stopped),
        3 => Next::End(Ending::OutOfTime),
        _ => Next::End(Ending::Finished),
    }
}
