"""Contexts that stay open, made by two functions: with the GIL, and without, as ctypes calls C.

With another argument, a call that fails.
"""

import ctypes
import sys
import threading


def open_device(verbs):
    verbs.ibv_get_device_list.restype = ctypes.POINTER(ctypes.c_void_p)
    verbs.ibv_open_device.restype = ctypes.c_void_p
    verbs.ibv_open_device.argtypes = [ctypes.c_void_p]
    assert verbs.ibv_open_device(verbs.ibv_get_device_list(None)[0])


def with_lock():
    open_device(ctypes.PyDLL(sys.argv[1]))


def without():
    open_device(ctypes.CDLL(sys.argv[1]))


def fails():
    assert not ctypes.CDLL(sys.argv[1]).ibv_alloc_pd(None)


if len(sys.argv) > 2:
    fails()
    sys.exit()
with_lock()
threads = [threading.Thread(target=without) for _ in range(4)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
