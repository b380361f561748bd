from __future__ import annotations

from pathlib import Path

from tasks.system.files import GrowingFile, append_line


def test_a_growing_file_is_read_on_from_where_it_was_left(tmp_path: Path) -> None:
    path = tmp_path / "lines"
    file = GrowingFile(path)
    assert file.read() == ()
    for number in range(200):
        append_line(path, f'{{"n": {number}}}')
        assert file.read()[-1] == {"n": number}
    assert [one["n"] for one in file.read()] == list(range(200)) == [one["n"] for one in GrowingFile(path).read()]


def test_a_line_that_a_kill_cut_short_comes_once_if_it_comes_at_all(tmp_path: Path) -> None:
    path = tmp_path / "lines"
    path.write_bytes(b'{"n": 0}\n{"n": 1')
    file = GrowingFile(path)
    assert file.read() == ({"n": 0},)
    append_line(path, '{"n": 2}')
    assert file.read() == ({"n": 0}, {"n": 2})
    with path.open("ab") as cut:
        cut.write(b'{"n": 3}')
    assert file.read() == ({"n": 0}, {"n": 2}, {"n": 3})
    append_line(path, '{"n": 4}')
    assert file.read() == ({"n": 0}, {"n": 2}, {"n": 3}, {"n": 4})
