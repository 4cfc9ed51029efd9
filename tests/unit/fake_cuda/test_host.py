"""Registered host memory: whole pages, once each."""

import mmap

import numpy as np
import pytest
from cuda.bindings import runtime as cuda

from tests.fake_cuda.control import FakeGpus
from tests.unit.fake_cuda.calls import address, error, host, ok, violated

PAGE = 4096


def test_flags_tell_what_is_registered(fake_gpus: FakeGpus) -> None:
    buffer = host(PAGE)
    assert error(cuda.cudaHostGetFlags(buffer)) == "cudaErrorInvalidValue"
    ok(cuda.cudaHostRegister(buffer, PAGE, cuda.cudaHostRegisterPortable))
    assert ok(cuda.cudaHostGetFlags(buffer)) == cuda.cudaHostRegisterPortable
    ok(cuda.cudaHostUnregister(buffer))
    assert error(cuda.cudaHostGetFlags(buffer)) == "cudaErrorInvalidValue"


@pytest.mark.parametrize(("start", "size"), [(0, PAGE), (PAGE - 1, 10), (PAGE + 200, 100)])
def test_overlapping_registrations_are_seen(fake_gpus: FakeGpus, start: int, size: int) -> None:
    buffer = host(4 * PAGE)
    ok(cuda.cudaHostRegister(address(buffer), PAGE + 100, 0))
    assert error(cuda.cudaHostRegister(address(buffer) + start, size, 0)) == "cudaErrorHostMemoryAlreadyRegistered"
    violated(fake_gpus, "cudaHostRegister", "overlap")
    ok(cuda.cudaHostUnregister(buffer))


@pytest.mark.parametrize("offset", [0, PAGE])
def test_unregistering_what_is_not_the_start_of_a_registration_is_seen(fake_gpus: FakeGpus, offset: int) -> None:
    buffer = host(4 * PAGE)
    ok(cuda.cudaHostRegister(address(buffer) + 1, 2 * PAGE, 0))
    call = cuda.cudaHostUnregister(address(buffer) + offset)
    assert error(call) == "cudaErrorHostMemoryNotRegistered"
    violated(fake_gpus, "cudaHostUnregister")
    ok(cuda.cudaHostUnregister(address(buffer) + 1))


def test_memory_that_is_not_mapped_cannot_be_registered(fake_gpus: FakeGpus) -> None:
    assert error(cuda.cudaHostRegister(PAGE, PAGE, 0)) == "cudaErrorInvalidValue"
    violated(fake_gpus, "cudaHostRegister", "mapped")


def test_unmapping_registered_memory_is_seen(fake_gpus: FakeGpus) -> None:
    mapping = mmap.mmap(-1, PAGE)
    start = int(np.frombuffer(mapping, dtype=np.uint8).ctypes.data)
    ok(cuda.cudaHostRegister(start, PAGE, 0))
    mapping.close()
    ok(cuda.cudaHostUnregister(start))
    violated(fake_gpus, "cudaHostUnregister", "unmapped")
