"""What those see who look on for long: a counter, stages in training, and depths over time as they were."""

import os
import platform

import s3t
from s3t.core import Stage
from s3t_server.page.board import Board
from testing import tiny
from testing.counting import training_nothing
from testing.roles import roles


def replayed(run):
    """Depths now, by the history alone."""
    depths, board = [0] * len(run.status().depths), Board(run)
    for change in board.depths(board.look()):
        assert depths[change.shard] == change.depth_before
        depths[change.shard] = change.depth
    return tuple(depths)


def test_the_history_of_depths_ends_with_those_of_now(trained):
    assert replayed(trained) == trained.status().depths == (3, 3)
    for number in range(5):
        trained.delete(records=[f"r{number}"])
        assert replayed(trained) == trained.status().depths
    assert min(trained.status().depths) < 3
    with training_nothing():
        trained.repair()
    assert replayed(trained) == trained.status().depths == (3, 3)


def test_a_stage_is_in_training_while_a_living_session_has_it(trained):
    assert Board(trained).look().training == frozenset()
    parts, stage = roles(trained), Stage(1, (0,))
    session = parts.presence.session
    with parts.ledger.writing() as transaction:
        transaction.sessions.enter(session, generation=0)
        assert transaction.sessions.claim(stage, session, device="cuda:1")
    assert Board(trained).look().training == {stage}
    (worker,) = trained.status().workers
    assert (worker.host, worker.process, worker.device) == (platform.node(), os.getpid(), "cuda:1")
    assert 0.0 <= worker.seconds_left < 60.0
    with parts.ledger.writing() as transaction:
        transaction.rows.connection.exec_driver_sql("UPDATE sessions SET process = 1, seen_at = 0")
    assert Board(trained).look().training == frozenset()


def test_the_counter_moves_with_each_change_and_not_else(trained):
    before = Board(trained).look().changes
    trained.status()
    assert Board(trained).look().changes == before
    trained.delete(records=["r0"])
    assert Board(trained).look().changes > before


def test_the_history_holds_nothing_of_what_records_contain(text_model, tmp_path):
    """Two runs with other texts and labels, and the same deletions: the same changes."""
    changes = []
    for text, label in (("w1 w2", "a"), ("w30", "b")):
        table = tiny.text_table().assign(text=text, label=label)
        with (
            training_nothing(),
            s3t.Run.create(tmp_path / label, recipe=tiny.recipe(text_model), data=table) as run,
        ):
            run.train()
            for record in ("r3", "r4"):
                run.delete(records=[record])
            board = Board(run)
            changes.append([(each.shard, each.depth_before, each.depth) for each in board.depths(board.look())])
    assert changes[0] == changes[1]
    assert len(changes[0]) > 6
