"""What Spark shows of an error we foresaw is what it says, without the way our code took to find out."""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import wraps
from typing import ParamSpec, TypeVar

from kourou.errors import MissingExtra, MQError

Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")

_EXTRAS = frozenset({"pyarrow", "numpy", "msgspec"})


def in_one_line(call: Callable[Arguments, Result]) -> Callable[Arguments, Result]:
    """For everything Spark calls."""

    @wraps(call)
    def shown(*arguments: Arguments.args, **named: Arguments.kwargs) -> Result:
        try:
            return call(*arguments, **named)
        except MQError:
            hide_traceback()
            raise
        except ModuleNotFoundError as error:
            if (error.name or "").partition(".")[0] not in _EXTRAS:
                raise
            hide_traceback()
            raise MissingExtra(
                f"the Python of this Spark process has no {error.name}: pip install 'kourou[spark]' there"
            ) from None

    return shown


def hide_traceback() -> None:
    """Spark's worker looks at this when it reports an error; then it ends, so nothing else is hidden."""
    os.environ["SPARK_HIDE_TRACEBACK"] = "1"
