"""The state of a pipeline: its checkpoint, what it is for, and its progress.

On a disk that is Spark's own checkpoint, below the root of the tables. Spark can write to an object
store only with jars that do not come with it. There, the checkpoint of a run is on the driver's
disk and ends with the run; what lasts is a note of the progress, written to the store after every
batch. The next run, on whatever machine, starts from it. A run that dies between a batch and its
note reads that batch again, and the tables know that they have it.
"""

from __future__ import annotations

import atexit
import os
import shutil
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import msgspec
from pyarrow import fs

from headwater.client.errors import ResponseError
from pyspark_headwater.errors import InvalidOption
from pyspark_headwater.options import read_options
from pyspark_headwater.pipelines.parquet import filesystem, is_remote
from pyspark_headwater.selection import data_loss, is_data_loss
from pyspark_headwater.wire import wire_to

ABOUT: Final = "pipeline.json"
POSITION: Final = "position.json"


# --- Notes ---------------------------------------------------------------------------------------


def read_note(directory: str, name: str) -> bytes | None:
    """The content of a note in a pipeline's directory."""
    where, path = filesystem(directory)
    if where.get_file_info(f"{path}/{name}").type != fs.FileType.File:
        return None
    with where.open_input_stream(f"{path}/{name}") as file:
        return bytes(file.read())


def write_note(directory: str, name: str, note: object) -> None:
    where, path = filesystem(directory)
    where.create_dir(path)
    if is_remote(directory):
        with where.open_output_stream(f"{path}/{name}") as file:
            file.write(msgspec.json.encode(note))
        return
    # A crash in between leaves the previous note.
    with where.open_output_stream(f"{path}/.{name}") as file:
        file.write(msgspec.json.encode(note))
    where.move(f"{path}/.{name}", f"{path}/{name}")


# --- Which streams a pipeline is for -------------------------------------------------------------


def claim(directory: str, about: Mapping[str, str]) -> None:
    """Record which streams a pipeline is for. Offsets of others would be meaningless to it."""
    note = read_note(directory, ABOUT)
    if note is None:
        write_note(directory, ABOUT, about)
        return
    noted = msgspec.json.decode(note, type=dict[str, str])
    if noted != about:
        raise InvalidOption(
            f"{directory} is that of {_words(noted)}, not of {_words(about)}: give this pipeline a "
            "name of its own, or remove that directory to start over"
        )


def is_known(directory: str) -> bool:
    """Whether a pipeline has run before."""
    return read_note(directory, ABOUT) is not None


def _words(about: Mapping[str, str]) -> str:
    return ", ".join(f"{name} {value}" for name, value in about.items())


# --- Progress ------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """Where Spark records a run's progress, and what else to record after each batch."""

    location: str
    directory: str
    lasts: bool

    def query_id(self) -> str:
        """The id that Spark gave the query when its checkpoint was created."""
        with open(f"{self.location}/metadata", "rb") as file:
            return str(msgspec.json.decode(file.read())["id"])

    def note(self, batch: int) -> None:
        """Record that a batch is in the tables."""
        if self.lasts:
            return
        write_note(self.directory, POSITION, _offsets(self.location, batch))


def checkpoint_of(root: str, directory: str) -> Checkpoint:
    """The checkpoint of a pipeline, or a new one for this run."""
    if not is_remote(root):
        return Checkpoint(_lasting(directory), directory, lasts=True)
    location = tempfile.mkdtemp(prefix="headwater-checkpoint-")
    atexit.register(shutil.rmtree, location, ignore_errors=True)
    return Checkpoint(location, directory, lasts=False)


def starting_options(root: str, directory: str, options: Mapping[str, str]) -> dict[str, str]:
    """The options of a pipeline, with its start if the checkpoint does not determine it."""
    has_begun = not is_remote(root) and os.path.exists(f"{_lasting(directory)}/offsets/0")
    note = None if has_begun else read_note(directory, POSITION)
    if note is None:
        return {"startingOffsets": "earliest", **options}
    given = {name: value for name, value in options.items() if not name.startswith("starting")}
    known = _still_there(msgspec.json.decode(note, type=dict[str, str]), given)
    named = msgspec.json.encode(known).decode() if known else "earliest"
    return {**given, "startingOffsets": named}


def _still_there(position: Mapping[str, str], options: Mapping[str, str]) -> dict[str, str]:
    """The positions that streams still have. If data loss is allowed, other streams start over."""
    chosen = read_options(options, "stream read")
    wire = wire_to(chosen.server)
    known: dict[str, str] = {}
    for stream, offset in position.items():
        try:
            wire.reach(stream, offset, messages=0)
            known[stream] = offset
        except ResponseError as error:
            if not is_data_loss(error):
                raise
            if chosen.fail_on_data_loss:
                raise data_loss(stream, error) from None
    return known


# --- Beginning elsewhere -------------------------------------------------------------------------


def position_of(root: str, directory: str) -> dict[str, str]:
    """The recorded position of a pipeline in each stream."""
    if not is_remote(root):
        location = _lasting(directory)
        done = [int(name) for name in _names(f"{location}/commits") if name.isdecimal()]
        if done:
            return msgspec.json.decode(_offsets(location, max(done)), type=dict[str, str])
    note = read_note(directory, POSITION)
    return {} if note is None else msgspec.json.decode(note, type=dict[str, str])


def begin_at(root: str, directory: str, position: Mapping[str, str]) -> None:
    """Let the next query start at a position, with a new checkpoint. The old one is set aside."""
    write_note(directory, POSITION, position)
    if is_remote(root):
        return
    location = _lasting(directory)
    if os.path.exists(location):
        shutil.rmtree(f"{location}-before", ignore_errors=True)
        os.rename(location, f"{location}-before")


def _lasting(directory: str) -> str:
    """Where Spark keeps the checkpoint of a pipeline on a disk."""
    return f"{filesystem(directory)[1]}/checkpoint"


def _offsets(location: str, batch: int) -> msgspec.Raw:
    """Where a batch ends."""
    with open(f"{location}/offsets/{batch}", "rb") as file:
        return msgspec.Raw(file.read().splitlines()[-1])


def _names(directory: str) -> list[str]:
    return os.listdir(directory) if os.path.isdir(directory) else []
