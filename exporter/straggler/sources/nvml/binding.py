"""The one place that touches ``pynvml``: the library's functions by name, its structs as plain numbers."""

from __future__ import annotations

import ctypes
import importlib
import warnings
from collections.abc import Sequence
from typing import Any, Final, Protocol

from straggler.errors import StragglerError

NOT_SUPPORTED: Final = 3
NO_PERMISSION: Final = 4
TIMEOUT: Final = 10
LIBRARY_NOT_FOUND: Final = 12
FUNCTION_NOT_FOUND: Final = 13
GPU_IS_LOST: Final = 15

FieldId = int | tuple[int, int]
"""A field, or a field and its scope (a link)."""

Answer = tuple[int, float]
"""Return code of one value, 0 for success, and the value."""

_UNION: Final = ("dVal", "uiVal", "ulVal", "ullVal", "sllVal", "siVal", "usVal")
"""Members of ``nvmlValue_t`` by ``nvmlValueType_t``."""


class NvmlError(StragglerError):
    """A call that did not succeed.

    Args:
        code: ``nvmlReturn_t``.
        what: the function, for the log.
    """

    def __init__(self, code: int, what: str) -> None:
        super().__init__(f"{what}: NVML error {code}")
        self.code = code


class Nvml(Protocol):
    """What is used of the library. Functions and structs have their C names, without the struct's pointers."""

    def call(self, name: str, *arguments: Any) -> Any:
        """Call a function.

        Raises:
            NvmlError: it, or the installed driver, could not do it.
        """

    def fields(self, device: Any, ids: Sequence[FieldId]) -> Sequence[Answer]:
        """Ask for field values, all in one call.

        Returns:
            As long as ``ids`` and in that order.

        Raises:
            NvmlError: as ``call``.
        """

    def gpm(self, earlier: Any, later: Any, ids: Sequence[int]) -> Sequence[Answer]:
        """Ask for the metrics between two samples.

        Returns:
            As long as ``ids`` and in that order.

        Raises:
            NvmlError: as ``call``.
        """

    def address(self, handle: Any) -> int:
        """A number that is the same for two handles of one device: events bring a handle of their own."""


class LibNvml:
    """The real library, through ``nvidia-ml-py``.

    Raises:
        NvmlError: ``LIBRARY_NOT_FOUND`` if the Python package is not installed.
    """

    def __init__(self) -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the distribution ``pynvml`` warns that it is not the right one
            try:
                self._library: Any = importlib.import_module("pynvml")
            except ImportError as error:
                raise NvmlError(LIBRARY_NOT_FOUND, "import of nvidia-ml-py") from error

    def call(self, name: str, *arguments: Any) -> Any:
        """As in the protocol. A function that this binding or this driver does not have is ``FUNCTION_NOT_FOUND``."""
        function = getattr(self._library, name, None)
        if function is None:
            raise NvmlError(FUNCTION_NOT_FOUND, name)
        try:
            return function(*arguments)
        except self._library.NVMLError as error:
            raise NvmlError(int(error.value), name) from error

    def fields(self, device: Any, ids: Sequence[FieldId]) -> Sequence[Answer]:
        """As in the protocol."""
        values = self.call("nvmlDeviceGetFieldValues", device, list(ids))
        return [(int(value.nvmlReturn), _number(value)) for value in values]

    def gpm(self, earlier: Any, later: Any, ids: Sequence[int]) -> Sequence[Answer]:
        """As in the protocol."""
        make = getattr(self._library, "c_nvmlGpmMetricsGet_t", None)
        if make is None:
            raise NvmlError(FUNCTION_NOT_FOUND, "nvmlGpmMetricsGet")
        request = make()
        request.version = self._library.NVML_GPM_METRICS_GET_VERSION
        request.numMetrics = len(ids)
        request.sample1, request.sample2 = earlier, later
        for place, number in enumerate(ids):
            request.metrics[place].metricId = number
        self.call("nvmlGpmMetricsGet", request)
        return [(int(metric.nvmlReturn), float(metric.value)) for metric in request.metrics[: len(ids)]]

    def address(self, handle: Any) -> int:
        """As in the protocol."""
        return ctypes.cast(handle, ctypes.c_void_p).value or 0


def _number(field: Any) -> float:
    kind = field.valueType
    return float(getattr(field.value, _UNION[kind])) if 0 <= kind < len(_UNION) else 0.0
