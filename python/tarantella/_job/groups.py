"""Groups of ranks with their own collectives, and barriers."""

from __future__ import annotations

import operator
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from . import runtime

if TYPE_CHECKING:
    from .._core import Context


class Group:
    """A set of ranks in a fixed order.

    All ranks of the job, including those outside the group, must create the same groups in the same order. With
    `ranks`, the constructor blocks until all of them do. Collectives of different groups may run at the same time.
    A group ends on a rank when its last reference is gone; its memory is freed when it has ended on all ranks.

    Args:
        ranks: Its ranks, in its order, as in `[0, 2]`; by default all.

    Raises:
        ValueError: `ranks` is empty, repeats a rank or names one that does not exist.
        tarantella.MismatchError: The ranks of the job create different groups.

    Example:
    >>> import tarantella as tnt
    >>> tnt.Group([0]).master_rank
    0
    """

    def __init__(self, ranks: Iterable[int] | None = None) -> None:
        size = runtime.get_size()
        self.ranks: tuple[int, ...] = tuple(range(size)) if ranks is None else tuple(map(operator.index, ranks))
        wrong = [rank for rank in self.ranks if not 0 <= rank < size]
        if wrong:
            raise ValueError(f"a group cannot have rank {wrong[0]}: the ranks of this job are 0 to {size - 1}")
        if not self.ranks or len(set(self.ranks)) < len(self.ranks):
            raise ValueError(f"a group needs at least one rank, and each only once (got {list(self.ranks)})")
        self._context = None if ranks is None or size == 1 else runtime.group(self.ranks)

    @property
    def size(self) -> int:
        """The number of ranks in the group."""
        return len(self.ranks)

    @property
    def rank(self) -> int | None:
        """The rank of this process within the group, None if it is not a member."""
        mine = runtime.get_rank()
        return self.ranks.index(mine) if mine in self.ranks else None

    @property
    def master_rank(self) -> int:
        """The first rank of the group, as a rank of the job."""
        return self.ranks[0]

    def to_global_rank(self, rank: int) -> int:
        """Converts `rank` of the group to a rank of the job."""
        return self.ranks[rank]

    def to_group_rank(self, rank: int) -> int:
        """Converts `rank` of the job to a rank of the group. Raises ValueError if it is not in the group."""
        if rank not in self.ranks:
            raise ValueError(f"rank {rank} is not in the group of the ranks {list(self.ranks)}")
        return self.ranks.index(rank)

    def __contains__(self, rank: int) -> bool:
        return rank in self.ranks

    def __iter__(self) -> Iterator[int]:
        return iter(self.ranks)

    def __len__(self) -> int:
        return self.size

    def __repr__(self) -> str:
        return f"tarantella.Group({list(self.ranks)})"

    def context(self) -> Context | None:
        """The core's context for the group's collectives; None if the job has one rank.

        Raises ValueError on a rank that is not in the group.
        """
        if self.rank is None:
            raise ValueError(
                f"rank {runtime.get_rank()} is not in the group of the ranks {list(self.ranks)}: "
                "only members of the group may call this"
            )
        if runtime.get_size() == 1:
            return None
        return self._context or runtime.context()


def barrier(group: Group | None = None) -> None:
    """Blocks until every rank of the group has called this.

    Args:
        group: The ranks that take part; by default all.

    Example:
    >>> import tarantella as tnt
    >>> tnt.barrier()
    """
    context = (group or Group()).context()
    if context is not None:
        context.barrier()


def new_group(ranks: Iterable[int] | None = None) -> Group:
    """Creates a group of ranks, for collectives among them.

    All ranks of the job, including those outside the group, must create the same groups in the same order. With
    `ranks` this blocks until all of them do.

    Args:
        ranks: Its ranks, in its order; by default all.

    Returns:
        A `tnt.Group`. Raises the same errors as its constructor.

    Example:
    >>> import tarantella as tnt
    >>> group = tnt.new_group([0])
    >>> tnt.allreduce(1, group=group) if tnt.get_rank() in group else 1
    1
    """
    return Group(ranks)


def get_group_master_rank(group: Group) -> int:
    """The first rank of a group, as a rank of the job.

    Args:
        group: A `tnt.Group`.
    """
    return group.master_rank


def is_group_master_rank(group: Group) -> bool:
    """Whether this process is the first rank of a group.

    Args:
        group: A `tnt.Group`.
    """
    return runtime.get_rank() == group.master_rank
