from __future__ import annotations

import os
import threading

from marserve.frontend import line_writer
from marserve.frontend.line_writer import LineWriter, write_console


def test_lines_are_written_together_and_in_order() -> None:
    texts: list[str] = []
    writer = LineWriter(texts.append, "test", 60.0)
    for number in range(1000):
        writer.append(f"{number}\n")

    assert writer.close()
    assert "".join(f"{number}\n" for number in range(1000)) == "".join(texts)
    assert len(texts) <= 2


def test_flush_waits_until_all_is_written() -> None:
    texts: list[str] = []
    writer = LineWriter(texts.append, "test", 0.001)
    for number in range(50):
        writer.append(f"{number}\n")
        assert writer.flush(30)
        assert "".join(texts).endswith(f"{number}\n")
    writer.close()


def test_a_stuck_reader_costs_lines_not_time() -> None:
    stuck, texts = threading.Event(), []

    def write(text: str) -> None:
        stuck.wait(30)
        texts.append(text)

    writer = LineWriter(write, "test", 0.0)
    for number in range(line_writer.MAX_LINES * 2 + 10):
        writer.append(f"{number}\n")

    assert not writer.close(timeout_s=0.01)
    stuck.set()
    assert writer.close(timeout_s=30)
    lines = "".join(texts).splitlines()
    assert "0" == lines[0]
    dropped = [int(line.split()[1]) for line in lines if line.startswith("...")]
    assert sum(dropped) >= 10
    assert line_writer.MAX_LINES * 2 + 10 == len(lines) - len(dropped) + sum(dropped)


def test_lines_of_many_threads() -> None:
    texts: list[str] = []
    writer = LineWriter(texts.append, "test", 0.0)

    def append() -> None:
        for number in range(500):
            writer.append(f"{number}\n")

    threads = [threading.Thread(target=append) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    writer.close()

    assert 8 * 500 == "".join(texts).count("\n")


def test_the_console_takes_more_than_a_pipe_holds() -> None:
    read_end, write_end = os.pipe()
    os.set_blocking(write_end, False)
    text = "é" * 200_000
    received: list[bytes] = []

    def read() -> None:
        with os.fdopen(read_end, "rb") as pipe:
            received.append(pipe.read())

    reader = threading.Thread(target=read)
    reader.start()
    write_console(text, write_end)
    os.close(write_end)
    reader.join()

    assert text == received[0].decode()


def test_a_closed_console_is_no_error() -> None:
    read_end, write_end = os.pipe()
    os.close(read_end)
    write_console("text", write_end)
    os.close(write_end)
