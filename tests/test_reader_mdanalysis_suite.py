"""Runs MDAnalysis's published tests of its readers on paceline's reader.

`mda.Universe` in these tests creates a `paceline.Universe`. The following tests are omitted,
because they check internals of MDAnalysis:

- `_GromacsReader_offsets` and `test_rewind_xdrtrj`: MDAnalysis's saved offsets, `_xdr`;
- `test_write_istart`, `test_reader_set_dt`, `test_ts_time`, `test_dcd_writer_angle_cosines`: the
  header in `_file`;
- `_XDRNoConversion`, `test_reader_copied_extra_attributes`: `convert_units=False`, which we refuse;
- `test_with_statement`, `TestXTCReaderClass`: they name MDAnalysis's class (see `test_context`
  below);
- `BaseWriterTest`, `_GromacsWriter`, `test_write_*` and others: they test MDAnalysis's writers;
- `TestChainReaderContinuous.test_start_frames` checks `_start_frames`; others there expect a
  warning about a gap in time, or refusals of what paceline's chains allow (see `test_chain`);
- `TestDCDReader.test_empty_dcd` expects an `OSError` (see `test_a_file_without_frames_is_refused`).
"""

import shutil

import MDAnalysis
import pytest
from MDAnalysisTests.coordinates import (
    base,
    test_chainreader,
    test_copying,
    test_dcd,
    test_reader_api,
    test_xdr,
)
from MDAnalysisTests.datafiles import DCD_empty, XTC_multi_frame

import paceline
from paceline.errors import PacelineError
from paceline.mdanalysis.reader import _REUSES_DCD, Reader

# They warn about future changes of MDAnalysis, and about the number of frames in a DCD header.
pytestmark = pytest.mark.filterwarnings("ignore")


@pytest.fixture(scope="module", autouse=True)
def ours_instead(tmp_path_factory):
    """Make the published tests open copies of their files with paceline's Universe."""
    folder = tmp_path_factory.mktemp("published")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(MDAnalysis, "Universe", paceline.Universe)
        for module in (test_chainreader, test_copying, test_dcd, test_xdr):
            for name, value in list(vars(module).items()):
                if isinstance(value, str) and value.endswith((".xtc", ".trr", ".dcd")):
                    patch.setattr(module, name, shutil.copy(value, folder))
        yield


class OursXTC(test_xdr.XTCReference):
    def __init__(self):
        super().__init__()
        self.trajectory = test_xdr.COORDINATES_XTC
        self.reader = Reader


class OursTRR(test_xdr.TRRReference):
    def __init__(self):
        super().__init__()
        self.trajectory = test_xdr.COORDINATES_TRR
        self.reader = Reader


class OursDCD(test_dcd.DCDReference):
    def __init__(self):
        super().__init__()
        self.trajectory = test_dcd.COORDINATES_DCD
        self.reader = Reader


class TestMultiframe(base.MultiframeReaderTest):
    @pytest.fixture(params=[OursXTC, OursTRR, OursDCD])
    def ref(self, request):
        return request.param()

    def test_frame_collect_all_same(self, reader):
        if reader.format == "DCD" and not _REUSES_DCD:
            pytest.skip("each frame has arrays of its own, as with MDAnalysis's DCDReader")
        super().test_frame_collect_all_same(reader)


class TestGromacs(test_xdr._GromacsReader):
    filename = property(lambda self: test_xdr.XTC)
    test_rewind_xdrtrj = None


class TestGromacsTRR(test_xdr.TestTRRReader):
    filename = property(lambda self: test_xdr.TRR)
    test_rewind_xdrtrj = None


class TestSubTRR(test_xdr._XDRReader_Sub):
    XDR_SUB_SOL = property(lambda self: test_xdr.TRR_sub_sol)


class TestSub(test_xdr._XDRReader_Sub):
    XDR_SUB_SOL = property(lambda self: test_xdr.XTC_sub_sol)


class TestApi(test_reader_api.TestMultiFrameReader):
    @pytest.fixture(autouse=True)
    def ten_frames(self, tmp_path):
        self.readerclass = lambda name: Reader(shutil.copy(XTC_multi_frame, tmp_path))


class TestChain(test_chainreader.TestChainReader):
    pass


class TestChainCommonDt(test_chainreader.TestChainReaderCommonDt):
    pass


class TestChainFormats(test_chainreader.TestChainReaderFormats):
    pass


class TestChainContinuous(test_chainreader.TestChainReaderContinuous):
    test_start_frames = None
    test_warning = None
    test_interleaving_error = None
    test_single_frames = None
    test_mixed_filetypes = None
    test_unsupported_filetypes = None


original_and_copy = test_copying.original_and_copy
universe_dcd = test_dcd.universe_dcd


@pytest.fixture(params=["XTC", "TRR", "DCD", "CHAIN"])
def ref_reader(request):
    if request.param == "CHAIN":
        return paceline.Universe(test_copying.GRO, [test_copying.XTC] * 2).trajectory
    return Reader(getattr(test_copying, request.param))


test_n_atoms = test_copying.test_reader_n_atoms
test_filename = test_copying.test_reader_filename
test_independent_iteration = test_copying.test_reader_independent_iteration
test_initial_frame_maintained = test_copying.test_reader_initial_frame_maintained
test_initial_next = test_copying.test_reader_initial_next
test_timestep_copied = test_copying.test_timestep_copied
test_positions_share_memory = test_copying.test_positions_share_memory

test_xtc_pathlib = test_xdr.test_pathlib
test_dcd_pathlib = test_dcd.test_pathlib
test_rewind = test_dcd.test_rewind
test_next = test_dcd.test_next
test_jump_last_frame = test_dcd.test_jump_last_frame
test_slice = test_dcd.test_slice
test_array_like = test_dcd.test_array_like
test_list_indices = test_dcd.test_list_indices
test_timeseries_slices = test_dcd.test_timeseries_slices
test_timeseries_order = test_dcd.test_timeseries_order
test_timeseries_atomindices = test_dcd.test_timeseries_atomindices
test_writer_dt = test_dcd.test_writer_dt
test_other_writer = test_dcd.test_other_writer
test_single_frame = test_dcd.test_single_frame
test_writer_trajectory_no_natoms = test_dcd.test_writer_trajectory_no_natoms


@pytest.mark.parametrize("system", ["TRICLINIC", "NAMD_TRICLINIC"])
def test_triclinic_cells(system, tmp_path):
    reference = {
        "TRICLINIC": test_dcd.RefCHARMMtriclinicDCD,
        "NAMD_TRICLINIC": test_dcd.RefNAMDtriclinicDCD,
    }[system]
    copied = type("Copied", (reference,), {"trajectory": getattr(test_dcd, f"DCD_{system}")})
    test_dcd.test_read_unitcell_triclinic(copied)


def test_a_file_without_frames_is_refused():
    with pytest.raises((PacelineError, OSError)):
        paceline.Universe(test_dcd.PSF, DCD_empty)
