"""Tests of `paceline.torch`: tensors, order and loaders. Values are those of FrameBatches."""

import multiprocessing
import pickle
import subprocess
import sys

import numpy as np
import pytest

import paceline
from paceline.analysis.rms import RMSD

CA = "name CA"


def test_without_torch_it_says_what_to_install(adk):
    code = (
        "import sys; sys.modules['torch'] = None\n"
        "import paceline\n"
        "from paceline.torch import FrameDataset\n"
        f"batches = paceline.FrameBatches({tuple(adk)!r}, select='name CA')\n"
        "try:\n    FrameDataset(batches)\n"
        "except paceline.errors.UnsupportedError as error:\n    print(error)\n"
    )
    command = [sys.executable, "-W", "ignore", "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    sentence = "needs the package torch; install it with: pip install 'paceline[torch]'"
    assert done.stdout == f"paceline.torch {sentence}\n"


@pytest.fixture(scope="module")
def torch():
    """The package, without which these tests are skipped."""
    return pytest.importorskip("torch")


@pytest.fixture
def batches(adk):
    """Random windows of Cα atoms, with a feature."""
    return paceline.FrameBatches(
        [adk, adk], select=CA, batch_size=20, window=2, features={"rmsd": RMSD}, seed=3
    )


@pytest.fixture
def dataset(torch, batches):
    from paceline.torch import FrameDataset

    return FrameDataset(batches)


def same(tensors, batch) -> bool:
    """True if tensors have the values of a batch."""
    arrays = batch.arrays()
    return tensors.keys() == arrays.keys() and all(
        np.array_equal(tensors[name].numpy(), values) for name, values in arrays.items()
    )


def equal(found, expected) -> bool:
    """True if two lists of dicts of tensors are equal."""
    return len(found) == len(expected) and all(
        one.keys() == other.keys() and all(one[name].equal(other[name]) for name in one)
        for one, other in zip(found, expected, strict=True)
    )


class TestDataset:
    def test_samples_and_batches(self, torch, dataset, batches):
        assert len(dataset) == 2 * 97
        sample = dataset[5]
        assert sample["positions"].shape == (2, 214, 3)
        assert sample["positions"].dtype == torch.float32
        assert sample["frames"].tolist() == [5, 6]
        assert same(dataset[[100, 5, -1]], batches.read([100, 5, 193]))
        assert dataset[-1]["trajectories"].item() == 1
        with pytest.raises(IndexError, match="sample 194 is out of range"):
            dataset[194]
        with pytest.raises(TypeError, match=r"expected paceline\.FrameBatches"):
            type(dataset)([1, 2])

    def test_a_loader_of_torch(self, torch, dataset):
        torch.manual_seed(1)
        loader = torch.utils.data.DataLoader(dataset, batch_size=20, shuffle=True, num_workers=2)
        found = list(loader)
        assert found[0]["positions"].shape == (20, 2, 214, 3)
        seen = torch.cat([batch["samples"] for batch in found])
        assert sorted(seen.tolist()) == list(range(194))
        for batch in found[:2]:
            assert batch["positions"].equal(dataset[batch["samples"].tolist()]["positions"])


class TestLoader:
    @pytest.mark.parametrize("num_workers", [0, 1, 3])
    def test_the_order_is_that_of_the_batches(self, dataset, batches, num_workers):
        loader = dataset.loader(num_workers=num_workers)
        for epoch in range(2):
            expected = list(batches.epoch(epoch))
            found = list(loader)
            assert len(found) == len(loader) == len(expected)
            assert all(map(same, found, expected))
        loader.set_epoch(1)
        assert all(map(same, loader, batches.epoch(1)))

    @pytest.mark.parametrize("method", ["spawn", "fork"])
    @pytest.mark.parametrize("persistent", [False, True])
    def test_processes(self, dataset, method, persistent):
        if method not in multiprocessing.get_all_start_methods():
            pytest.skip(f"this system has no {method}")
        alone = dataset.loader()
        expected = [list(alone), list(alone)]  # threads have worked before a fork
        loader = dataset.loader(
            num_workers=2, multiprocessing_context=method, persistent_workers=persistent
        )
        assert equal(list(loader), expected[0])
        assert equal(list(loader), expected[1])

    def test_memory_is_used_again_when_no_tensor_refers_to_it(self, dataset):
        loader = dataset.loader(num_workers=1, persistent_workers=True)
        places = [batch["positions"].data_ptr() for batch in loader]
        assert len(set(places)) < len(places) == 10
        whole = list(dataset.loader())
        loader.set_epoch(0)
        # Views keep the memory, and so do arrays.
        parts = [batch["positions"][3, 1, ::2].numpy() for batch in loader]
        for part, batch in zip(parts, whole, strict=True):
            assert np.array_equal(part, batch["positions"][3, 1, ::2])

    @pytest.mark.parametrize("persistent", [False, True])
    def test_loops_that_end_early_and_loops_at_a_time(self, dataset, persistent):
        expected = [list(dataset.loader())]
        loader = dataset.loader(num_workers=2, persistent_workers=persistent)
        kept = []
        for _ in range(3):
            loader.set_epoch(0)
            for number, batch in enumerate(loader):
                kept.append(batch)
                if number == 2:
                    break
        assert equal(kept, 3 * expected[0][:3])
        loader.set_epoch(0)
        first = iter(loader)
        begun = [next(first), next(first)]
        loader.set_epoch(0)
        assert equal(list(loader), expected[0])
        assert equal([*begun, *first], expected[0])

    def test_several_fields(self, torch, moving):
        from paceline.torch import FrameDataset

        batches = paceline.FrameBatches(
            moving, fields=["positions", "velocities"], on_error="skip", batch_size=2
        )
        found = list(FrameDataset(batches).loader(num_workers=1))
        assert all(map(same, found, batches.epoch(0)))
        assert sum(len(one["samples"]) for one in found) < batches.n_samples

    def test_training_processes_share_an_epoch(self, dataset):
        whole = list(dataset.loader())
        shares = [list(dataset.loader(share=(rank, 3), num_workers=rank)) for rank in range(3)]
        assert [len(one) for one in shares] == [3, 3, 3]
        assert equal([shares[k % 3][k // 3] for k in range(9)], whole[:9])

    @pytest.mark.parametrize("num_workers", [0, 2])
    def test_samples_that_cannot_be_read_are_left_out(self, torch, damaged, num_workers):
        from paceline.torch import FrameDataset

        files, bad = damaged
        batches = paceline.FrameBatches(
            tuple(files), select=CA, batch_size=2, on_error="skip", shuffle=False
        )
        found = list(FrameDataset(batches).loader(num_workers=num_workers))
        frames = torch.cat([batch["frames"] for batch in found])[:, 0].tolist()
        assert frames == [k for k in range(98) if k not in bad]
        assert all(len(batch["frames"]) for batch in found)
        with pytest.raises(ValueError, match="a single sample cannot be left out"):
            FrameDataset(batches)[bad[0]]

    def test_options(self, dataset):
        with pytest.raises(TypeError, match="FrameBatches decides on shuffle"):
            dataset.loader(shuffle=True, num_workers=2)
        with pytest.raises(TypeError, match="prefetch_factor needs worker processes"):
            dataset.loader(prefetch_factor=2)
        with pytest.raises(ValueError, match="share must be from 0 to 1"):
            dataset.loader(share=(2, 2))
        loader = dataset.loader(num_workers=1, prefetch_factor=4)
        assert len(list(loader)) == 10

    def test_a_pickle_opens_nothing(self, dataset):
        again = pickle.loads(pickle.dumps(dataset))
        assert equal(list(again.loader()), list(dataset.loader()))


@pytest.mark.parametrize("num_workers", [0, 2])
def test_processes_that_train_together_get_equally_many(torch, damaged, num_workers):
    """A batch without a readable sample is replaced by the one before it, or by the first."""
    from paceline.torch import FrameDataset

    (topology, path), bad = damaged
    batches = paceline.FrameBatches(
        (topology, path), select=CA, batch_size=1, on_error="skip", shuffle=False
    )
    for rank in range(2):
        asked = [one.tolist() for one in batches.samples(0, share=(rank, 2))][: len(batches) // 2]
        loader = FrameDataset(batches).loader(num_workers=num_workers, share=(rank, 2))
        found = [one["samples"].tolist() for one in loader]
        assert len(found) == len(loader) == len(asked)
        expected = next(one for one in asked if one[0] not in bad)
        for one, other in zip(asked, found, strict=True):
            expected = expected if one[0] in bad else one
            assert other == expected
