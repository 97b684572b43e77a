"""The collectives for users: kinds, dtypes and structures are kept, disagreements are found."""

from __future__ import annotations

from typing import Any

import pytest

KINDS = """
    import collections, numpy as np, ml_dtypes, tarantella as tnt
    from tarantella import ReductionOp as Op
    rank, size = tnt.get_rank(), tnt.get_size()

    def alike(got, expected):
        assert type(got) is type(expected), (type(got), type(expected))
        if isinstance(expected, dict):
            assert list(got) == list(expected)
            for key in expected: alike(got[key], expected[key])
        elif isinstance(expected, (list, tuple)):
            assert len(got) == len(expected)
            for a, b in zip(got, expected): alike(a, b)
        elif hasattr(expected, "dtype"):
            assert got.dtype == expected.dtype and got.shape == expected.shape, (got, expected)
            assert np.asarray(got).tobytes() == np.asarray(expected).tobytes(), (got, expected)
        else:
            assert got == expected, (got, expected)

    Pair = collections.namedtuple("Pair", "a b")

    def structure(of):
        \"\"\"of(r) sums what rank r alone would have.\"\"\"
        dtypes = [np.float64, np.float32, np.float16, ml_dtypes.bfloat16, np.int8, np.int16, np.int32, np.int64,
                  np.uint8, np.uint16, np.uint32, np.uint64]
        return {
            "z": of(2.5), "numbers": [of(3), of(-1.0), of(np.float32(1.5)), of(np.int64(7))],
            "arrays": tuple(of(np.arange(6).reshape(2, 3).astype(d)) for d in dtypes),
            "pair": Pair(of(np.zeros((0, 4), np.float32)), {"deep": [of(np.array(1.0))]}),
            "strided": of(np.arange(12.0).reshape(3, 4).T[::2]),
        }
    total = size * (size + 1) // 2

    def times(factor):
        \"\"\"Multiplies a number or an array and keeps its type.\"\"\"
        def of(x):
            if isinstance(x, (int, float)): return x * factor
            product = (np.asarray(x) * factor).astype(x.dtype)
            return product[()] if isinstance(x, np.generic) else product
        return of

    inputs = structure(times(rank + 1))
    alike(tnt.TensorAllreducer(inputs).allreduce(inputs), structure(times(total)))
    # a dict that was filled in another order
    shuffled = dict(reversed(inputs.items())) if rank else inputs
    alike(tnt.Allreduce().execute(shuffled)["numbers"], structure(times(total))["numbers"])

    ones = structure(lambda x: x)
    last = structure(times(size))
    alike(tnt.TensorBroadcaster(ones, root_rank=size - 1).broadcast(inputs), last)

    for op, right in (("min", 1), ("max", size), ("average", (size + 1) / 2)):
        alike(tnt.Allreduce(op=Op(op)).execute(np.full(3, rank + 1.0)), np.full(3, float(right)))
    for dtype in (np.int8, np.int16, np.uint16, np.uint32, np.uint64):
        most = np.iinfo(dtype).max
        full = np.array([most, 3, rank], dtype)
        alike(tnt.Allreduce().execute(full), (np.arange(size, dtype=dtype)[:, None] * 0 + full).sum(0, dtype=dtype)
              * np.array([1, 1, 0], dtype) + np.array([0, 0, size * (size - 1) // 2], dtype))
        alike(tnt.Allreduce(op=Op.MAX).execute(full), np.array([most, 3, size - 1], dtype))
        alike(tnt.Allreduce(op=Op.AND).execute(full), np.array([most, 3, 0], dtype))
    alike(tnt.Allreduce(op=Op.AND).execute([True, rank == 0]), [True, size == 1])
    alike(tnt.Allreduce(op=Op.OR).execute(np.array([False, rank == 0])), np.array([False, True]))

    unaligned = np.frombuffer(b"x" + np.arange(5.0).tobytes(), offset=1)
    assert not unaligned.flags.aligned
    alike(tnt.Allreduce().execute(unaligned), np.arange(5.0) * size)

    rows = np.full((rank, 2), rank, np.int16)  # rank 0 has none; a type that is moved, not reduced
    gathered = tnt.TensorAllgatherer(rows).allgather(rows)
    alike(gathered, np.concatenate([np.full((r, 2), r, np.int16) for r in range(size)]))
    alike(tnt.Allgatherv().execute(rank * 1.5), np.arange(size) * 1.5)
    alike(tnt.Allgatherv().execute(np.zeros((rank, 0))), np.zeros((size * (size - 1) // 2, 0)))
    print("all right", rank)
"""


@pytest.mark.parametrize("ranks", [1, 2, 3, 4])
def test_kinds_dtypes_and_structures_are_kept(scripts: Any, ranks: int) -> None:
    ended = scripts.ranks(ranks, KINDS, options=("--output-on-all-devices",))
    assert ended.code == 0, ended.err
    assert ended.out.count("all right") == ranks


FUNCTIONS = """
    import doctest, numpy as np, tarantella as tnt
    from tarantella import collectives
    from tarantella._job import groups
    rank, size = tnt.get_rank(), tnt.get_size()
    for module, examples in ((collectives, 5), (groups, 2)):
        found = doctest.testmod(module)
        assert found.attempted > examples and not found.failed, found

    assert tnt.allreduce(rank + 1, "max") == tnt.allreduce(rank + 1, tnt.ReductionOp.MAX) == size
    assert tnt.broadcast(rank, root_rank=size - 1) == size - 1
    np.testing.assert_array_equal(tnt.reduce_scatter(np.arange(size + 1)), size * np.r_[rank + (rank > 0)] if rank else
                                  size * np.arange(2))
    last = tnt.new_group([size - 1])
    if rank == size - 1:
        tnt.barrier(last)
        assert tnt.allreduce(rank, group=last) == rank and tnt.allgather(rank, last).tolist() == [rank]
        assert tnt.broadcast(rank, group=last) == rank
    elif size > 1:
        try: tnt.barrier(last)
        except ValueError as error: assert "is not in the group" in str(error)
        else: raise AssertionError("a stranger was let in")
    for call, text in ((lambda: tnt.allreduce(1, "mean"), "op must be one of 'sum', 'min'"),
                       (lambda: tnt.reduce_scatter(np.ones(4), op=None), "op must be one of"),
                       (lambda: tnt.broadcast(1, root_rank=size), f"rank {size} is not in the group")):
        try: call()
        except ValueError as error: assert text in str(error), error
        else: raise AssertionError(text)
    print("all right")
"""


@pytest.mark.parametrize("ranks", [1, 2, 3])
def test_the_functions_do_what_their_docstrings_show(scripts: Any, ranks: int) -> None:
    ended = scripts.ranks(ranks, FUNCTIONS, options=("--output-on-all-devices",))
    assert ended.code == 0, ended.err
    assert ended.out.count("all right") == ranks


TENSORS = """
    import numpy as np, tensorflow as tf, keras, tarantella as tnt
    rank, size = tnt.get_rank(), tnt.get_size()
    weights = [tf.constant([1.0, 2.0]) * (rank + 1), tf.Variable([[3]], dtype=tf.int64), keras.Variable([0.5])]
    reducer = tnt.TensorAllreducer(weights)
    first = reducer.allreduce(weights)
    assert all(isinstance(t, tf.Tensor) for t in first)
    assert first[0].dtype == tf.float32 and first[1].dtype == tf.int64
    kept = [t.numpy() for t in first]
    variable = tf.Variable(first[0])
    variable.assign(first[0])
    for step in range(3):  # neither the kept result nor the variable is a view of what comes later
        reducer.allreduce([tf.fill([2], 100.0), weights[1], weights[2]])
    total = size * (size + 1) / 2
    np.testing.assert_array_equal(first[0], [total, 2 * total])
    np.testing.assert_array_equal(variable, [total, 2 * total])
    for tensor, before in zip(first, kept): np.testing.assert_array_equal(tensor, before)
    half = tf.cast([1.0, 3.0], tf.bfloat16)
    assert tnt.Allreduce().execute(half).dtype == tf.bfloat16
    np.testing.assert_array_equal(tf.cast(tnt.Allreduce().execute(half), tf.float32), [size, 3 * size])
    inside = tf.function(lambda t: tnt.Allreduce().execute(t))
    for wrong in (lambda: inside(half), lambda: tnt.TensorAllreducer(tf.constant(["a"]))):
        try: wrong()
        except TypeError as error: print("TypeError", error)
    print("all right")
"""


@pytest.mark.parametrize("ranks", [1, 2])
def test_tensors_come_back_as_tensors_and_are_copies(scripts: Any, ranks: int) -> None:
    ended = scripts.ranks(ranks, TENSORS)
    assert ended.code == 0, ended.err
    assert "outside of tf.function" in ended.out
    assert "tensor of strings" in ended.out
    assert ended.out.endswith("all right\n")


@pytest.mark.parametrize("ranks", [1, 2])
def test_unsupported_inputs_raise_type_error(scripts: Any, ranks: int) -> None:
    ended = scripts.ranks(
        ranks,
        """
        import numpy as np, tarantella as tnt
        from tarantella import ReductionOp as Op
        calls = [
            lambda: tnt.TensorAllreducer("text"), lambda: tnt.TensorBroadcaster([1, None]),
            lambda: tnt.TensorAllgatherer({"a": {1, 2}}), lambda: tnt.TensorAllreducer(np.array(["a"])),
            lambda: tnt.Allreduce().execute(np.zeros(2, "datetime64[s]")), lambda: tnt.Allreduce().execute(2**70),
            lambda: tnt.Allreduce().execute(np.zeros(2, complex)), lambda: tnt.Allreduce().execute(True),
            lambda: tnt.Allreduce(op=Op.AVERAGE).execute([1.0, 2]), lambda: tnt.Allreduce(op=Op.AND).execute(1.0),
            lambda: tnt.Allreduce().execute(np.array([object()])),
        ]
        for call in calls:
            try: call()
            except TypeError as error: print("TypeError:", error)
        print(tnt.Allreduce().execute(1))
        """,
    )
    assert ended.code == 0, ended.err
    assert ended.out.count("TypeError: input") == 11
    assert "input[1] of type int64 has no average" in ended.out.replace(": int64[]", "")
    assert ended.out.endswith(f"{ranks}\n")


DISAGREEMENTS = {
    "shape": ("tnt.Allreduce().execute(np.zeros((2, 3) if rank else (3, 2)))", "float64[2, 3]"),
    "dtype": ("tnt.Allgatherv().execute(np.zeros(2, np.int16 if rank else np.uint16))", "int16[]"),
    "structure": ("tnt.Allreduce().execute({'b' if rank else 'a': 1.0})", "input['b']"),
    "operation": ("tnt.Allreduce(op=tnt.ReductionOp('max' if rank else 'min')).execute(1.0)", "(max)"),
    "root": ("tnt.Broadcast(root_rank=rank).execute(1.0)", "from rank 1"),
    "order": ("[tnt.Barrier(), tnt.Allreduce()][rank].execute(*[1.0] * rank)", "barrier"),
    "group": ("tnt.Group([0, 1] if rank else [1, 0])", "group of 2 ranks, with other sizes or ranks"),
}


@pytest.mark.parametrize("what", DISAGREEMENTS)
def test_disagreements_are_found_before_any_number_is_wrong(scripts: Any, what: str) -> None:
    call, named = DISAGREEMENTS[what]
    source = f"""
        import numpy as np, tarantella as tnt
        rank = tnt.get_rank()
        try: {call}
        except tnt.MismatchError as error: print("MismatchError:", error)
        """
    ended = scripts.ranks(2, source, options=("--output-on-all-devices",))
    assert ended.out.count("MismatchError: rank 1 called") == 2, (ended.out, ended.err)
    assert named in ended.out


def test_groups_have_collectives_of_their_own(scripts: Any) -> None:
    ended = scripts.ranks(
        4,
        """
        import numpy as np, threading, tarantella as tnt
        rank = tnt.get_rank()
        odd, last = tnt.Group([3, 1]), tnt.Group([3])
        assert (odd.rank, odd.size, 1 in odd, 0 in odd) == ({3: 0, 1: 1}.get(rank), 2, True, False)
        assert tnt.get_group_master_rank(odd) == 3 and tnt.is_group_master_rank(odd) == (rank == 3)
        if rank in odd:
            def beside():
                for i in range(200):
                    assert tnt.Allreduce(odd).execute(rank + i) == 4 + 2 * i
            thread = threading.Thread(target=beside)
            thread.start()
        for i in range(50):  # at the same time
            assert tnt.Allreduce().execute(1) == 4
        if rank in odd:
            thread.join()
            np.testing.assert_array_equal(tnt.Allgatherv(odd).execute(np.full(rank, rank)), [3, 3, 3, 1])
            assert tnt.Broadcast(odd, root_rank=1).execute(rank) == 1
            tnt.Barrier(odd).execute()
        else:
            for wrong in (lambda: tnt.Barrier(odd).execute(), lambda: tnt.Broadcast(odd, root_rank=0),
                          lambda: tnt.Group([0, 7]), lambda: tnt.Group([])):
                try: wrong()
                except ValueError as error: print("ValueError", error)
        if rank == 3: assert tnt.Allreduce(last).execute(2.5) == 2.5
        assert tnt.Allreduce(tnt.Group()).execute(1) == 4
        import os
        threads = len(os.listdir("/proc/self/task"))
        for i in range(30):  # groups that nothing refers to leave nothing behind
            assert tnt.Allreduce(tnt.Group([3, 2, 1, 0])).execute(1) == 4
        assert len(os.listdir("/proc/self/task")) < threads + 10
        print("all right")
        """,
        options=("--output-on-all-devices",),
    )
    assert ended.code == 0, ended.err
    assert ended.out.count("all right") == 4
    refused = "ValueError rank 0 is not in the group of the ranks [3, 1]: only members of the group may call this"
    assert ended.out.count(refused) == 1
    assert ended.out.count("ValueError") == 8


def test_a_rank_that_dies_ends_a_wait_in_a_group(scripts: Any) -> None:
    ended = scripts.ranks(
        3,
        """
        import os, signal, tarantella as tnt
        group = tnt.Group([0, 2])
        tnt.Barrier().execute()
        if tnt.get_rank() == 2: os.kill(os.getpid(), signal.SIGKILL)
        if tnt.get_rank() == 0: tnt.Barrier(group).execute()
        """,
    )
    assert ended.code != 0
    assert "rank 2" in ended.err


ROWS = """
    import numpy as np, ml_dtypes, tarantella as tnt
    from tarantella import ReductionOp as Op
    rank, size = tnt.get_rank(), tnt.get_size()
    ends = lambda rows: [rows // size * r + min(r, rows % size) for r in range(size + 1)]
    for dtype in (np.float64, np.float32, np.float16, ml_dtypes.bfloat16, np.int64, np.uint8):
        for rows in (0, 1, size, 2 * size + 1):
            of = [((np.arange(rows * 2).reshape(rows, 2) % 3 + r) % 4).astype(dtype) for r in range(size)]
            here = slice(ends(rows)[rank], ends(rows)[rank + 1])
            for op, whole in ((Op.SUM, np.sum), (Op.MAX, np.max), (Op.PRODUCT, np.prod)):
                expected = whole(np.stack(of).astype(float), 0)
                part, every = tnt.ReduceScatter(op=op).execute(of[rank]), tnt.Allreduce(op=op).execute(of[rank])
                assert part.dtype == every.dtype == dtype
                np.testing.assert_array_equal(every.astype(float), expected)
                np.testing.assert_array_equal(part.astype(float), expected[here])
        sent = np.concatenate([np.full((to + rank, 2), 10 * rank + to) for to in range(size)]).astype(dtype)
        got = tnt.Alltoall().execute(sent, [to + rank for to in range(size)])
        expected = np.concatenate([np.full((rank + r, 2), 10 * r + rank) for r in range(size)]).astype(dtype)
        assert got.dtype == dtype and got.tobytes() == expected.tobytes()
    both = {"a": np.ones((size, 1)), "b": [np.full(size, rank)]}
    assert tnt.ReduceScatter().execute(both)["b"][0] == [size * (size - 1) // 2]
    if size > 2:
        ends = tnt.Group([size - 1, 0])
        if rank in ends:
            assert tnt.ReduceScatter(ends).execute(np.arange(2.0) + rank)[0] == (size - 1 if rank else size + 1)
            assert tnt.Alltoall(ends).execute(np.array([5, 6]), [1, 1]).tolist() == ([5, 5] if rank else [6, 6])
    calls = [
        lambda: tnt.ReduceScatter().execute(1.0), lambda: tnt.ReduceScatter(op=Op.AVERAGE).execute(np.ones(2, int)),
        lambda: tnt.Allreduce(op=Op.PRODUCT).execute(True), lambda: tnt.Alltoall().execute(np.ones(3), [1]),
        lambda: tnt.Alltoall().execute(np.ones(1), [-1] * size), lambda: tnt.Alltoall().execute(1.0, [1] * size),
    ]
    for call in calls:
        try: call()
        except (TypeError, ValueError) as error: print("refused:", error)
    print("all right")
"""


@pytest.mark.parametrize("ranks", [1, 3])
def test_rows_are_scattered_and_exchanged_and_products_made(ranks: int, scripts: Any) -> None:
    ended = scripts.ranks(ranks, ROWS, options=("--output-on-all-devices",))
    assert ended.code == 0, ended.err
    assert ended.out.count("refused: input") == 6 * ranks
    assert ended.out.count("all right") == ranks
