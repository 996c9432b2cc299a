import json

import numpy as np
import pytest

import stores
from seq2see import special
from seq2see.errors import DataError
from seq2see.tokens import store

PAIRS = [([4, 5, 6], [7]), ([8], []), ([], [9, 10]), ([11, 12], [13, 14, 15])]


def packed(sequences):
    """The same by plain loops: tokens, END after each, and where each begins."""
    tokens, offsets = [], [0]
    for sequence in sequences:
        tokens += [*sequence, special.END]
        offsets.append(len(tokens))
    return tokens, offsets


def test_a_store_gives_back_its_pairs_in_any_order(tmp_path):
    written = stores.write(tmp_path / "new" / "folder", iter(PAIRS), vocabulary=16)
    assert len(written) == 4
    for order in ([0, 1, 2, 3], [3, 1], [2, 2, 0], [1]):
        arrays = written.gather(np.array(order))
        assert all(array.dtype == np.int64 for array in arrays)
        assert tuple(array.tolist() for array in arrays) == (
            *packed(PAIRS[index][0] for index in order),
            *packed(PAIRS[index][1] for index in order),
        )


def test_lengths_and_totals_count_the_end(tmp_path):
    written = stores.write(tmp_path, PAIRS, vocabulary=16)
    assert written.source_lengths(np.array([3, 0])).tolist() == [3, 4]
    assert written.target_lengths(np.array([3, 0])).tolist() == [4, 2]
    assert (written.source_tokens, written.target_tokens) == (10, 10)


def test_blocks_of_any_size_are_written_alike(tmp_path):
    pairs = stores.write(tmp_path / "pairs", PAIRS, vocabulary=16)
    packed = [store.pack(PAIRS[:3], 16), store.pack(PAIRS[3:], 16)]
    blocks = store.write_blocks(tmp_path / "blocks", packed, vocabulary=16)
    for name in ("source.tokens", "source.offsets", "target.tokens", "target.offsets"):
        assert (pairs.folder / name).read_bytes() == (blocks.folder / name).read_bytes()


@pytest.mark.parametrize(("vocabulary", "width"), [(65_536, 2), (65_537, 4)])
def test_a_token_takes_as_few_bytes_as_the_vocabulary_allows(tmp_path, vocabulary, width):
    written = stores.write(tmp_path, [([vocabulary - 1], [4])], vocabulary)
    assert (tmp_path / "source.tokens").stat().st_size == 2 * width
    assert written.gather(np.array([0]))[0].tolist() == [vocabulary - 1, special.END]


def test_no_pairs_is_an_error(tmp_path):
    with pytest.raises(DataError, match="no pairs"):
        stores.write(tmp_path, [], vocabulary=16)


def test_a_half_written_store_is_refused_even_over_an_older_one(tmp_path):
    stores.write(tmp_path, PAIRS, vocabulary=16)

    def interrupted():
        yield PAIRS[0]
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        stores.write(tmp_path, interrupted(), vocabulary=16)
    with pytest.raises(DataError, match="half written"):
        store.Store(tmp_path)


@pytest.mark.parametrize("name", ["source.tokens", "source.offsets", "target.tokens", "target.offsets"])
def test_a_file_cut_short_or_missing_is_named(tmp_path, name):
    stores.write(tmp_path, PAIRS, vocabulary=16)
    path = tmp_path / name
    path.write_bytes(path.read_bytes()[:-2])
    with pytest.raises(DataError, match=f"{name}.*expected"):
        store.Store(tmp_path)
    path.unlink()
    with pytest.raises(DataError, match=f"{name}: 0 bytes"):
        store.Store(tmp_path)


@pytest.mark.parametrize("change", [{"pairs": None}, {"pairs": "many"}, {"dtype": "O"}, {"dtype": "?!"}])
def test_a_damaged_description_is_refused(tmp_path, change):
    stores.write(tmp_path, PAIRS, vocabulary=16)
    about = json.loads((tmp_path / "store.json").read_text())
    (tmp_path / "store.json").write_text(json.dumps(about | change))
    with pytest.raises(DataError, match="damaged"):
        store.Store(tmp_path)


def test_another_format_is_refused(tmp_path):
    stores.write(tmp_path, PAIRS, vocabulary=16)
    about = json.loads((tmp_path / "store.json").read_text())
    (tmp_path / "store.json").write_text(json.dumps(about | {"format": 2}))
    with pytest.raises(DataError, match="format 2, expected 1"):
        store.Store(tmp_path)
