"""A stop that is asked for: heard, obeyed at once where nothing can be lost, not heard where somebody ignores it."""

import os
import signal
import threading

import pytest

from seq2see.stopping import SIGNALS, Stop, Stopped


@pytest.mark.parametrize("number", SIGNALS)
def test_a_signal_is_heard_and_what_was_there_before_comes_back(number: signal.Signals) -> None:
    before = signal.getsignal(number)
    stop = Stop()
    with stop.listening():
        assert not stop.asked()
        os.kill(os.getpid(), number)
        assert stop.asked()
        assert stop.signal == number
    assert signal.getsignal(number) == before


def test_a_second_signal_does_not_wait() -> None:
    stop = Stop()
    with stop.listening():
        os.kill(os.getpid(), signal.SIGTERM)
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGINT)


def test_what_changes_nothing_is_left_at_once() -> None:
    stop = Stop()
    with stop.listening(), pytest.raises(Stopped), stop.at_once():
        os.kill(os.getpid(), signal.SIGTERM)
    with pytest.raises(Stopped), stop.at_once():
        pytest.fail("it began, although a stop was asked for before")


def test_a_stop_that_another_process_passes_on() -> None:
    stop = Stop()
    stop.pass_on(signal.SIGTERM)  # nobody listens: the signal would end the program
    with stop.listening():
        thread = threading.Thread(target=stop.pass_on, args=(signal.SIGTERM,))
        with pytest.raises(Stopped), stop.at_once():
            _ = thread.start(), thread.join()
        assert stop.signal == signal.SIGTERM
        stop.pass_on(signal.SIGINT)  # it is known already: no second signal
    assert stop.signal == signal.SIGTERM


def test_what_somebody_ignores_stays_ignored() -> None:
    """As under nohup."""
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        stop = Stop()
        with stop.listening():
            os.kill(os.getpid(), signal.SIGHUP)
            assert not stop.asked()
    finally:
        signal.signal(signal.SIGHUP, before)


def test_in_another_thread_nothing_is_heard() -> None:
    heard: list[bool] = []

    def work() -> None:
        stop = Stop()
        with stop.listening():
            heard.append(stop.asked())

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert heard == [False]
