"""A runtime that reads its inputs by name and type, counts them, and marks its answers."""

from typing import List, Tuple

import mlserver
import numpy as np
from helpers import read_number, shout  # a module beside this one
from mlserver import MLModel
from mlserver.codecs import decode_args
from mlserver.errors import InferenceError
from mlserver.utils import get_model_uri


class Codecs(MLModel):
    async def load(self) -> bool:
        path = await get_model_uri(self.settings, wellknown_filenames=["weights.txt"])
        self._offset = read_number(path) * self.settings.parameters.extra["scale"]
        mlserver.register("rows_seen", "Rows of all requests")
        return True

    @decode_args
    async def predict(self, numbers: np.ndarray, names: List[str]) -> Tuple[np.ndarray, List[str]]:
        if len(names) != len(numbers):
            raise InferenceError("a name for each row, please")
        mlserver.log(rows_seen=len(names))
        return numbers + self._offset, [shout(name) for name in names]
