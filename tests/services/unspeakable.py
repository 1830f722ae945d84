"""Says what no wire carries; the JSON body says which.

``error`` raises ValueError with that text; ``metric`` counts under that name; ``open`` opens the
file of that name in a directory: ``model``, ``temp`` or ``home``; ``stream`` streams with the
response header ``X-Own`` set to that value. Anything else is answered ``fine``.
"""

import os
import tempfile

from ts.handler_utils.utils import send_intermediate_predict_response


def handle(data, context):
    if data is None:
        return None
    return [answer(row.get("body") or {}, index, context) for index, row in enumerate(data)]


def answer(wish, index, context):
    if "error" in wish:
        raise ValueError(wish["error"])
    if "metric" in wish:
        context.metrics.add_counter(wish["metric"], 1)
    if "open" in wish:
        places = {"temp": tempfile.gettempdir(), "home": os.path.expanduser("~")}
        place = places.get(wish["open"], context.system_properties["model_dir"])
        with open(os.path.join(place, "secret-folder", "absent.bin")) as file:
            return file.read()
    if "stream" in wish:
        context.set_response_header(index, "X-Own", wish["stream"])
        for _ in range(3):
            send_intermediate_predict_response(
                ["piece"], {0: context.get_request_id(index)}, "", 200, context
            )
    return "fine"
