"""What a notebook shows of results: tables, without anything of a record, and with every text escaped."""

import html

import s3t
from testing import tiny


def test_status_and_evaluation_are_tables(trained_once, tmp_path):
    with s3t.Run.open(tiny.copy_run(trained_once, tmp_path / "run")) as run:
        run.delete(records=["r3"], repair=False)
        status, evaluation = run.status(), run.evaluate(tiny.text_table(6))
    shown = status._repr_html_()
    assert shown.startswith("<p>Status(generation 1, ")
    notes = (*status.warnings, *status.gaps, *status.advice)
    assert shown.count("<td>") == 5 * len(status.shards) + len(notes)
    assert all(html.escape(note) in shown for note in notes)
    found = evaluation._repr_html_()
    assert [f"<p>{name}</p>" in found for name in ("shards", "cut to a depth", "labels")] == [True] * 3
    assert f"accuracy {evaluation.accuracy:.4f}" in found
