"""TensorBoard: event files in the run folder."""

from __future__ import annotations

import time
from collections.abc import Mapping

from tensorboard.compat.proto.event_pb2 import Event
from tensorboard.compat.proto.summary_pb2 import Summary
from tensorboard.compat.proto.tensor_pb2 import TensorProto
from tensorboard.compat.proto.tensor_shape_pb2 import TensorShapeProto
from tensorboard.compat.proto.types_pb2 import DT_STRING
from tensorboard.plugins.text.metadata import create_summary_metadata
from tensorboard.summary.writer.event_file_writer import EventFileWriter

from m3b.loggers.base import LoggedRun, ParameterValue


class TensorBoardLogger:
    """Writes event files. A process that goes on with a run adds a file to the same folder."""

    key = ""

    def __init__(self, run: LoggedRun) -> None:
        self._writer = EventFileWriter(str(run.store))

    def log_parameters(self, parameters: Mapping[str, ParameterValue]) -> None:
        """Write a table, which the tab "Text" shows."""
        rows = [f"| {name} | {value} |" for name, value in parameters.items()]
        self._write_text("parameters", "\n".join(["| setting | value |", "|---|---|", *rows]))

    def log_figures(self, figures: Mapping[str, float], step: int, at: float) -> None:
        values = [Summary.Value(tag=name, simple_value=value) for name, value in figures.items()]
        self._writer.add_event(Event(wall_time=at, step=step, summary=Summary(value=values)))
        self._writer.flush()

    def set_tags(self, tags: Mapping[str, str]) -> None:
        for name, text in tags.items():
            self._write_text(name, text)

    def close(self, status: str) -> None:
        self._writer.close()

    def _write_text(self, name: str, text: str) -> None:
        shape = TensorShapeProto(dim=[TensorShapeProto.Dim(size=1)])
        tensor = TensorProto(dtype=DT_STRING, string_val=[text.encode()], tensor_shape=shape)
        metadata = create_summary_metadata(display_name=name, description="")
        value = Summary.Value(tag=f"{name}/text_summary", metadata=metadata, tensor=tensor)
        self._writer.add_event(Event(wall_time=time.time(), summary=Summary(value=[value])))
        self._writer.flush()
