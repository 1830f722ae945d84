"""Words that server and handlers share: what marks a part, and an answer, as tensors.

What a V2 request has beside its tensors travels in headers of the request to the handler, whatever
surface it came by: ``PARAMETERS`` (always there), ``ID``, ``WANTED``, ``OF_INPUTS``, ``OF_OUTPUTS``
and ``STREAM`` (absent where there is nothing to say). Its tensors are parts: named as the input,
with a media type of ``MARK``, datatype, a space and the shape with commas; the bytes are raw.

An answer is tensors end to end, and ``LAYOUT`` says which. A handler returns arrays by name, or a
``handlers.tensors.TensorAnswer``, which has room for parameters of the answer (``ANSWERED``) and of
each output. An answer in several pieces is several such bodies, each with a ``LAYOUT`` of its own:
``context.emit(index, result)`` for all but the last, which is returned; ``NO_TENSORS`` is what to
return where the last one has been sent already.
"""

MARK = "V2 "
"""Media types that begin so stand for tensors, ``V2 FP32 2,3``; a client's never have capitals."""
LAYOUT = "V2-Outputs"
"""Header of an answer that says, as JSON, which tensors its body consists of: a list of name,
datatype, shape, number of bytes and, only if it has some, parameters, for each."""
PARAMETERS = "V2-Parameters"
"""Header of a request: its parameters, a JSON object."""
ID = "V2-Id"
"""Header of a request: the id that the client gave it; absent if none."""
WANTED = "V2-Wanted"
"""Header of a request: the outputs that are asked for, a JSON list of names; absent for all."""
OF_INPUTS = "V2-Input-Parameters"
"""Header of a request: parameters of its inputs, a JSON object of objects by name, only those that
have some; without the parameters that say where the tensor's bytes are."""
OF_OUTPUTS = "V2-Output-Parameters"
"""Header of a request: parameters of the outputs asked for, likewise."""
STREAM = "V2-Stream"
"""Header of a request whose caller takes an answer in several pieces: ``1``; else absent."""
ANSWERED = "V2-Answer-Parameters"
"""Header of an answer: its parameters, a JSON object; absent if none. A member ``headers``, an
object of texts, becomes headers of the HTTP response."""
NOTHING = ""
"""``LAYOUT`` of the end of an answer whose tensors were all sent before."""
REQUEST_HEADERS = (PARAMETERS, ID, WANTED, OF_INPUTS, OF_OUTPUTS, STREAM)
"""Those of requests: a client cannot set them itself."""
