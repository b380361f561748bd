from __future__ import annotations

from pathlib import Path

from tasks.system.files import append_line, read_lines


def test_a_line_that_a_kill_cut_short_takes_no_other_with_it(tmp_path: Path) -> None:
    path = tmp_path / "lines"
    path.write_bytes(b'{"n": 0}\n3\n\xff\xfe\n{"n": 1')
    assert read_lines(path) == [{"n": 0}]
    append_line(path, '{"n": 2}')
    assert read_lines(path) == [{"n": 0}, {"n": 2}]
