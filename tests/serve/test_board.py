"""What those see who look on for long: a counter, stages in training, and depths over time as they were."""

import pytest

import s3t
from s3t.core import Stage
from s3t_server.page.board import Board
from testing import tiny
from testing.roles import roles


def changes_of(run):
    board = Board(run)
    return board.depths(board.look())


def replayed(run):
    """Depths now, by the history alone."""
    depths = [0] * len(run.status().depths)
    for change in changes_of(run):
        assert depths[change.shard] == change.depth_before
        depths[change.shard] = change.depth
    return tuple(depths)


def test_the_history_of_depths_ends_with_those_of_now(trained):
    assert replayed(trained) == trained.status().depths == (3, 3)
    for number in range(5):
        trained.delete(records=[f"r{number}"])
        assert replayed(trained) == trained.status().depths
    assert min(trained.status().depths) < 3
    trained.repair()
    assert replayed(trained) == trained.status().depths == (3, 3)


@pytest.mark.integration
def test_the_history_holds_nothing_of_what_records_contain(text_model, tmp_path):
    """Two runs with other texts and labels, and the same deletions: the same changes."""
    table = tiny.text_table()
    changes = []
    for number, text in enumerate(("w1 w2", "w30")):
        other = table.assign(text=text, label="ab"[number])
        with s3t.Run.create(tmp_path / str(number), recipe=tiny.recipe(text_model), data=other) as run:
            run.train()
            for record in ("r3", "r4"):
                run.delete(records=[record])
            changes.append([(each.shard, each.depth_before, each.depth) for each in changes_of(run)])
    assert changes[0] == changes[1]
    assert len(changes[0]) > 6


def test_a_stage_is_in_training_while_a_living_session_has_it(trained):
    assert Board(trained).look().training == frozenset()
    parts, stage = roles(trained), Stage(1, (0,))
    session = parts.presence.session
    with parts.ledger.writing() as transaction:
        transaction.sessions.enter(session, generation=0)
        assert transaction.sessions.claim(stage, session)
    assert Board(trained).look().training == {stage}
    with parts.ledger.writing() as transaction:
        transaction.rows.connection.exec_driver_sql("UPDATE sessions SET process = 1, seen_at = 0")
    assert Board(trained).look().training == frozenset()


def test_the_counter_moves_with_each_change_and_not_else(trained):
    before = Board(trained).look().changes
    trained.status()
    assert Board(trained).look().changes == before
    trained.delete(records=["r0"])
    assert Board(trained).look().changes > before
