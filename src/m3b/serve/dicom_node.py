"""A DICOM node: receives series by C-STORE, predicts each with a delivered model, and sends the results to a destination.

Instances are opened by the confined reader, the model runs in its confined process. A series is answered only when it is
written to the disk, and its images are removed when its results are. The log has sender, key of the series and counts.
"""

from __future__ import annotations

import logging
import math
import socket
import threading
import time
import warnings
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from m3b.errors import M3bError, UsageError
from m3b.isolation.reader import Reader
from m3b.isolation.reader.inprocess import open_reader
from m3b.models import Model, Prediction, load_model, read_model_info
from m3b.models.dicom.output import DEFAULT_FORMATS, check_formats, write_dicom
from m3b.models.dicom.sources import INSPECT_INSTANCE_JOB, InstanceFacts, InstanceRequest
from m3b.serve.dicom_spool import Spool
from m3b.serve.dicom_transfer import (
    MAX_INSTANCE_BYTES,
    Destination,
    TransferError,
    parse_allowed,
    parse_destination,
    require_package,
)

LOG = logging.getLogger("m3b.serve.dicom")
MAX_ASSOCIATIONS = 8
MAX_PENDING = 32
"""Connections without an association request that stay open; the oldest is closed for a further one."""
MAX_PDU_BYTES = 2**18
"""Maximum length of a PDU, far above an association request with all contexts and the 16 KiB that senders are told."""
REQUEST_TIMEOUT_S, PDU_TIMEOUT_S = 5.0, 30.0
"""Time for a PDU to arrive, before and in an association."""
RETRY_S = 30.0
"""Time between two attempts to send the objects of a series."""
POLL_S = 1.0
SUCCESS, NO_RESOURCES, WRONG_CLASS, NOT_UNDERSTOOD = 0x0000, 0xA700, 0xA900, 0xC000
"""Status of a C-STORE answer (DICOM PS3.4 table B.2-1)."""
REJECTED_PERMANENT, BY_USER, CALLING_TITLE_UNKNOWN = 1, 1, 3
REJECTED_TRANSIENT, BY_PROVIDER, LIMIT_EXCEEDED = 2, 3, 2
"""Result, source and reason of a rejected association (DICOM PS3.8 table 9-21)."""


@dataclass(frozen=True)
class NodeSettings:
    """What the user of the node decides.

    Args:
        allow: senders, as `TITLE` or `TITLE@HOST`; associations of others are rejected.
        send_to: destination of the results, as `TITLE@HOST:PORT` or `dicomweb:URL`.
        spool: folder of the series on their way.
        ae_title: of the node.
        host: address to listen on.
        port: 0 takes a free one.
        formats: objects that are made, some of `DICOM_FORMATS`.
        modalities: accepted modalities such as CT; empty accepts all.
        quiet_s: seconds without a new instance after which a series is complete, from the release of its associations.
        max_series: series that are received, wait, or could not be delivered.
        max_instance_bytes: a larger instance ends its association.
    """

    allow: Sequence[str]
    send_to: str
    spool: Path
    ae_title: str = "M3B"
    host: str = "127.0.0.1"
    port: int = 11112
    formats: Sequence[str] = DEFAULT_FORMATS
    modalities: Sequence[str] = ()
    quiet_s: float = 0.0
    max_series: int = 100
    max_instance_bytes: int = MAX_INSTANCE_BYTES


class DicomNode:
    """A node at work until `close`. With `start`, threads of its own predict and send.

    `spool` holds all series.

    Args:
        model: is used by this node alone.

    Raises:
        UsageError: an invalid setting, a model that takes more than one image a case, a package that is missing, or a port
            or spool folder that is taken.
    """

    def __init__(self, settings: NodeSettings, model: Model) -> None:
        require_package("pynetdicom")
        self._settings, self._model = settings, model
        self._allowed: dict[str, set[str]] = {}
        for title, host in map(parse_allowed, settings.allow):
            self._allowed.setdefault(title, set()).add(host)
        if not self._allowed:
            raise UsageError("Name the senders that the node takes images from with --allow-ae TITLE, one option each.")
        if model.channels or model.covariates:
            raise UsageError("The DICOM node takes models of one image a case, without covariates.")
        check_formats(settings.formats, model)
        self._destination: Destination = parse_destination(settings.send_to)
        self._lock = threading.Lock()
        self._keys_by_association: dict[Any, set[str]] = {}
        self._bytes_by_association: dict[Any, int] = {}
        self._stopping = threading.Event()
        self._series_waiting, self._objects_waiting = threading.Event(), threading.Event()
        self._threads: list[threading.Thread] = []
        with ExitStack() as stack:
            self.spool = Spool(settings.spool, settings.max_series)
            stack.callback(self.spool.close)
            self._reader: Reader = stack.enter_context(open_reader([settings.spool.absolute()]))
            self._reader.start()  # here, so that the first sender does not wait for it
            self._server = self._listen()
            self._stack = stack.pop_all()

    @property
    def port(self) -> int:
        """The port that is listened on."""
        return int(self._server.server_address[1])

    def _listen(self) -> Any:
        from pynetdicom import AE, ALL_TRANSFER_SYNTAXES, StoragePresentationContexts, evt
        from pynetdicom.sop_class import Verification

        for package in ("pynetdicom", "pydicom", "highdicom"):  # what they report may hold parts of instances
            logging.getLogger(package).setLevel(logging.CRITICAL)
            warnings.filterwarnings("ignore", module=rf"{package}\b")
        entity = AE(ae_title=self._settings.ae_title)
        entity.require_called_aet, entity.require_calling_aet = True, list(self._allowed)
        entity.maximum_associations = 2**16  # would count connections of strangers too, `_check_request` does not
        entity.acse_timeout = REQUEST_TIMEOUT_S
        entity.add_supported_context(Verification)
        for context in StoragePresentationContexts:
            entity.add_supported_context(context.abstract_syntax, ALL_TRANSFER_SYNTAXES)
        handlers = [
            (evt.EVT_CONN_OPEN, self._guard_connection), (evt.EVT_CONN_CLOSE, self._log_silent),
            (evt.EVT_REQUESTED, self._check_request), (evt.EVT_REJECTED, self._log_rejected), (evt.EVT_C_STORE, self._store),
            (evt.EVT_DATA_RECV, self._check_size), (evt.EVT_RELEASED, self._end_association, [True]),
            (evt.EVT_ABORTED, self._end_association, [False]),
        ]  # fmt: skip
        address = (self._settings.host, self._settings.port)
        try:
            return entity.start_server(address, block=False, evt_handlers=handlers)
        except (OSError, OverflowError) as error:
            reason = getattr(error, "strerror", None) or error
            raise UsageError(f"{address[0]}:{address[1]} cannot be opened: {reason}. Choose another port.") from error

    # --- receiving, in the threads of the associations ---

    def _guard_connection(self, event: Any) -> None:
        """Bound what a connection can send, and how many connections of strangers there are."""
        connection = event.assoc.dul.socket
        connection.recv = partial(_receive, connection)
        pending = [other for other in self._server.active_associations if other.requestor.primitive is None]
        for oldest in [other for other in pending if other.dul.is_alive()][:-MAX_PENDING]:
            with suppress(OSError, AttributeError):  # it is closed already
                oldest.dul.socket.socket.shutdown(socket.SHUT_RDWR)

    def _log_silent(self, event: Any) -> None:
        if event.assoc.requestor.primitive is None:
            LOG.warning("closed a connection of %s: it requested no association", event.assoc.requestor.address)

    def _check_request(self, event: Any) -> None:
        """Reject an association of an allowed title from another host than the title's, and one too many."""
        association, title = event.assoc, event.assoc.requestor.primitive.calling_ae_title
        hosts = self._allowed.get(title)
        if hosts is None:
            return  # is rejected by pynetdicom
        n_established = sum(other.is_established for other in self._server.active_associations)
        if "" not in hosts and association.requestor.address not in hosts:
            association.acse.send_reject(REJECTED_PERMANENT, BY_USER, CALLING_TITLE_UNKNOWN)
        elif n_established >= MAX_ASSOCIATIONS:
            association.acse.send_reject(REJECTED_TRANSIENT, BY_PROVIDER, LIMIT_EXCEEDED)
        else:
            return
        association.kill()  # waits until that is sent
        self._log_rejected(event)

    def _log_rejected(self, event: Any) -> None:
        LOG.warning("rejected an association of %s", _quote(event.assoc.requestor.primitive.calling_ae_title))

    def _check_size(self, event: Any) -> None:
        """Abort an association whose instance is too large, before it fills the memory."""
        association = event.assoc
        if not association.is_established:
            return
        with self._lock:
            n_bytes = self._bytes_by_association.get(association, 0) + len(event.data)
            self._bytes_by_association[association] = n_bytes
        if n_bytes > self._settings.max_instance_bytes and not association.is_aborted:
            LOG.warning("ended an association: an instance has more than %d bytes", self._settings.max_instance_bytes)
            association.abort(block=False)

    def _store(self, event: Any) -> int:
        """Return the status of a C-STORE request when the instance is on the disk."""
        association = event.assoc
        sender = str(event.assoc.requestor.ae_title)
        instance = str(event.request.AffectedSOPInstanceUID)
        with self._lock:
            self._bytes_by_association[association] = 0
        file = self.spool.path_of("work", f"{id(association)}.dcm")
        try:
            file.write_bytes(event.encoded_dataset())
            facts = self._reader.run_job(INSPECT_INSTANCE_JOB, InstanceRequest(file))
            if refusal := self._find_refusal(facts):
                LOG.warning("refused an instance of %s: %s", _quote(sender), refusal[1])
                return refusal[0]
            key = self.spool.make_key(sender, facts.series)
            if not self.spool.has_room(key):
                LOG.warning("refused an instance of %s: the queue or the disk is full", _quote(sender))
                return NO_RESOURCES
            with self._lock:
                self._keys_by_association.setdefault(association, set()).add(key)
            self.spool.add(key, instance, file)
        except (M3bError, OSError) as error:
            LOG.warning("refused an instance of %s: %s", _quote(sender), type(error).__name__)
            return NO_RESOURCES if isinstance(error, OSError) else NOT_UNDERSTOOD
        finally:
            file.unlink(missing_ok=True)
        return SUCCESS

    def _find_refusal(self, facts: InstanceFacts) -> tuple[int, str] | None:
        if facts.problem:
            return NOT_UNDERSTOOD, "no image that can be read"
        if self._settings.modalities and facts.modality not in self._settings.modalities:
            return WRONG_CLASS, "another modality than the model takes"
        if facts.frames > 1:
            return WRONG_CLASS, "several frames in one instance"
        return None

    def _end_association(self, event: Any, is_released: bool) -> None:
        with self._lock:
            keys = self._keys_by_association.pop(event.assoc, set())
            self._bytes_by_association.pop(event.assoc, None)
            open_keys = {key for others in self._keys_by_association.values() for key in others}
            for key in sorted(keys - open_keys) if is_released else ():
                self.spool.settle(key)
        for key in sorted(keys) if not is_released else ():
            LOG.warning("series %s is incomplete: its association broke; it waits to be sent again", key)
        self._complete_settled()

    def _complete_settled(self) -> None:
        for ticket in self.spool.complete_settled(self._settings.quiet_s):
            LOG.info("series %s is complete", ticket)
            self._series_waiting.set()

    # --- predicting and sending ---

    def start(self) -> None:
        """Predict and send in threads until `close`."""
        for work in (self._run_predictions, self._run_sending):
            self._threads.append(threading.Thread(target=work, daemon=True))
            self._threads[-1].start()

    def _run_predictions(self) -> None:
        while not self._stopping.is_set():
            self._complete_settled()
            with self._lock:
                open_keys = {key for keys in self._keys_by_association.values() for key in keys}
            for key in self.spool.remove_torn(open_keys):
                LOG.warning("series %s is removed: nobody sent the rest of it", key)
            if not self.predict_next():
                self._series_waiting.wait(POLL_S)
                self._series_waiting.clear()

    def predict_next(self) -> bool:
        """Predict the series that has waited longest; return whether there was one."""
        ticket = next(iter(self.spool.list_tickets("queued")), None)
        if ticket is not None:
            with self.spool.open_work_folder() as work:
                self._predict(ticket, work)
        return ticket is not None

    def _predict(self, ticket: str, work: Path) -> None:
        began, series = time.monotonic(), self.spool.path_of("queued", ticket)
        n_images = len(list(series.iterdir()))
        try:
            predictions = self._model.predict(str(series), strict=False, out=work)
            objects = self._write_objects(predictions, work / "objects")
        except (M3bError, OSError) as error:
            LOG.error("series %s, %d images: failed (%s); it is put aside", ticket, n_images, type(error).__name__)
            self.spool.fail(ticket)
            return
        codes = sorted({prediction.error_code for prediction in predictions if prediction.error})
        LOG.log(
            logging.INFO if objects else logging.ERROR, "series %s, %d images: %d objects in %.1f s%s%s", ticket, n_images,
            len(objects), time.monotonic() - began, f"; not predicted: {', '.join(codes)}" if codes else "",
            "" if objects else "; it is put aside",
        )  # fmt: skip
        if not objects:
            self.spool.fail(ticket)
            return
        self.spool.finish(ticket, work / "objects")
        self._objects_waiting.set()

    def _write_objects(self, predictions: list[Prediction], folder: Path) -> list[Path]:
        model = self._model
        written = write_dicom(
            predictions, read_model_info(model.folder), model.title, model.version, folder, self._settings.formats,
            model.display_window,
        )  # fmt: skip
        return [file for files in written.values() for file in files]

    def _run_sending(self) -> None:
        attempts: dict[str, float] = {}
        while not self._stopping.is_set():
            for ticket in self.spool.list_tickets("outgoing"):
                if time.monotonic() - attempts.get(ticket, -math.inf) < RETRY_S:
                    continue
                if self._send(ticket):
                    attempts.pop(ticket, None)
                else:
                    attempts[ticket] = time.monotonic()
            self._objects_waiting.wait(POLL_S)
            self._objects_waiting.clear()

    def send_waiting(self) -> bool:
        """Send what waits; return whether everything was taken. An object is removed when the destination has it."""
        return all([self._send(ticket) for ticket in self.spool.list_tickets("outgoing")])

    def _send(self, ticket: str) -> bool:
        folder = self.spool.path_of("outgoing", ticket)
        try:
            if files := sorted(folder.iterdir()):
                self._destination.send(files, self._settings.ae_title, Path.unlink)
                LOG.info("series %s: %d objects delivered", ticket, len(files))
            folder.rmdir()
        except (TransferError, OSError) as error:
            LOG.warning("series %s: not delivered, is tried again: %s", ticket, error)
            return False
        return True

    def join_associations(self, timeout_s: float) -> None:
        """Wait until no association is open."""
        for association in self._server.active_associations:
            association.join(timeout_s)

    def close(self) -> None:
        """End all associations, and the threads after what they are at; everything that waits stays on the disk."""
        if self._stopping.is_set():
            return
        self._stopping.set()
        self._series_waiting.set()
        self._objects_waiting.set()
        self._server.ae.shutdown()
        for thread in self._threads:
            thread.join()
        self._stack.close()

    def __enter__(self) -> DicomNode:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _receive(connection: Any, n_bytes: int) -> bytearray:
    """Return a part of a PDU, or less if the connection ends; replaces `AssociationSocket.recv`, which has no limits.

    Raises:
        OSError: it is too long or arrives too slowly; pynetdicom then closes the connection.
    """
    if n_bytes > MAX_PDU_BYTES:
        LOG.warning("closed a connection of %s: a PDU is too long", connection.assoc.requestor.address)
        raise OSError("the PDU is too long")
    timeout_s = PDU_TIMEOUT_S if connection.assoc.is_established else REQUEST_TIMEOUT_S
    connection.socket.settimeout(timeout_s)
    end, received = time.monotonic() + timeout_s, bytearray()
    while len(received) < n_bytes and (data := connection.socket.recv(n_bytes - len(received))):
        received += data
        if time.monotonic() > end:
            raise TimeoutError
    return received


def _quote(title: str) -> str:
    """Return an AE title for the log, without characters that end a line."""
    return ascii(title.strip())


@contextmanager
def run_node(settings: NodeSettings, model_folder: Path, *, unconfined: bool = False) -> Iterator[DicomNode]:
    """Run a node with a model of its own during the block, with its log on standard error.

    Raises:
        UsageError: as `DicomNode`.
    """
    handler = logging.StreamHandler()
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(message)s"))
    LOG.addHandler(handler)
    LOG.setLevel(logging.INFO)
    LOG.propagate = False  # the command line has a handler of its own
    try:
        with load_model(model_folder, unconfined=unconfined) as model, DicomNode(settings, model) as node:
            node.start()
            LOG.info("listening as %s on %s:%d", settings.ae_title, settings.host, node.port)
            yield node
    finally:
        LOG.removeHandler(handler)
        LOG.propagate = True
